"""Feature rows from a cache that is planned ahead, over storage."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Sequence

import torch

from lsm import native
from lsm.cache.planner import Planner
from lsm.cache.planner_trial import TrialPlanner
from lsm.comm.exchange import Exchange
from lsm.comm.messages import PeerLeftError
from lsm.comm.request import Request, RowTarget
from lsm.core.counters import COUNTERS, EXCHANGED, SPANS
from lsm.core.ids import vector_of_ids
from lsm.data.feature_files import FeatureFiles
from lsm.distributed.watchdog import PeerError
from lsm.features.loader import FeatureLoader
from lsm.features.pending_batch import PendingBatch
from lsm.features.tiers import Tiers
from lsm.storage.read_scheduler import ReadScheduler

COMPLETED_AHEAD = 2
"""Enough to overlap copies with training. Further complete batches would take memory."""

_CLOSE_SECS = 1.0


class AnnouncedBatch:
    """The Announced of a CachedFeatureLoader."""

    def __init__(
        self, loader: CachedFeatureLoader, ids: torch.Tensor, inverse: torch.Tensor | None
    ) -> None:
        self._loader = loader
        self._ids = ids
        self.inverse = inverse
        """[N] int64: id i is the inverse[i]-th of the distinct ids. None: all are distinct."""
        self.num_bytes = ids.numel() * loader.row_bytes

    def start(self) -> PendingBatch:
        """As Announced.start()."""
        return self._loader.start(self)

    def check_ids(self, ids: torch.Tensor) -> None:
        """Raises ValueError if ``ids`` are others."""
        if ids is not self._ids and not native.same_ids(ids, self._ids):
            raise ValueError(
                f"ids: expected the {len(self._ids)} ids of the oldest batch that was announced, "
                f"got {len(ids)} others; use a loader of its own for other rows"
            )


class CachedFeatureLoader(FeatureLoader):
    """A FeatureLoader with a cache in memory; lsm.open_features() makes one.

    Batches that are announced up to ``window`` ahead let plans look ahead; without announcements
    each prefetch() or fetch() is a batch of its own. The rows do not depend on the cache.
    Thread-safe, with one order of batches for all threads.

    Args:
        files: The files of the rows.
        planner: Decides from ids alone which rows to cache.
        tiers: Hold the rows, and replay the plans in order when rows are due.
        exchange: Makes the cache one over all ranks of its group. Every node has one owner, which
            alone reads and caches its row; ranks request rows from the owners. Precondition: every
            rank announces and starts batches (or calls prefetch() or fetch()) and calls
            forget_announced() equally often, in the same order, without ids if it needs no rows.
        reads: As for FeatureLoader.
    """

    completed_ahead = COMPLETED_AHEAD

    def __init__(
        self,
        files: FeatureFiles,
        planner: Planner | TrialPlanner,
        tiers: Tiers,
        exchange: Exchange | None = None,
        reads: ReadScheduler | None = None,
    ) -> None:
        super().__init__(files, tiers.storage, tiers.take_rows, reads)
        self.planner = planner
        self.tiers = tiers
        self.exchange = exchange
        self.window = planner.config.window
        self.peer_timeout_secs = exchange.timeout_secs if exchange else 0.0
        # Two locks, so that plans are made while earlier ones are replayed. Lock order: the lock
        # for replays first.
        self._planning = threading.Lock()
        self._replaying = threading.Lock()
        self._is_claimed = False
        self._announced: deque[AnnouncedBatch] = deque()  # not started yet
        self._requests: deque[Request] = deque()  # sent to other ranks and not planned yet
        self._announce_secs = 0.0
        self._batches: deque[PendingBatch] = deque()  # not replayed yet, in plan order
        self._opening = threading.Lock()  # of _batches; never held for long
        self._failure: str | None = None
        self._peer_failed = self._left_by_peer = self._is_closed = False
        self._counting = threading.Lock()
        self._totals = dict.fromkeys((*COUNTERS, *EXCHANGED), 0) | dict.fromkeys(SPANS, 0.0)

    def __repr__(self) -> str:
        config = self.planner.config
        cache = f", policy={config.policy!r}, cached_rows={config.num_lines})"
        return super().__repr__().removesuffix(")") + cache

    @property
    def device_bytes(self) -> int:
        """GPU memory of the tiers and of an exchange's batches."""
        return self.tiers.device_bytes + (self.exchange.rows.device_bytes if self.exchange else 0)

    def check_usable(self) -> None:
        """As FeatureLoader.check_usable()."""
        self.check_process()
        if self._failure:
            raise (PeerError if self._peer_failed else RuntimeError)(self._failure)

    @property
    def _is_lost(self) -> bool:
        """True if no session can follow."""
        return self._is_closed or bool(self._failure and not self._left_by_peer)

    def claim(self) -> None:
        """As FeatureLoader.claim()."""
        self.check_process()
        with self._planning:
            if self._is_claimed:
                raise RuntimeError(
                    "another iterator goes through batches of this feature cache, whose rows are "
                    "planned in one order; finish or close() that one first, or open a loader with "
                    "a cache of its own"
                )
            self._is_claimed = True

    def release(self) -> None:
        """As FeatureLoader.release()."""
        with self._planning:
            self._is_claimed = False

    def set_scores(self, scores: torch.Tensor) -> None:
        """Sets the scores that the planner uses from the next plan on.

        Args:
            scores: Score of each node, [N] float32. Static and constant rows stay.
        """
        with self._planning:
            if not self._is_closed:
                self.planner.set_scores(scores)

    def announce(self, ids: torch.Tensor, *, repeats: bool = False) -> AnnouncedBatch:
        """As FeatureLoader.announce(). The plans of earlier batches count on this one.

        Over ranks it blocks until all have announced as many batches.

        Raises:
            ValueError: An id is out of range, or repeated without ``repeats``.
            PeerError: Another rank failed or left.
            TimeoutError: Another rank has not announced its batch in time.
        """
        ids = vector_of_ids(ids)
        unique, inverse = _distinct(ids) if repeats else (ids, None)
        # Outside the lock for plans: a thread that fails meanwhile must not wait for another rank.
        request = self._request(unique)
        with self._planning:
            self.check_usable()
            self._push(unique, request)
            self._announced.append(AnnouncedBatch(self, ids, inverse))
            return self._announced[-1]

    def leave(self) -> None:
        """As FeatureLoader.leave()."""
        if self.exchange is not None:
            self.exchange.lists.leave()

    def leave_rows(self) -> None:
        """As FeatureLoader.leave_rows()."""
        with self._replaying:
            if self.exchange is not None and not self._is_lost:
                self.exchange.rows.leave()

    def forget_announced(self) -> None:
        """Drops announced batches that were not requested. If there are any, earlier plans count on
        them: the cache starts cold, and requested rows that nobody awaited are dropped. Every rank
        must call it, not necessarily after as many batches."""
        with self._replaying, self._planning:
            if self._is_lost:
                return
            starts_cold = bool(self._announced)
            if self.exchange is not None:
                self.exchange.end_session()
                starts_cold |= bool(self._batches or self._requests or self._left_by_peer)
            if starts_cold:
                self._announced.clear()
                self._requests.clear()
                self._drop_batches()
                self.planner.restart()
            self._failure, self._peer_failed, self._left_by_peer = None, False, False

    def prefetch(self, ids: torch.Tensor) -> PendingBatch:
        """Plans for rows and starts reading those that no tier will hold.

        Args:
            ids: Node ids, [N] int64, in any order. If batches are announced, the ids of the oldest;
                otherwise ids may repeat.

        Returns:
            Pending rows, whose ``result()`` gives the rows.

        Raises:
            ValueError: An id is out of range, or ``ids`` are not those of the oldest batch.
        """
        self.check_process()
        ids = vector_of_ids(ids)
        with self._planning:
            self.check_usable()
            if self._announced:
                self._announced[0].check_ids(ids)
                inverse = self._announced.popleft().inverse
            else:
                unique, inverse = _distinct(ids)
                self._push(unique, self._request(unique))
            return self._start(inverse)

    def start(self, announced: AnnouncedBatch) -> PendingBatch:
        """As ``announced.start()``."""
        self.check_process()
        with self._planning:
            self.check_usable()
            if announced not in self._announced:
                raise RuntimeError("this batch was started before, or forgotten")
            if announced is not self._announced[0]:
                raise RuntimeError("an older batch was announced: batches start in their order")
            self._announced.popleft()
            return self._start(announced.inverse)

    def stats(self) -> dict[str, int | float]:
        """Returns the counters since the loader was opened.

        Returns:
            The storage engine's counters (see Storage.stats), and the sums of COUNTERS, EXCHANGED
            and SPANS over the batches delivered so far: ``cache_requests``, ``cache_hits`` and so
            on. ``cache_victim_prefetched`` counts victim hits whose rows were copied before their
            batch was due.
        """
        stats = super().stats()  # an error once closed
        with self._counting:
            totals = {f"cache_{name}": value for name, value in self._totals.items()}
        totals["cache_victim_prefetched"] = self.tiers.prefetched_rows
        return stats | totals

    def close(self) -> None:
        """Closes the engine and frees the cache. Delivered rows stay valid. Does not wait for other
        ranks: after a failure, a thread of this rank that waits for rows learns of it later."""
        if self._is_closed or self.is_forked:
            return
        self._is_closed = True
        if self.exchange is not None:
            self.exchange.lists.leave()
        # Held to the end: a thread of this rank that came in between would wait for rows of ranks
        # that have left.
        if not self._replaying.acquire(timeout=_CLOSE_SECS if self.exchange else -1):
            return  # it waits for other ranks
        try:
            if self.exchange is not None:
                self._leave_exchange(self.exchange)
            with self._planning:
                self._failure = self._failure or "the feature loader is closed"
                self._drop_batches()
                self._announced.clear()
                self.tiers.close()
                self.planner.close()
        finally:
            self._replaying.release()
        super().close()

    def _leave_exchange(self, exchange: Exchange) -> None:
        """Ends the last session with other ranks."""
        if not (self._failure or self._requests or self._batches):
            exchange.flush()
        exchange.close()

    def _request(self, ids: torch.Tensor) -> Request | None:
        """Requests ``ids`` from their owners, if ranks share the cache."""
        self.check_usable()
        if self.exchange is None:
            return None
        try:
            return self.exchange.lists.request(ids)
        except ValueError:
            raise  # an id is out of range, and nothing was sent
        except BaseException as error:
            self._fail(error)
            raise

    def _push(self, ids: torch.Tensor, request: Request | None) -> None:
        """Pushes a batch to the planner's window: ``ids``, or the ids that ranks request from this
        owner."""
        start = time.perf_counter()
        if request is None:
            self.planner.push(ids)
        else:
            self.planner.push(request.ids, request.rank_starts[:-1])
            self._requests.append(request)
        self._announce_secs += time.perf_counter() - start

    def _start(self, inverse: torch.Tensor | None) -> PendingBatch:
        """Plans the next batch of the window and starts its reads."""
        try:
            return self._start_planned(inverse)
        except BaseException as error:
            self._fail(error)
            raise

    def _start_planned(self, inverse: torch.Tensor | None) -> PendingBatch:
        start = time.perf_counter()
        plan = self.planner.plan()
        plan_secs = time.perf_counter() - start + self._announce_secs
        self._announce_secs = 0.0
        request = self._requests.popleft() if self.exchange else None
        num_rows = request.num_rows if request else plan.num_rows
        batch = PendingBatch(self._replay_up_to, plan, request, inverse, num_rows * self.row_bytes)
        batch.stats["plan_secs"] = plan_secs
        self.tiers.start_reads(batch, self.reads)
        with self._opening:
            self._batches.append(batch)
            self._open_nearest()
        return batch

    def _open_nearest(self) -> None:
        """Opens the batches that are due soon in the tiers."""
        for batch in itertools.islice(self._batches, self.tiers.open_ahead):
            if not batch.is_open:
                self.tiers.open_batch(batch)
                batch.is_open = True

    def _replay_up_to(self, batch: PendingBatch, timeout_secs: float | None) -> None:
        """Replays all plans up to that of ``batch``, each after its reads have ended."""
        with self._replaying:
            while not batch.done:
                self.check_usable()
                if batch.is_dropped:
                    raise RuntimeError("these rows were dropped by forget_announced()")
                try:
                    self._complete(self._batches[0], timeout_secs)
                    with self._opening:
                        self._batches.popleft()
                        self._open_nearest()
                except BaseException as error:
                    self._fail(error)
                    with self._planning:
                        self._drop_batches()
                    raise

    def _complete(self, batch: PendingBatch, timeout_secs: float | None) -> None:
        """Delivers the rows of the oldest batch to this rank, and to the ranks that requested
        them."""
        request = batch.request
        if self.exchange is None or request is None:
            self._wait_for_reads(batch, timeout_secs)
            self._replay(batch)
        else:
            delivery = self.exchange.rows.open(request)
            self._wait_for_reads(batch, timeout_secs)
            self._replay(batch, self.exchange.rows.targets(delivery))
            batch.delivered = self.exchange.rows.finish(delivery)
            batch.stats |= request.stats
            batch.stats["requests"] += batch.stats["duplicates"]
        with self._counting:
            for name, value in batch.stats.items():
                self._totals[name] += value
        batch.finish()

    def _wait_for_reads(self, batch: PendingBatch, timeout_secs: float | None) -> None:
        start = time.perf_counter()
        if batch.ticket is not None:
            batch.ticket.wait(timeout_secs)
        batch.stats["read_wait_secs"] = time.perf_counter() - start

    def _replay(self, batch: PendingBatch, targets: Sequence[RowTarget] | None = None) -> None:
        start = time.perf_counter()
        self.tiers.replay(batch, targets)
        batch.stats["replay_secs"] = time.perf_counter() - start

    def _fail(self, error: BaseException) -> None:
        """Makes the cache unusable and tells the other ranks. After a plan that failed, the tiers
        do not hold the rows that later plans expect."""
        if self._failure:
            return
        self._peer_failed = isinstance(error, PeerError)
        if isinstance(error, PeerLeftError):
            # The cache stays usable: if this rank leaves the epoch as well, another epoch can
            # follow.
            self._left_by_peer = True
            self._failure = str(error)
            return
        lost = f"the feature cache lost rows in an earlier failure ({error}); open a new loader"
        self._failure = str(error) if self._peer_failed else lost
        if self.exchange is not None:
            self.exchange.fail(error)

    def _drop_batches(self) -> None:
        self.tiers.start_over()
        with self._opening:
            for batch in self._batches:
                batch.drop()
            self._batches.clear()


def _distinct(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The distinct ids as first seen, and the place of each of ``ids`` among them; None if all are
    distinct."""
    unique, inverse = native.unique_relabel(ids)
    return unique, None if unique.numel() == ids.numel() else inverse
