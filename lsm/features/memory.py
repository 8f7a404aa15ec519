"""Host memory for rows."""

from __future__ import annotations

from collections.abc import Callable

import torch

from lsm import native
from lsm.core.device import empty_rows
from lsm.data.feature_files import FeatureFiles

TakeRows = Callable[[int], torch.Tensor]
"""Allocates a number of rows: [n, dim], not initialised."""


def pooled_rows(files: FeatureFiles, idle_bytes: int) -> TakeRows:
    """Takes rows from a pool, which reuses memory once no tensor refers to it. Keeps at most
    ``idle_bytes`` of idle memory."""
    pool = native.BufferPool(idle_bytes)

    def take(num_rows: int) -> torch.Tensor:
        buffer = pool.take(num_rows * files.row_bytes)
        return native.as_tensor(buffer, files.dtype).view(num_rows, files.dim)

    return take


def pinned_rows(files: FeatureFiles) -> TakeRows:
    """Takes rows from torch's pool of page-locked memory."""
    return lambda num_rows: empty_rows(num_rows, files.dim, files.dtype)
