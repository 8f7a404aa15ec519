"""Native kernels of the host, for tensors that they take."""

from __future__ import annotations

import functools
import os

import torch
from torch import Tensor

from lsm import native


def takes(tensor: Tensor) -> bool:
    """Whether native kernels take ``tensor``: float32 in host memory. Others go through torch."""
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


def pool() -> native.ThreadPool:
    """Threads of native kernels: this process's, as many as torch has."""
    return _pool(torch.get_num_threads(), os.getpid())


@functools.cache
def _pool(num_threads: int, _process: int) -> native.ThreadPool:
    return native.ThreadPool(num_threads)
