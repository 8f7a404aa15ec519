"""Memory of the batches that an exchange delivers: of the host or of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch

from lsm import native
from lsm.comm.gpu_memory import GpuPeerMemory
from lsm.comm.request import NO_PLACES, Request, RowFormat
from lsm.comm.shared_memory import PeerMemory, SharedBatch
from lsm.core.device import GpuPlace, current, empty_rows, memory_errors
from lsm.core.stream_pool import allocated

_IDLE_BYTES = 512 << 20
_NO_ROWS = (0, torch.uint8)  # dim and dtype of a SharedBatch with positions only


class Batches(Protocol):
    """Memory of batches. Unpacks rows into them. Used by one thread at a time."""

    format: RowFormat

    @property
    def num_bytes(self) -> int:
        """GPU memory of the batches."""

    def take(self, request: Request, *, is_shared: bool) -> SharedBatch:
        """Memory for the rows of ``request``; peers can map it if ``is_shared``."""

    def at(
        self, peer: int, values: Sequence[int], payload: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows and positions of the batch whose address ``peer`` sent. Raises OSError if the batch
        is gone."""

    def message_rows(self, num_rows: int) -> torch.Tensor:
        """Host memory for rows of a message."""

    def unpack(self, piece: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> None:
        """Starts copying row k of ``piece`` to row ``places[k]`` of ``rows``; settle() awaits
        it."""

    def settle(self) -> None:
        """Raises TimeoutError. Blocks until all copies have ended."""


class HostBatches:
    """Batches in host memory."""

    num_bytes = 0

    def __init__(self, rows: RowFormat, num_threads: int = 1) -> None:
        self.format = rows
        self._memory = PeerMemory(_IDLE_BYTES)
        self._threads = native.ThreadPool(num_threads)

    def take(self, request: Request, *, is_shared: bool) -> SharedBatch:
        """As Batches.take()."""
        if is_shared:
            batch = self._memory.take(request.num_rows, self.format.dim, self.format.dtype)
            batch.positions.copy_(request.positions)
            return batch
        return SharedBatch(self.message_rows(request.num_rows), request.positions, [])

    def at(
        self, peer: int, values: Sequence[int], payload: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As Batches.at()."""
        del payload
        return self._memory.batch_of(peer, values, self.format.dim, self.format.dtype)

    def message_rows(self, num_rows: int) -> torch.Tensor:
        """As Batches.message_rows()."""
        return torch.empty(num_rows, self.format.dim, dtype=self.format.dtype)

    def unpack(self, piece: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> None:
        """As Batches.unpack(), complete on return."""
        native.scatter_rows(piece, NO_PLACES, rows, places, self._threads)

    def settle(self) -> None:
        """Does nothing."""


class GpuBatches:
    """Batches in memory of ``gpu``.

    pool_bytes: GPU memory for this rank's batches, allocated at once.
    """

    def __init__(
        self, rows: RowFormat, gpu: GpuPlace, pool_bytes: int, timeout_secs: float
    ) -> None:
        self.format = rows
        self._gpu, self._device = gpu, gpu.device
        self._memory = GpuPeerMemory(gpu, pool_bytes, timeout_secs)
        self._positions = PeerMemory(_IDLE_BYTES)
        self._copies = native.GpuScatter(gpu.number, timeout_secs)
        self._pieces: list[torch.Tensor] = []  # in use until settle()

    @property
    def num_bytes(self) -> int:
        """As Batches.num_bytes."""
        return self._memory.num_bytes

    def take(self, request: Request, *, is_shared: bool) -> SharedBatch:
        """As Batches.take()."""
        rows, address = self._memory.take(request.num_rows, self.format.dim, self.format.dtype)
        if not is_shared:
            return SharedBatch(rows, request.positions, [])
        shared = self._positions.take(request.num_rows, *_NO_ROWS)
        shared.positions.copy_(request.positions)
        return SharedBatch(rows, shared.positions, shared.address, torch.tensor(address))

    def at(
        self, peer: int, values: Sequence[int], payload: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As Batches.at(); ``payload``: the address of the rows, apart from the positions."""
        assert payload is not None, "take() gives shared batches a payload"
        address = payload.view(torch.int64).tolist()
        rows = self._memory.batch_of(peer, address, self.format.dim, self.format.dtype)
        _, positions = self._positions.batch_of(peer, values, *_NO_ROWS)
        return rows, positions

    def message_rows(self, num_rows: int) -> torch.Tensor:
        """As Batches.message_rows(), page-locked."""
        if self._gpu.is_twin:
            return torch.empty(num_rows, self.format.dim, dtype=self.format.dtype)
        return empty_rows(num_rows, self.format.dim, self.format.dtype)

    def device_rows(self, num_rows: int) -> torch.Tensor:
        """GPU memory for rows of a message."""
        shape = num_rows, self.format.dim
        with self.stream(), memory_errors("for rows on their way between ranks"):
            return allocated(
                lambda: torch.empty(shape, dtype=self.format.dtype, device=self._device)
            )

    def unpack(self, piece: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> None:
        """As Batches.unpack()."""
        self._pieces.append(piece)
        with current(self._device):
            self._copies.scatter(piece, NO_PLACES, rows, places)

    def settle(self) -> None:
        """As Batches.settle(). No memory may be reused before: its next user writes in another
        stream."""
        with current(self._device):
            self._copies.synchronize()
        self._pieces.clear()

    def stream(self) -> AbstractContextManager:
        """A context in which the stream that unpacks rows is the current one."""
        if self._gpu.is_twin:
            return nullcontext()
        return torch.cuda.stream(
            torch.cuda.ExternalStream(self._copies.stream, device=self._device)
        )
