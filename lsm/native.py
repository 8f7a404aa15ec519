"""The only importer of the native module ``lsm._core``.

Tensors go in as DLPack (torch or NumPy, host memory); memory comes out as ``HostBuffer`` objects,
which torch wraps without a copy.
"""

from __future__ import annotations

import torch

try:
    import lsm._core as _core
    from lsm._core import *  # noqa: F403 (all of it; lsm/_core.pyi lists the names)
except ImportError as error:
    raise RuntimeError(
        f"the native module lsm._core cannot be imported ({error}); "
        "build it with `pip install .` or `make build`"
    ) from error


def as_tensor(
    buffer: _core.HostBuffer
    | _core.LockedBlock
    | _core.LockedBuffer
    | _core.PeerBlock
    | _core.PlanArray
    | _core.SharedBuffer,
    dtype: torch.dtype,
    count: int = -1,
) -> torch.Tensor:
    """The first ``count`` elements of ``buffer`` (-1: all) as a 1-D tensor of ``dtype``, without a
    copy.

    The tensor's storage holds the buffer. Its memory returns to the pool when the last tensor that
    shares the storage is freed.
    """
    if buffer.size == 0 or count == 0:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype, count=count)


def as_device_tensor(buffer: _core.GpuBuffer, dtype: torch.dtype) -> torch.Tensor:
    """As as_tensor(), for memory of a GpuPool: a tensor on the pool's GPU, or on the host for the
    twin. The pool reuses the memory after the default stream's last use."""
    return torch.from_dlpack(buffer.__dlpack__()).view(dtype)
