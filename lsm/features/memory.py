"""Host memory for rows."""

from __future__ import annotations

from collections.abc import Callable

import torch

from lsm import native
from lsm.core.device import empty_rows, locking
from lsm.data.feature_files import FeatureFiles

TakeRows = Callable[[int], torch.Tensor]
"""Allocates a number of rows: [n, dim], not initialised."""


def pooled_rows(files: FeatureFiles, idle_bytes: int) -> TakeRows:
    """Takes rows from a pool, which reuses memory once no tensor refers to it. Keeps at most
    ``idle_bytes`` of idle memory."""
    pool = native.BufferPool(idle_bytes)
    row_bytes, dtype, dim = files.row_bytes, files.dtype, files.dim

    def take(num_rows: int) -> torch.Tensor:
        return native.as_tensor(pool.take(num_rows * row_bytes), dtype).view(num_rows, dim)

    return take


def pinned_rows(files: FeatureFiles) -> TakeRows:
    """Takes rows from torch's pool of page-locked memory, which is not used again before torch's
    copies from it are done. Blocks are as large as the next power of two."""
    return lambda num_rows: empty_rows(num_rows, files.dim, files.dtype)


def locked_rows(files: FeatureFiles, idle_bytes: int, device: torch.device) -> TakeRows:
    """Takes rows from a pool of page-locked memory, in blocks that are an eighth too large at most:
    for who waits for copies from them to the GPU ``device``. ``idle_bytes``: kept where more is
    made."""
    pool = native.LockedPool(idle_bytes, device.index)

    def take(num_rows: int) -> torch.Tensor:
        with locking(num_rows * files.row_bytes, "make loader.staging_bytes smaller"):
            buffer = pool.take(num_rows * files.row_bytes)
        return native.as_tensor(buffer, files.dtype).view(num_rows, files.dim)

    return take


def idle_bytes(rows_bytes: int, staging_bytes: int) -> int:
    """Idle memory that a pool of rows keeps, for batches of ``rows_bytes``. On the host it is that
    of batches which are counted; page-locked memory, which holds rows from storage only, counts it
    as well."""
    return max(2 * rows_bytes, staging_bytes // 4)
