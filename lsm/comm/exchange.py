"""The exchange between ranks that makes their caches one (DESIGN sections 3 and 4).

Requests go to the owners a window of iterations ahead; each owner merges what it is asked for, in
rank order, into one list without repeats. It writes the rows, from where its cache has them, to
where they are wanted: to their places in the requesters' batches, in shared memory, or into
messages that requesters unpack by the inverse permutation. ``lsm.reference.comm`` is the same in
plain collectives.

Where we differ from LSM-GNN, section 4.1: no global barrier. A rank waits for the messages that it
needs, ids and rows on streams of their own, so that ids pass while rows are awaited.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from lsm import native
from lsm.comm.group import NEEDS_GPU, CacheGroup
from lsm.comm.messages import Kind, Message, PeerLeftError
from lsm.comm.owners import OwnerMap
from lsm.comm.shared_memory import NUM_ADDRESS_WORDS, PeerMemory, SharedBatch
from lsm.core.counters import EXCHANGED
from lsm.distributed.watchdog import PeerError

WRITTEN = ("shm", "ipc")
"""Transports with which an owner writes into the requester's batch."""

_NONE = torch.empty(0, dtype=torch.int32)
_NO_IDS = torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True)
class RowFormat:
    """What a row is: ``dim`` values of ``dtype``."""

    dim: int
    dtype: torch.dtype

    @property
    def row_bytes(self) -> int:
        return self.dim * self.dtype.itemsize


@dataclass(frozen=True)
class Request:
    """The ids of one iteration, seen from one rank.

    As requester: it asked for ``num_rows`` rows; owner r has those at
    ``positions[starts[r] : starts[r + 1]]`` ([num_rows] int32). As owner: it fetches ``ids``
    ([u] int64, in request order; rank r's list adds ``ids[rank_starts[r] : rank_starts[r + 1]]``)
    and gives rank r the rows ``row_of[list_starts[r] : list_starts[r + 1]]`` of them, in order.
    """

    iteration: int
    num_rows: int
    positions: torch.Tensor
    starts: list[int]
    ids: torch.Tensor
    rank_starts: torch.Tensor
    row_of: torch.Tensor
    list_starts: list[int]
    stats: dict[str, float] = field(compare=False)
    """EXCHANGED, comm_secs and comm_wait_secs (lsm.core.counters); final after finish()."""

    def asked_of(self, owner: int) -> torch.Tensor:
        """Where rows of ``owner`` belong in the batch."""
        return self.positions[self.starts[owner] : self.starts[owner + 1]]

    def asked_by(self, requester: int) -> torch.Tensor:
        """The rows for ``requester``, in the order in which it asked."""
        return self.row_of[self.list_starts[requester] : self.list_starts[requester + 1]]


class RowTarget(NamedTuple):
    """Where an owner puts the rows that one rank asked it for: row ``row_of[k]`` of the request's
    ids ([n] int32) goes to row ``places[k]`` ([n] int32; empty: k) of ``rows`` ([m, dim])."""

    row_of: torch.Tensor
    rows: torch.Tensor
    places: torch.Tensor


@dataclass(frozen=True)
class Delivery:
    """A request whose rows are on their way. ``packed``: what goes to ranks as messages, by rank;
    row k is the k-th that the rank asked for."""

    request: Request
    batch: SharedBatch
    packed: dict[int, torch.Tensor]


class Exchange:
    """One rank's part in the exchange. All ranks of ``group`` must call request(), then open(),
    targets() and finish(), for the same iterations in the same order. request() may run ahead on a
    thread of its own; the others belong to one thread.

    Errors, from any of them: PeerError (another rank failed or left), TimeoutError naming a rank.
    """

    def __init__(
        self, group: CacheGroup, owners: OwnerMap, rows: RowFormat, num_threads: int = 1
    ) -> None:
        options = group.options
        self.rank, self.size = group.rank, group.size
        self.timeout_secs = options.timeout_secs
        self._owners = owners
        self._rows = rows
        self._threads = native.ThreadPool(num_threads)
        self._ids_stream, self._rows_stream = group.ids, group.rows
        self._local = group.rows.local
        self._memory = PeerMemory(idle_bytes=512 << 20)
        self._lists = group.lists
        self._links = self._find_links(group)
        self._written = [peer for peer, how in self._links.items() if how in WRITTEN]
        self._chunk_rows = max(1, options.chunk_bytes // max(1, rows.row_bytes))
        self._num_requests = 0  # of this session
        self._asking = threading.Lock()
        self._left = False

    @property
    def transports(self) -> dict[int, str]:
        """How rows travel, by rank of the group."""
        return dict(self._links)

    def request(self, ids: torch.Tensor) -> Request:
        """Asks the owners for ``ids`` ([n] int64) and learns what this rank is asked for. Blocks
        until every rank has made its request of this iteration."""
        start, waited = time.perf_counter(), self._ids_stream.wait_secs
        iteration = self._num_requests
        memory, address = self._lists.take(len(ids)) if self._local else (None, [])
        bucketed, positions, starts = self._owners.bucket(ids, self._threads, out=memory)
        with self._asking:
            if self._left:
                raise PeerLeftError("this rank has left the epoch")
            for peer in self._ids_stream.peers:
                begin, end = starts[peer], starts[peer + 1]
                if peer in self._local:
                    self._ids_stream.send(peer, Kind.IDS, iteration, [*address, begin, end])
                else:
                    self._ids_stream.send(peer, Kind.IDS, iteration, payload=bucketed[begin:end])
            self._num_requests += 1
        messages = self._ids_stream.receive(Kind.IDS, iteration)
        self._ids_stream.settle(iteration)
        self._lists.forget_older()  # who asks for this iteration has read what came before
        lists = [
            bucketed[starts[rank] : starts[rank + 1]]
            if rank == self.rank
            else self._list_of(rank, messages[rank])
            for rank in range(self.size)
        ]
        merged, rank_starts, row_of, list_starts = merge_lists(lists)
        wait_secs = self._ids_stream.wait_secs - waited
        own = starts[self.rank + 1] - starts[self.rank]
        stats: dict[str, float] = dict.fromkeys(EXCHANGED, 0)
        stats["duplicates"] = len(row_of) - len(merged)
        stats["ids_sent_bytes"] = 8 * (len(ids) - own)
        stats["comm_wait_secs"] = wait_secs
        stats["comm_secs"] = time.perf_counter() - start - wait_secs
        return Request(
            iteration, len(ids), positions, starts, merged, rank_starts, row_of, list_starts, stats
        )

    def open(self, request: Request) -> Delivery:
        """Memory for the rows of ``request``, the oldest one not opened yet; peers are told that
        they may write there."""
        start, waited = time.perf_counter(), self._rows_stream.wait_secs
        # Before memory is used again that peers may still write to, from a session that was left.
        self._rows_stream.begin()
        batch = self._take_batch(request)
        packed = {}
        for peer in self._rows_stream.peers:
            where = ()
            if peer in self._written:
                where = [*batch.address, request.starts[peer]], batch.rows_address
            else:
                packed[peer] = self._message_rows(peer, len(request.asked_by(peer)))
            self._rows_stream.send(peer, Kind.READY, request.iteration, *where)
        self._count_time(request, start, waited)
        return Delivery(request, batch, packed)

    def targets(self, delivery: Delivery) -> list[RowTarget]:
        """Where the ranks want the rows that they asked this one for; its own are the first. Blocks
        until they are ready."""
        request = delivery.request
        start, waited = time.perf_counter(), self._rows_stream.wait_secs
        ready = self._rows_stream.receive(Kind.READY, request.iteration)
        self._rows_stream.settle(request.iteration)
        own = request.asked_by(self.rank), delivery.batch.rows, request.asked_of(self.rank)
        targets = [RowTarget(*own)]
        for peer in self._rows_stream.peers:
            asked = request.asked_by(peer)
            if peer not in self._written:
                targets.append(RowTarget(asked, delivery.packed[peer], _NONE))
            elif len(asked):
                targets.append(self._target_at(peer, asked, ready[peer]))
        self._count_time(request, start, waited)
        return targets

    def finish(self, delivery: Delivery) -> torch.Tensor:
        """To be called when all targets() are filled. Returns this rank's batch, complete:
        [request.num_rows, dim]."""
        request, stream = delivery.request, self._rows_stream
        start, waited = time.perf_counter(), stream.wait_secs
        for peer in stream.peers:
            stream.send(peer, Kind.ROWS, request.iteration)
        stream.receive(Kind.ROWS, request.iteration)
        self._swap(delivery)
        sent = len(request.row_of) - len(request.asked_by(self.rank))
        request.stats["rows_sent_bytes"] = sent * self._rows.row_bytes
        self._count_time(request, start, waited)
        return delivery.batch.rows

    def leave(self) -> None:
        """Says that this rank makes no more requests in this session. From any thread, without
        blocking; a request() under way may fail."""
        with self._asking:
            if not self._left:
                self._left = True
                self._ids_stream.end()

    def end_session(self) -> None:
        """Ends the session, as every rank does at some time; the next starts afresh. No request(),
        open(), targets() or finish() may be under way."""
        self.leave()
        self._rows_stream.end()
        self._num_requests = 0
        self._left = False

    def flush(self) -> None:
        """Waits until the peers have what they were sent; for a rank that has done all that it was
        asked for and may go now."""
        self._ids_stream.flush()
        self._rows_stream.flush()

    def fail(self, error: BaseException) -> None:
        """Tells all ranks what went wrong on this one; from any thread. If it was this rank's own
        doing, that waits until they know: they are sure to ask for rows."""
        self._ids_stream.fail(error, wait=False)
        self._rows_stream.fail(error, wait=not isinstance(error, PeerError))

    def _list_of(self, peer: int, message: Message) -> torch.Tensor:
        """The ids that ``peer`` asks for."""
        if peer not in self._local:
            payload = message.payload
            return _NO_IDS if payload is None else payload.view(torch.int64)
        *address, begin, end = message.values
        try:
            return self._lists.list_of(peer, address)[begin:end]
        except OSError as error:
            name = self._ids_stream.name(peer)
            raise PeerError(f"{name} ended before its ids were read: {error}") from error

    def _find_links(self, group: CacheGroup) -> dict[int, str]:
        """How rows are to travel, by rank of the group. RuntimeError if they cannot as the options
        say."""
        transport = group.options.transport
        if transport in NEEDS_GPU:
            raise RuntimeError(
                f"comm.transport={transport}: moves rows between GPUs, and this cache is host "
                "memory; set device=cuda, or comm.transport=auto"
            )
        links = {peer: "shm" if peer in self._local else "gloo" for peer in group.rows.peers}
        if transport == "shm" and "gloo" in links.values():
            names = ", ".join(group.rows.name(peer) for peer in links if peer not in self._local)
            raise RuntimeError(
                f"comm.transport=shm: memory cannot be shared with {names}: not on this host, or "
                "in another process namespace; set comm.transport=auto"
            )
        return links

    def _take_batch(self, request: Request) -> SharedBatch:
        if self._written:
            batch = self._memory.take(request.num_rows, self._rows.dim, self._rows.dtype)
            batch.positions.copy_(request.positions)
            return batch
        rows = torch.empty(request.num_rows, self._rows.dim, dtype=self._rows.dtype)
        return SharedBatch(rows, request.positions, [])

    def _message_rows(self, peer: int, num_rows: int) -> torch.Tensor:
        """Memory for rows that go to ``peer``, or come from it, as messages."""
        del peer
        return torch.empty(num_rows, self._rows.dim, dtype=self._rows.dtype)

    def _target_at(self, peer: int, asked: torch.Tensor, ready: Message) -> RowTarget:
        """The places in the batch of ``peer``, which has said where that is."""
        values = ready.values
        rows, positions = self._memory.batch_of(peer, values, self._rows.dim, self._rows.dtype)
        first = values[NUM_ADDRESS_WORDS]
        return RowTarget(asked, rows, positions[first : first + len(asked)])

    def _swap(self, delivery: Delivery) -> None:
        """Exchanges the rows that travel as messages."""
        self._swap_chunks(delivery, list(delivery.packed))

    def _swap_chunks(self, delivery: Delivery, peers: list[int]) -> None:
        """Exchanges rows with ``peers`` piece by piece: pieces are unpacked while others travel."""
        request, chunk, pending = delivery.request, self._chunk_rows, []
        pieces = [max(len(request.asked_by(peer)), len(request.asked_of(peer))) for peer in peers]
        for begin in range(0, max(pieces, default=0), chunk):
            under_way = []
            for peer in peers:
                packed = delivery.packed[peer][begin : begin + chunk]
                places = request.asked_of(peer)[begin : begin + chunk]
                if len(packed):
                    work = self._rows_stream.send_part(peer, packed)
                    under_way.append((peer, work, packed, None))
                if len(places):
                    piece = self._message_rows(peer, len(places))
                    work = self._rows_stream.receive_part(peer, piece)
                    under_way.append((peer, work, piece, places))
            self._finish_chunks(delivery, pending)
            pending = under_way
        self._finish_chunks(delivery, pending)

    def _finish_chunks(self, delivery: Delivery, pending: list) -> None:
        for peer, work, piece, places in pending:
            self._rows_stream.finish_part(peer, work, Kind.ROWS, delivery.request.iteration)
            if places is not None:
                self._unpack(piece, delivery.batch.rows, places)

    def _unpack(self, piece: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> None:
        native.deliver_rows(piece, _NONE, rows, places, self._threads)

    def _count_time(self, request: Request, start: float, waited: float) -> None:
        wait_secs = self._rows_stream.wait_secs - waited
        request.stats["comm_wait_secs"] += wait_secs
        request.stats["comm_secs"] += time.perf_counter() - start - wait_secs


def merge_lists(
    lists: list[torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[int]]:
    """Request lists ([n] int64 each) in rank order as one: (its ids [u] int64, each once; where
    each list's additions start [len(lists) + 1] int64; the index of each request among the ids
    [total] int32; where each list's requests start: len(lists) + 1 numbers)."""
    requests = torch.cat(lists)
    sizes = torch.tensor([0, *map(len, lists)])
    list_starts = sizes.cumsum(0)
    ids = torch.empty(len(requests) + 1, dtype=torch.int64)
    row_of = torch.empty(len(requests), dtype=torch.int32)
    rank_starts = torch.empty(len(lists) + 1, dtype=torch.int64)
    count = native.merge_lists(requests, list_starts, ids, row_of, rank_starts)
    return ids[:count], rank_starts, row_of, list_starts.tolist()
