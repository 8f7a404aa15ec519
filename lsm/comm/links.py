"""Links, over which rows travel from their owner to a requester.

Over ``shm`` and ``ipc`` the owner writes rows to their places in the requester's batch, in host or
GPU memory that both have mapped. Over ``nccl`` and ``gloo`` it packs them into a message, which the
requester unpacks. One link serves all the peers that link_choice gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as torch_dist

from lsm.comm.batches import Batches, GpuBatches, HostBatches
from lsm.comm.messages import Kind, Message, MessageStream
from lsm.comm.request import NO_PLACES, Delivery, RowTarget
from lsm.comm.shared_memory import NUM_ADDRESS_WORDS
from lsm.distributed.watchdog import PeerError

Ready = tuple[Sequence[int], torch.Tensor | None]
"""Numbers and payload of the message with which a requester announces that it takes rows."""


# A part of a message in flight: the peer, the work, its rows, and on the receiver their places.
_Part = tuple[int, torch_dist.Work, torch.Tensor, torch.Tensor | None]


class Link(Protocol):
    """The exchange of rows with ``peers``. Used by one thread at a time."""

    name: str
    peers: list[int]
    needs_shared_batch: bool
    """True if peers write into this rank's batch."""

    def ready(self, delivery: Delivery, peer: int) -> Ready:
        """Prepares for rows from ``peer``. Returns the message that lets it send them."""

    def target(self, delivery: Delivery, peer: int, ready: Message) -> RowTarget | None:
        """The place for the rows that ``peer`` requested; None if there are none. ``ready``: the
        message that the peer's ready() returned."""

    def swap(self, delivery: Delivery) -> None:
        """Exchanges the rows that travel as messages. Precondition: all targets are filled."""


class ShmLink:
    """Links ranks of one machine: owners write rows to the requester's batch in host memory."""

    name = "shm"
    needs_shared_batch = True

    def __init__(self, peers: list[int], batches: HostBatches) -> None:
        self.peers = peers
        self._batches = batches

    def ready(self, delivery: Delivery, peer: int) -> Ready:
        """As Link.ready(): the address of the batch."""
        return _address(delivery, peer)

    def target(self, delivery: Delivery, peer: int, ready: Message) -> RowTarget | None:
        """As Link.target(): places in the batch of ``peer``."""
        return _written_target(self._batches, delivery, peer, ready)

    def swap(self, delivery: Delivery) -> None:
        """Does nothing: the rows are where they belong."""


class IpcLink:
    """Links GPUs of one machine: the owner's kernel writes rows to the requester's batch."""

    name = "ipc"
    needs_shared_batch = True

    def __init__(self, peers: list[int], batches: GpuBatches, stream: MessageStream) -> None:
        self.peers = peers
        self._batches = batches
        self._stream = stream

    def ready(self, delivery: Delivery, peer: int) -> Ready:
        """As Link.ready(): the address of the batch."""
        return _address(delivery, peer)

    def target(self, delivery: Delivery, peer: int, ready: Message) -> RowTarget | None:
        """As Link.target(): places in the batch of ``peer``. Raises PeerError if the batch is
        gone."""
        try:
            return _written_target(self._batches, delivery, peer, ready)
        except OSError as error:
            name = self._stream.name(peer)
            raise PeerError(f"{name} ended before its rows were written: {error}") from error

    def swap(self, delivery: Delivery) -> None:
        """Does nothing: the rows are where they belong."""


class GlooLink:
    """Sends rows as messages through host memory, in pieces of ``chunk_rows``. Pieces are unpacked
    while others travel. ``timeout_secs``: comm.timeout_secs, for errors."""

    name = "gloo"
    needs_shared_batch = False

    def __init__(
        self,
        peers: list[int],
        batches: Batches,
        stream: MessageStream,
        chunk_rows: int,
        timeout_secs: float,
    ) -> None:
        self.peers = peers
        self._batches = batches
        self._stream = stream
        self._chunk_rows = chunk_rows
        self._timeout_secs = timeout_secs

    def ready(self, delivery: Delivery, peer: int) -> Ready:
        """As Link.ready(): takes memory for the rows that go to ``peer``."""
        asked = delivery.request.asked_by(peer)
        delivery.packed[peer] = self._batches.message_rows(len(asked))
        return (), None

    def target(self, delivery: Delivery, peer: int, ready: Message) -> RowTarget | None:
        """As Link.target(): the message's memory."""
        del ready
        return _packed_target(delivery, peer)

    def swap(self, delivery: Delivery) -> None:
        """As Link.swap(). Raises PeerError, or TimeoutError, which names a rank."""
        request, chunk = delivery.request, self._chunk_rows
        pending: list[_Part] = []
        sizes = [
            max(len(request.asked_by(peer)), len(request.asked_of(peer))) for peer in self.peers
        ]
        for begin in range(0, max(sizes), chunk):
            under_way: list[_Part] = []
            for peer in self.peers:
                packed = delivery.packed[peer][begin : begin + chunk]
                places = request.asked_of(peer)[begin : begin + chunk]
                if len(packed):
                    work = self._stream.send_part(peer, packed)
                    under_way.append((peer, work, packed, None))
                if len(places):
                    piece = self._batches.message_rows(len(places))
                    work = self._stream.receive_part(peer, piece)
                    under_way.append((peer, work, piece, places))
            self._finish(delivery, pending)
            pending = under_way
        self._finish(delivery, pending)
        _settle(self._batches, self._stream, delivery, self.peers, self._timeout_secs)

    def _finish(self, delivery: Delivery, pending: list[_Part]) -> None:
        for peer, work, piece, places in pending:
            self._stream.finish_part(peer, work, Kind.ROWS, delivery.request.iteration)
            if places is not None:
                self._batches.unpack(piece, delivery.batch.rows, places)


class NcclLink:
    """Sends rows as messages from GPU to GPU by NCCL: whole lists, to and from all peers at once.

    ``group``: torch's, of all ranks of the cache group. ``timeout_secs``: comm.timeout_secs. A
    TimeoutError names all peers, because NCCL does not tell which of them is late.
    """

    name = "nccl"
    needs_shared_batch = False

    def __init__(
        self,
        peers: list[int],
        batches: GpuBatches,
        stream: MessageStream,
        group: torch_dist.ProcessGroup,
        timeout_secs: float,
    ) -> None:
        self.peers = peers
        self._batches = batches
        self._stream = stream
        self._group = group
        self._timeout_secs = timeout_secs

    def ready(self, delivery: Delivery, peer: int) -> Ready:
        """As Link.ready(): takes memory for the rows that go to ``peer``."""
        asked = delivery.request.asked_by(peer)
        delivery.packed[peer] = self._batches.device_rows(len(asked))
        return (), None

    def target(self, delivery: Delivery, peer: int, ready: Message) -> RowTarget | None:
        """As Link.target(): the message's memory."""
        del ready
        return _packed_target(delivery, peer)

    def swap(self, delivery: Delivery) -> None:
        """As Link.swap(). A collective of the peers. Raises PeerError, TimeoutError."""
        request, received = delivery.request, {}
        operations: list[tuple[Callable[..., Any], torch.Tensor, int]] = []
        for peer in self.peers:
            if len(delivery.packed[peer]):
                operations.append((torch_dist.isend, delivery.packed[peer], peer))
            if len(request.asked_of(peer)):
                received[peer] = self._batches.device_rows(len(request.asked_of(peer)))
                operations.append((torch_dist.irecv, received[peer], peer))
        if operations:
            self._run(operations, request.iteration)
        for peer, rows in received.items():
            self._batches.unpack(rows, delivery.batch.rows, request.asked_of(peer))
        _settle(self._batches, self._stream, delivery, self.peers, self._timeout_secs)

    def _run(self, operations: list[tuple], iteration: int) -> None:
        calls = [
            torch_dist.P2POp(how, rows, torch_dist.get_global_rank(self._group, peer), self._group)
            for how, rows, peer in operations
        ]
        try:
            with self._batches.stream():
                for work in torch_dist.batch_isend_irecv(calls):
                    work.wait()  # NCCL: the stream waits, not the host
        except RuntimeError as error:
            names = ", ".join(map(self._stream.name, self.peers))
            raise PeerError(
                f"rows of iteration {iteration} were not exchanged with {names}: {error}"
            ) from error


def _address(delivery: Delivery, peer: int) -> Ready:
    batch = delivery.batch
    return [*batch.address, delivery.request.starts[peer]], batch.rows_address


def _written_target(
    batches: Batches, delivery: Delivery, peer: int, ready: Message
) -> RowTarget | None:
    asked = delivery.request.asked_by(peer)
    if not len(asked):
        return None
    rows, positions = batches.at(peer, ready.values, ready.payload)
    first = ready.values[NUM_ADDRESS_WORDS]
    return RowTarget(asked, rows, positions[first : first + len(asked)])


def _packed_target(delivery: Delivery, peer: int) -> RowTarget:
    return RowTarget(delivery.request.asked_by(peer), delivery.packed[peer], NO_PLACES)


def _settle(
    batches: Batches,
    stream: MessageStream,
    delivery: Delivery,
    peers: list[int],
    timeout_secs: float,
) -> None:
    """Raises TimeoutError, which names ``peers``. Blocks until rows have left and arrived."""
    try:
        batches.settle()
    except TimeoutError as error:
        names = ", ".join(map(stream.name, peers))
        raise TimeoutError(
            f"the rows of iteration {delivery.request.iteration} from {names} did not arrive "
            f"within {timeout_secs:g} s (comm.timeout_secs): {error}"
        ) from error
