"""Request lists: the ids that ranks ask of the owners of rows."""

from __future__ import annotations

import threading
import time
from itertools import accumulate

import torch

from lsm import native
from lsm.comm.group import CacheGroup
from lsm.comm.messages import Kind, Message, PeerLeftError
from lsm.comm.owners import OwnerMap
from lsm.comm.request import Request
from lsm.core.counters import EXCHANGED
from lsm.distributed.watchdog import PeerError

_NO_IDS = torch.empty(0, dtype=torch.int64)


class RequestLists:
    """The ids that ranks of ``group`` ask of one another, once per iteration.

    Ids are of one space, whatever the size of their rows. request() may run on a thread of its own;
    it raises PeerError if another rank failed or left, and TimeoutError, which names a rank.
    """

    def __init__(self, group: CacheGroup, owners: OwnerMap, num_threads: int = 1) -> None:
        self.rank, self.size = group.rank, group.size
        self._owners = owners
        self._threads = native.ThreadPool(num_threads)
        self._stream = group.ids
        self._local = group.ids.local
        self._lists = group.lists
        self._stream.start_over()
        self._num_requests = 0  # of this session
        self._asking = threading.Lock()

    def request(self, ids: torch.Tensor) -> Request:
        """Requests ``ids`` ([n] int64) from their owners and collects the requests to this rank.
        Blocks until every rank has made its request of this iteration."""
        start, waited = time.perf_counter(), self._stream.wait_secs
        iteration = self._num_requests
        memory, address = self._lists.take(len(ids)) if self._local else (None, [])
        bucketed, positions, starts = self._owners.bucket(ids, self._threads, out=memory)
        with self._asking:
            if self._stream.has_ended:
                raise PeerLeftError("this rank has left the epoch")
            for peer in self._stream.peers:
                begin, end = starts[peer], starts[peer + 1]
                if peer in self._local:
                    self._stream.send(peer, Kind.IDS, iteration, [*address, begin, end])
                else:
                    self._stream.send(peer, Kind.IDS, iteration, payload=bucketed[begin:end])
            self._num_requests += 1
        messages = self._stream.receive(Kind.IDS, iteration)
        self._stream.settle(iteration)
        self._lists.forget_older()  # a rank that requests this iteration has read all earlier lists
        lists = [
            bucketed[starts[rank] : starts[rank + 1]]
            if rank == self.rank
            else self._list_of(rank, messages[rank])
            for rank in range(self.size)
        ]
        merged, rank_starts, row_of, list_starts = merge_lists(lists)
        wait_secs = self._stream.wait_secs - waited
        own = starts[self.rank + 1] - starts[self.rank]
        stats: dict[str, float] = dict.fromkeys(EXCHANGED, 0)
        stats["duplicates"] = len(row_of) - len(merged)
        stats["ids_sent_bytes"] = 8 * (len(ids) - own)
        stats["comm_wait_secs"] = wait_secs
        stats["comm_secs"] = time.perf_counter() - start - wait_secs
        return Request(
            iteration, len(ids), positions, starts, merged, rank_starts, row_of, list_starts, stats
        )

    def leave(self) -> None:
        """Tells the peers that this rank makes no more requests in this session. Callable from any
        thread; does not block. A request() in progress may fail."""
        with self._asking:
            self._stream.end()

    def start_over(self) -> None:
        """Begins the next session. Precondition: no request() is in progress."""
        self._stream.start_over()
        self._num_requests = 0

    def _list_of(self, peer: int, message: Message) -> torch.Tensor:
        """The ids that ``peer`` requests."""
        if peer not in self._local:
            payload = message.payload
            return _NO_IDS if payload is None else payload.view(torch.int64)
        *address, begin, end = message.values
        try:
            return self._lists.list_of(peer, address)[begin:end]
        except OSError as error:
            name = self._stream.name(peer)
            raise PeerError(f"{name} ended before its ids were read: {error}") from error


def merge_lists(
    lists: list[torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[int]]:
    """Merges request lists ([n] int64 each) in rank order.

    Returns (ids [u] int64, each once; starts of each list's additions [len(lists) + 1] int64; index
    of each request among the ids [total] int32; starts of each list's requests, len(lists) + 1
    numbers)."""
    list_starts = list(accumulate(map(len, lists), initial=0))
    ids = torch.empty(list_starts[-1] + 1, dtype=torch.int64)
    row_of = torch.empty(list_starts[-1], dtype=torch.int32)
    rank_starts = torch.empty(len(lists) + 1, dtype=torch.int64)
    count = native.merge_lists(lists, ids, row_of, rank_starts)
    return ids[:count], rank_starts, row_of, list_starts
