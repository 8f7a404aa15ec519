"""Calls of native kernels on host and GPU."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lsm import native


class ScoredRows(NamedTuple):
    """Rows of queries and entities, and the rows that take their gradients."""

    queries: Tensor
    entities: Tensor
    of_queries: Tensor
    of_entities: Tensor


def on_host(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a native ``kernel`` of the host with :func:`views` and :func:`pool`; returns its
    result."""
    return kernel(*views(*arguments), pool())


def views(*arguments: Any) -> list[Any]:
    """``arguments``, with a NumPy view in place of each tensor, which :func:`takes` accepts. A view
    enters native code in 1 us, a tensor in 10 us."""
    return [each.numpy() if isinstance(each, Tensor) else each for each in arguments]


def place(tensor: Tensor) -> dict[str, Any]:
    """The device number, and torch's current stream on it; the twin's for a tensor of the host."""
    if tensor.device.type == "cpu":
        return {"device": native.TWIN, "stream": 0}
    stream = torch.cuda.current_stream(tensor.device).cuda_stream
    return {"device": tensor.device.index, "stream": stream}


def takes(tensor: Tensor) -> bool:
    """True if kernels of the host accept ``tensor``: float32 in host memory. Others go through
    torch."""
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


def pool() -> native.ThreadPool:
    """The thread pool of this process, with as many threads as torch has."""
    return _pool_of(torch.get_num_threads(), os.getpid())


@functools.cache
def _pool_of(num_threads: int, _process: int) -> native.ThreadPool:
    return native.ThreadPool(num_threads)
