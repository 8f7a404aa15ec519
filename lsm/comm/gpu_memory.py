"""Batches in GPU memory that ranks of one machine map from each other, so that an owner's kernel
writes rows to their places. The twin on the host uses shared memory."""

from __future__ import annotations

import torch

from lsm import native
from lsm.comm.shared_memory import MappedBlocks
from lsm.core.device import GpuPlace, current


class GpuPeerMemory:
    """This rank's batches, in a pool of ``pool_bytes`` of GPU memory that is allocated once, and
    the batches of peers. Used by one thread at a time; any thread may release tensors."""

    def __init__(self, gpu: GpuPlace, pool_bytes: int, timeout_secs: float) -> None:
        self._device, self._index = gpu.device, gpu.number
        self._pool = native.GpuPool(self._index, pool_bytes, timeout_secs)
        self._mapped = MappedBlocks()

    @property
    def num_bytes(self) -> int:
        """Memory of the pool. It grows where batches that are still held leave no room."""
        return self._pool.size

    def take(self, num_rows: int, dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, list[int]]:
        """Memory for rows [num_rows, dim], not initialised, and its address for peers.

        The memory is reused once no tensor refers to it and the default stream has passed its last
        use. Precondition: no peer writes to it by then."""
        buffer = self._pool.take(num_rows * dim * dtype.itemsize)
        address = [buffer.number, buffer.offset, buffer.block_bytes, num_rows, *buffer.handle]
        if num_rows == 0:
            return torch.empty(0, dim, dtype=dtype, device=self._device), address
        with current(self._device):
            return native.as_device_tensor(buffer, dtype).view(num_rows, dim), address

    def unmap(self) -> None:
        """Unmaps the memory of peers; best done before they free it."""
        self._mapped.clear()

    def batch_of(self, peer: int, address: list[int], dim: int, dtype: torch.dtype) -> torch.Tensor:
        """The rows at an address that ``peer`` sent: [n, dim], on this rank's GPU as far as torch
        knows. Raises OSError or RuntimeError if they cannot be mapped."""
        number, offset, block_bytes, num_rows, *handle = address
        block = self._mapped.get(
            peer, number, lambda: native.MappedBlock(self._index, handle, block_bytes)
        )
        with current(self._device):
            part = torch.from_dlpack(block.part(offset, num_rows * dim * dtype.itemsize))
        return part.view(dtype).view(num_rows, dim)
