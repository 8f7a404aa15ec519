"""The only importer of the native module ``lsm._core``.

Tensors go in as DLPack (torch or NumPy, host memory); memory comes out as ``Buffer`` objects that
torch wraps without a copy.
"""

from __future__ import annotations

import torch

try:
    from lsm import _core
except ImportError as error:
    raise RuntimeError(
        f"the native module lsm._core cannot be imported ({error}); "
        "build it with `pip install .` or `make build`"
    ) from error

Buffer = _core.Buffer
BufferPool = _core.BufferPool
DirectMode = _core.DirectMode
Fault = _core.Fault
NeighborSampler = _core.NeighborSampler
SampledSubgraph = _core.SampledSubgraph
ThreadPool = _core.ThreadPool
batch_key = _core.batch_key
build_info = _core.build_info
count_degrees = _core.count_degrees
fill_csc = _core.fill_csc
draw_lanes = _core.draw_lanes
draw_positions = _core.draw_positions
gather_rows = _core.gather_rows
in_degree = _core.in_degree
io_uring_problem = _core.io_uring_problem
open_storage = _core.open_storage
philox4x32 = _core.philox4x32
reverse_pagerank = _core.reverse_pagerank

__all__ = [
    "Buffer",
    "BufferPool",
    "DirectMode",
    "Fault",
    "NeighborSampler",
    "SampledSubgraph",
    "ThreadPool",
    "as_tensor",
    "batch_key",
    "build_info",
    "count_degrees",
    "draw_lanes",
    "draw_positions",
    "fill_csc",
    "gather_rows",
    "in_degree",
    "io_uring_problem",
    "open_storage",
    "philox4x32",
    "reverse_pagerank",
    "unique_relabel",
]


def as_tensor(buffer: Buffer, dtype: torch.dtype) -> torch.Tensor:
    """The bytes of ``buffer`` as a 1-D tensor of ``dtype``, without a copy.

    The tensor's storage holds the buffer; its memory returns to the pool when the last tensor that
    shares the storage is gone.
    """
    if buffer.size == 0:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype)


def unique_relabel(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The distinct values of ``ids`` [n] int64 in first-seen order, and the inverse [n] int64.

    ``unique[inverse]`` equals ``ids``. Unlike ``torch.unique`` it does not sort.
    """
    unique = torch.empty(len(ids) + 1, dtype=torch.int64)
    inverse = torch.empty(len(ids), dtype=torch.int64)
    count = _core.unique_relabel(ids, unique, inverse)
    return unique[:count], inverse
