"""The rows of one size that ranks exchange."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from lsm.comm.batches import Batches
from lsm.comm.group import CacheGroup
from lsm.comm.links import Link
from lsm.comm.messages import Kind
from lsm.comm.request import Delivery, Request, RowTarget


class RowExchange:
    """The rows of one size that this rank and its peers in ``group`` deliver to one another.

    The methods belong to one thread. Several exchanges of a group take turns in the same order on
    every rank.

    links: together they reach every peer. batches: memory of the delivered rows. All methods may
    raise PeerError (another rank failed or left) and TimeoutError, which names a rank.
    """

    def __init__(self, group: CacheGroup, batches: Batches, links: Sequence[Link]) -> None:
        self.rank = group.rank
        self._batches = batches
        self._links = list(links)
        self._link_to = {peer: link for link in links for peer in link.peers}
        self._needs_shared_batch = any(link.needs_shared_batch for link in links)
        self._stream = group.rows
        self.start_over()

    @property
    def links(self) -> dict[int, str]:
        """Names of the links, by rank of the group."""
        return {peer: self._link_to[peer].name for peer in self._stream.peers}

    @property
    def device_bytes(self) -> int:
        """GPU memory of the batches."""
        return self._batches.num_bytes

    def open(self, request: Request) -> Delivery:
        """Memory for the rows of ``request``, the oldest one not opened yet. Tells the peers that
        they may write there."""
        start, waited = time.perf_counter(), self._stream.wait_secs
        # Peers may still write to memory of a session that was left; await that before reuse.
        self._stream.skip_older()
        batch = self._batches.take(request, is_shared=self._needs_shared_batch)
        delivery = Delivery(request, batch)
        for peer in self._stream.peers:
            ready = self._link_to[peer].ready(delivery, peer)
            self._stream.send(peer, Kind.READY, request.iteration, *ready)
        self._count_time(request, start, waited)
        return delivery

    def targets(self, delivery: Delivery) -> list[RowTarget]:
        """The places for the rows that ranks requested from this one, its own first. Blocks until
        the ranks are ready."""
        request = delivery.request
        start, waited = time.perf_counter(), self._stream.wait_secs
        ready = self._stream.receive(Kind.READY, request.iteration)
        self._stream.settle(request.iteration)
        own = request.asked_by(self.rank), delivery.batch.rows, request.asked_of(self.rank)
        targets = [RowTarget(*own)]
        for peer in self._stream.peers:
            target = self._link_to[peer].target(delivery, peer, ready[peer])
            if target is not None:
                targets.append(target)
        self._count_time(request, start, waited)
        return targets

    def finish(self, delivery: Delivery) -> torch.Tensor:
        """Returns this rank's complete batch, [request.num_rows, dim]. Precondition: all targets()
        are filled."""
        request, stream = delivery.request, self._stream
        start, waited = time.perf_counter(), stream.wait_secs
        for peer in stream.peers:
            stream.send(peer, Kind.ROWS, request.iteration)
        stream.receive(Kind.ROWS, request.iteration)
        for link in self._links:
            link.swap(delivery)
        sent = len(request.row_of) - len(request.asked_by(self.rank))
        request.stats["rows_sent_bytes"] += sent * self._batches.format.row_bytes
        self._count_time(request, start, waited)
        return delivery.batch.rows

    def leave(self) -> None:
        """Tells the peers that this rank delivers no more rows in this session. Does not block.
        Precondition: no other method is called until start_over()."""
        self._stream.end()

    def start_over(self) -> None:
        """Begins the next session."""
        self._stream.start_over()

    def _count_time(self, request: Request, start: float, waited: float) -> None:
        wait_secs = self._stream.wait_secs - waited
        request.stats["comm_wait_secs"] += wait_secs
        request.stats["comm_secs"] += time.perf_counter() - start - wait_secs
