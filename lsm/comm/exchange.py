"""The exchange of rows between ranks, which makes their caches one.

Requests go to the owners a window of iterations ahead. Each owner merges its requests, in rank
order, into one list without repeats. It writes the rows from its cache to their places in the
requesters' batches in shared memory, or into messages, which requesters unpack by the inverse
permutation. ``lsm.reference.comm`` does the same with plain collectives.

We differ from LSM-GNN, section 4.1: there is no global barrier. A rank waits only for the messages
that it needs. Ids and rows travel on separate streams, so that ids pass while rows are awaited.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import torch

from lsm import native
from lsm.comm.batches import Batches
from lsm.comm.group import CacheGroup
from lsm.comm.links import Link
from lsm.comm.messages import Kind, Message, PeerLeftError
from lsm.comm.owners import OwnerMap
from lsm.comm.request import Delivery, Request, RowTarget, merge_lists
from lsm.core.counters import EXCHANGED
from lsm.distributed.watchdog import PeerError

_NO_IDS = torch.empty(0, dtype=torch.int64)


class Exchange:
    """One rank's part in the exchange.

    Precondition: all ranks of ``group`` call request(), then open(), targets() and finish(), for
    the same iterations in the same order. request() may run ahead on a thread of its own; the other
    methods belong to one thread. Rows that are written to targets() in GPU memory must have arrived
    before finish(), because peers read them then.

    links: together they reach every peer. batches: memory of the delivered rows. All methods may
    raise PeerError (another rank failed or left) and TimeoutError, which names a rank.
    """

    def __init__(
        self,
        group: CacheGroup,
        owners: OwnerMap,
        batches: Batches,
        links: Sequence[Link],
        num_threads: int = 1,
    ) -> None:
        self.rank, self.size = group.rank, group.size
        self.timeout_secs = group.options.timeout_secs
        self._owners = owners
        self._batches = batches
        self._links = list(links)
        self._link_to = {peer: link for link in links for peer in link.peers}
        self._needs_shared_batch = any(link.needs_shared_batch for link in links)
        self._threads = native.ThreadPool(num_threads)
        self._ids_stream, self._rows_stream = group.ids, group.rows
        self._local = group.rows.local
        self._lists = group.lists
        self._num_requests = 0  # of this session
        self._asking = threading.Lock()
        self._left = False

    @property
    def links(self) -> dict[int, str]:
        """Names of the links, by rank of the group."""
        return {peer: self._link_to[peer].name for peer in self._rows_stream.peers}

    @property
    def device_bytes(self) -> int:
        """GPU memory of the batches."""
        return self._batches.num_bytes

    def request(self, ids: torch.Tensor) -> Request:
        """Requests ``ids`` ([n] int64) from their owners and collects the requests to this rank.
        Blocks until every rank has made its request of this iteration."""
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
        self._lists.forget_older()  # a rank that requests this iteration has read all earlier lists
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
        """Memory for the rows of ``request``, the oldest one not opened yet. Tells the peers that
        they may write there."""
        start, waited = time.perf_counter(), self._rows_stream.wait_secs
        # Peers may still write to memory of a session that was left; await that before reuse.
        self._rows_stream.begin()
        batch = self._batches.take(request, is_shared=self._needs_shared_batch)
        delivery = Delivery(request, batch)
        for peer in self._rows_stream.peers:
            ready = self._link_to[peer].ready(delivery, peer)
            self._rows_stream.send(peer, Kind.READY, request.iteration, *ready)
        self._count_time(request, start, waited)
        return delivery

    def targets(self, delivery: Delivery) -> list[RowTarget]:
        """The places for the rows that ranks requested from this one, its own first. Blocks until
        the ranks are ready."""
        request = delivery.request
        start, waited = time.perf_counter(), self._rows_stream.wait_secs
        ready = self._rows_stream.receive(Kind.READY, request.iteration)
        self._rows_stream.settle(request.iteration)
        own = request.asked_by(self.rank), delivery.batch.rows, request.asked_of(self.rank)
        targets = [RowTarget(*own)]
        for peer in self._rows_stream.peers:
            target = self._link_to[peer].target(delivery, peer, ready[peer])
            if target is not None:
                targets.append(target)
        self._count_time(request, start, waited)
        return targets

    def finish(self, delivery: Delivery) -> torch.Tensor:
        """Returns this rank's complete batch, [request.num_rows, dim]. Precondition: all targets()
        are filled."""
        request, stream = delivery.request, self._rows_stream
        start, waited = time.perf_counter(), stream.wait_secs
        for peer in stream.peers:
            stream.send(peer, Kind.ROWS, request.iteration)
        stream.receive(Kind.ROWS, request.iteration)
        for link in self._links:
            link.swap(delivery)
        sent = len(request.row_of) - len(request.asked_by(self.rank))
        request.stats["rows_sent_bytes"] = sent * self._batches.format.row_bytes
        self._count_time(request, start, waited)
        return delivery.batch.rows

    def leave(self) -> None:
        """Tells the peers that this rank makes no more requests in this session. Callable from any
        thread; does not block. A request() in progress may fail."""
        with self._asking:
            if not self._left:
                self._left = True
                self._ids_stream.end()

    def end_session(self) -> None:
        """Ends the session; every rank must do so. The next one starts afresh. Precondition: no
        request(), open(), targets() or finish() is in progress."""
        self.leave()
        self._rows_stream.end()
        self._num_requests = 0
        self._left = False

    def flush(self) -> None:
        """Blocks until the peers have received all messages, so that this rank may exit."""
        self._ids_stream.flush()
        self._rows_stream.flush()

    def fail(self, error: BaseException) -> None:
        """Sends the error of this rank to all others. Callable from any thread. Blocks until they
        have received it if the error arose on this rank: they are sure to ask it for rows."""
        self._ids_stream.fail(error, wait=False)
        self._rows_stream.fail(error, wait=not isinstance(error, PeerError))

    def _list_of(self, peer: int, message: Message) -> torch.Tensor:
        """The ids that ``peer`` requests."""
        if peer not in self._local:
            payload = message.payload
            return _NO_IDS if payload is None else payload.view(torch.int64)
        *address, begin, end = message.values
        try:
            return self._lists.list_of(peer, address)[begin:end]
        except OSError as error:
            name = self._ids_stream.name(peer)
            raise PeerError(f"{name} ended before its ids were read: {error}") from error

    def _count_time(self, request: Request, start: float, waited: float) -> None:
        wait_secs = self._rows_stream.wait_secs - waited
        request.stats["comm_wait_secs"] += wait_secs
        request.stats["comm_secs"] += time.perf_counter() - start - wait_secs
