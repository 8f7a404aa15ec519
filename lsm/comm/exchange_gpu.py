"""The exchange between ranks whose caches are GPU memory (lsm.comm.exchange, with rows on devices).

Ids and messages go through the host, as there. Rows go from GPU to GPU: with ``ipc`` the owner's
kernel writes them to their places in the requester's batch; with ``nccl`` it packs them, NCCL moves
them, and another kernel unpacks them; with ``gloo`` they are packed into page-locked host memory,
sent as messages, and unpacked from there.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as torch_dist

from lsm import native
from lsm.comm.exchange import Delivery, Exchange, Request, RowFormat, RowTarget
from lsm.comm.gpu_memory import DeviceBatches
from lsm.comm.group import CacheGroup
from lsm.comm.links import find_links
from lsm.comm.messages import Message
from lsm.comm.owners import OwnerMap
from lsm.comm.shared_memory import NUM_ADDRESS_WORDS, SharedBatch
from lsm.core.device import current, empty_rows, memory_errors
from lsm.distributed.watchdog import PeerError

_NONE = torch.empty(0, dtype=torch.int32)
_NO_ROWS = (0, torch.uint8)  # dim and dtype of a SharedBatch that has positions only


class DeviceExchange(Exchange):
    """An Exchange whose batches are memory of ``device``; the host stands for a GPU in tests.

    pool_bytes: GPU memory for this rank's batches, allocated at once. Whoever fills targets() lets
    finish() be called only when their rows have arrived, as peers will read them. Where rows come
    over NCCL, a wait for them that takes too long names all that they come from.
    """

    def __init__(
        self,
        group: CacheGroup,
        owners: OwnerMap,
        rows: RowFormat,
        num_threads: int = 1,
        *,
        device: torch.device,
        pool_bytes: int,
    ) -> None:
        self._device = device
        super().__init__(group, owners, rows, num_threads)
        index = native.TWIN if device.type == "cpu" else device.index
        self._batches = DeviceBatches(device, pool_bytes, self.timeout_secs)
        self._unpacking = native.DeviceDelivery(index, self.timeout_secs)
        self._pieces: list[torch.Tensor] = []  # that are being unpacked

    @property
    def device_bytes(self) -> int:
        """GPU memory of the batches."""
        return self._batches.num_bytes

    def _find_links(self, group: CacheGroup) -> dict[int, str]:
        links = find_links(group, self._device)
        self._nccl = links.nccl
        return links.by_peer

    def _take_batch(self, request: Request) -> SharedBatch:
        rows, address = self._batches.take(request.num_rows, self._rows.dim, self._rows.dtype)
        if not self._written:
            return SharedBatch(rows, request.positions, [])
        shared = self._memory.take(request.num_rows, *_NO_ROWS)
        shared.positions.copy_(request.positions)
        return SharedBatch(rows, shared.positions, shared.address, torch.tensor(address))

    def _message_rows(self, peer: int, num_rows: int) -> torch.Tensor:
        if self._device.type == "cpu":
            return super()._message_rows(peer, num_rows)
        if self._links[peer] == "gloo":
            return empty_rows(num_rows, self._rows.dim, self._rows.dtype)
        with self._in_stream(), memory_errors("for rows on their way between ranks"):
            shape = num_rows, self._rows.dim
            return torch.empty(shape, dtype=self._rows.dtype, device=self._device)

    def _target_at(self, peer: int, asked: torch.Tensor, ready: Message) -> RowTarget:
        address = ready.payload.view(torch.int64).tolist()
        try:
            rows = self._batches.batch_of(peer, address, self._rows.dim, self._rows.dtype)
            _, positions = self._memory.batch_of(peer, ready.values, *_NO_ROWS)
        except OSError as error:
            name = self._rows_stream.name(peer)
            raise PeerError(f"{name} ended before its rows were written: {error}") from error
        first = ready.values[NUM_ADDRESS_WORDS]
        return RowTarget(asked, rows, positions[first : first + len(asked)])

    def _swap(self, delivery: Delivery) -> None:
        if not delivery.packed:
            return
        grouped = [peer for peer in delivery.packed if self._links[peer] == "nccl"]
        chunked = [peer for peer in delivery.packed if self._links[peer] != "nccl"]
        with current(self._device):
            self._swap_grouped(delivery, grouped)
            self._swap_chunks(delivery, chunked)
            self._finish_unpacking(delivery, grouped)

    def _swap_grouped(self, delivery: Delivery, peers: list[int]) -> None:
        """Exchanges rows with ``peers`` as tensors of whole lists, all at once. The peers have said
        that they are about to do the same."""
        request, operations, received = delivery.request, [], {}
        for peer in peers:
            if len(delivery.packed[peer]):
                operations.append((torch_dist.isend, delivery.packed[peer], peer))
            if len(request.asked_of(peer)):
                received[peer] = self._message_rows(peer, len(request.asked_of(peer)))
                operations.append((torch_dist.irecv, received[peer], peer))
        if not operations:
            return
        calls = [
            torch_dist.P2POp(how, tensor, torch_dist.get_global_rank(self._nccl, peer), self._nccl)
            for how, tensor, peer in operations
        ]
        try:
            with self._in_stream():
                for work in torch_dist.batch_isend_irecv(calls):
                    work.wait()  # with NCCL, the stream waits
        except RuntimeError as error:
            names = ", ".join(map(self._rows_stream.name, peers))
            raise PeerError(
                f"rows of iteration {request.iteration} were not exchanged with {names}: {error}"
            ) from error
        for peer, rows in received.items():
            self._unpack(rows, delivery.batch.rows, request.asked_of(peer))

    def _unpack(self, piece: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> None:
        self._pieces.append(piece)
        self._unpacking.deliver(piece, _NONE, rows, places)

    def _finish_unpacking(self, delivery: Delivery, peers: list[int]) -> None:
        """Waits until rows have left and arrived. Before that no memory may be used again: whoever
        writes to it does so in another stream."""
        try:
            self._unpacking.synchronize()
        except TimeoutError as error:
            names = ", ".join(map(self._rows_stream.name, peers or delivery.packed))
            raise TimeoutError(
                f"the rows of iteration {delivery.request.iteration} from {names} did not arrive "
                f"within {self.timeout_secs:g} s (comm.timeout_secs): {error}"
            ) from error
        self._pieces.clear()

    def _in_stream(self) -> AbstractContextManager:
        """Makes the stream that unpacks rows the current one, inside."""
        if self._device.type == "cpu":
            return nullcontext()
        return torch.cuda.stream(
            torch.cuda.ExternalStream(self._unpacking.stream, device=self._device)
        )
