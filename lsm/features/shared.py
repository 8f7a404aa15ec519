"""Feature rows from one cache that all ranks of a group share (DESIGN sections 3 and 4)."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import torch

from lsm import native
from lsm.cache.options import CacheOptions, CacheRows, hottest
from lsm.cache.scores import stored_score
from lsm.comm.exchange import Exchange
from lsm.comm.group import CacheGroup
from lsm.comm.messages import PeerLeftError
from lsm.comm.open import open_exchange
from lsm.comm.owners import OwnerMap, load_owner_table
from lsm.comm.request import Request, RowFormat
from lsm.distributed.watchdog import PeerError
from lsm.features.cached import CachedFeatureLoader, Move
from lsm.features.loader import files_of
from lsm.storage.engine import Storage, StorageOptions

_CLOSE_SECS = 1.0


class SharedFeatureLoader(CachedFeatureLoader):
    """A CachedFeatureLoader whose cache is that of all ranks of ``group`` together.

    Every node has one owner, which alone reads and caches its row; ranks ask the owners. So this is
    a collective thing: every rank makes one, with the same options, and all call announce(),
    prefetch() (or fetch()) and forget_announced() equally often, in the same order; a rank with
    nothing to ask for passes no ids. Waits for other ranks end after ``comm.timeout_secs``.

    Where comm.mode is partition-aware, a part of each rank's cache holds the same hottest rows, and
    only the others have owners. Static and constant rows are the hottest of those a rank owns.
    Arguments otherwise as for CachedFeatureLoader. Beside ``idle_bytes``, the rows of batches under
    way are held once more, by their owners.
    """

    reads_apart = False  # owners write rows from where they arrive to where ranks want them

    def __init__(
        self,
        store,
        cache: CacheOptions,
        group: CacheGroup,
        *,
        engine: str = "auto",
        options: StorageOptions | None = None,
        storage: Storage | None = None,
        scores: torch.Tensor | None = None,
        idle_bytes: int = 512 << 20,
        num_threads: int = 1,
    ) -> None:
        comm, files = group.options, files_of(store)
        if scores is None and cache.score != "none":
            scores = stored_score(store, cache.score)
        replicated = None
        if comm.mode == "partition-aware":
            if scores is None:
                raise ValueError(
                    "comm.mode=partition-aware: replicates the rows with the highest scores; set "
                    "cache.score, or comm.mode=shared"
                )
            replicated_bytes = int(comm.replicated_fraction * cache.bytes)
            cache = replace(cache, bytes=cache.bytes - replicated_bytes)
            (replicated,) = hottest(scores, replicated_bytes // files.row_bytes)
        table = None
        if comm.owner == "table":
            table = load_owner_table(comm.owner_table, files.num_rows, group.size)
        self._owners = OwnerMap(
            files.num_rows,
            group.size,
            group.rank,
            hash="mix64" if table is not None else comm.owner,
            table=table,
            replicated_ids=replicated,
        )
        self._replicated = replicated
        self._requests: deque[Request] = deque()  # not planned yet
        self._peer_failed = self._left_by_peer = self._closed = False
        row_format = RowFormat(files.dim, files.dtype)
        self._exchange = self._open_exchange(group, row_format, num_threads)
        self.peer_timeout_secs = comm.timeout_secs
        native.check_metadata_limits(cache.useful_window, group.size, files.num_rows)
        super().__init__(
            store,
            cache,
            engine=engine,
            options=options,
            storage=storage,
            scores=scores,
            idle_bytes=idle_bytes,
            num_threads=num_threads,
        )

    def _open_exchange(self, group: CacheGroup, rows: RowFormat, num_threads: int) -> Exchange:
        return open_exchange(group, self._owners, rows, num_threads=num_threads)

    @property
    def links(self) -> dict[int, str]:
        """Names of the links to the other ranks of the group: shm, ipc, nccl or gloo."""
        return self._exchange.links

    def announce(self, ids: torch.Tensor) -> None:
        """As CachedFeatureLoader.announce(), on every rank; ids may repeat. Blocks until all ranks
        have announced as much. Raises PeerError if another rank failed or left, TimeoutError."""
        ids = self._checked(ids)
        # Not under the lock for plans: whoever fails meanwhile must not wait for another rank.
        request = self._ask(ids)
        with self._planning:
            self._check_usable()
            self._plan_for(request)
            self._announced.append(ids)

    def leave(self) -> None:
        """Says that this rank announces nothing more until forget_announced(), so that no other
        rank waits for it."""
        self._exchange.leave()

    def forget_announced(self) -> None:
        """As CachedFeatureLoader.forget_announced(); on every rank, though not necessarily after
        the same number of batches."""
        with self._replaying, self._planning:
            if self._closed or (self._failure and not self._left_by_peer):
                return
            self._exchange.end_session()
            if self._announced or self._moves or self._requests or self._left_by_peer:
                self._announced.clear()
                self._requests.clear()
                self._drop_moves()
                self._planner = self._new_planner()
            self._failure, self._peer_failed, self._left_by_peer = None, False, False

    def close(self) -> None:
        """As CachedFeatureLoader.close(). Does not wait for other ranks: where this one fails, a
        thread of it may be waiting for rows, and learns of it in its own time."""
        if self._closed or self.is_forked:
            return
        self._closed = True
        self._exchange.leave()
        if self._replaying.acquire(timeout=_CLOSE_SECS):
            if not (self._failure or self._requests or self._moves):
                self._exchange.flush()
            self._exchange.end_session()
            self._replaying.release()
            super().close()

    def _check_usable(self) -> None:
        if self._failure and self._peer_failed:
            raise PeerError(self._failure)
        super()._check_usable()

    def _hot_rows(self, tiers: CacheRows, scores: torch.Tensor) -> list[torch.Tensor]:
        own = scores.clone()
        own[~self._owners.is_own(len(scores))] = -1.0
        if self._replicated is not None:
            own[self._replicated] = -1.0
        static_ids, constant_ids = (
            ids[own[ids] >= 0] for ids in hottest(own, tiers.static, tiers.constant)
        )
        if self._replicated is not None:
            static_ids = torch.cat([self._replicated, static_ids])
        return [static_ids, constant_ids]

    def _enter(self, ids: torch.Tensor) -> None:
        self._plan_for(self._ask(ids))

    def _ask(self, ids: torch.Tensor) -> Request:
        self._check_usable()
        try:
            return self._exchange.request(ids)
        except BaseException as error:
            self._fail(error)
            raise

    def _plan_for(self, request: Request) -> None:
        self._push(request.ids, request.rank_starts[:-1])
        self._requests.append(request)

    def _start_move(self) -> Move:
        move = super()._start_move()
        move.request = self._requests.popleft()
        move.final_bytes = move.request.num_rows * self.storage.row_bytes
        return move

    def _complete(self, move: Move, timeout_secs: float | None) -> None:
        delivery = self._exchange.open(move.request)
        self._wait_for_reads(move, timeout_secs)
        self._replay(move, self._exchange.targets(delivery))
        move.delivered = self._exchange.finish(delivery)
        move.stats |= move.request.stats
        move.stats["requests"] += move.stats["duplicates"]
        move.rows = move.request = None
        self._finish(move)

    def _fail(self, error: BaseException) -> None:
        if self._failure:
            return
        self._peer_failed = isinstance(error, PeerError)
        if isinstance(error, PeerLeftError):
            # Not the end of the cache: if this rank leaves the epoch as well, there is another.
            self._left_by_peer = True
            self._failure = str(error)
            return
        super()._fail(error)
        if self._peer_failed:
            self._failure = str(error)
        self._exchange.fail(error)
