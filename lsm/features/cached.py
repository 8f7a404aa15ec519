"""Feature rows from a cache that was planned ahead, and from storage."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque

import torch

from lsm import native
from lsm.cache.options import CacheOptions, CacheRows, hottest
from lsm.cache.planner import Plan, Planner, Source
from lsm.cache.scores import stored_score
from lsm.core.counters import COUNTERS, EXCHANGED, STAGES
from lsm.features.loader import FeatureLoader, files_of, vector_of_ids
from lsm.storage.engine import Storage, StorageOptions, Ticket

_IN_ORDER = torch.empty(0, dtype=torch.int32)


class Move:
    """A plan that was made and not replayed yet, its rows from storage on their way."""

    def __init__(self, plan: Plan, final_bytes: int) -> None:
        """``final_bytes``: memory that its batch takes."""
        self.plan = plan
        self.final_bytes = final_bytes
        self.staged: torch.Tensor | None = None  # the rows from storage, if they come by themselves
        self.positions: torch.Tensor | None = None  # of those in the batch, int32
        self.rows: torch.Tensor | None = None  # the batch
        self.delivered: torch.Tensor | None = None  # what result() gives
        self.ticket: Ticket | None = None
        self.is_open = False
        self.done = False
        self.dropped = False
        self.stats: dict[str, float] = dict.fromkeys((*EXCHANGED, *STAGES), 0)
        self.stats |= {name: plan.counters[name] for name in COUNTERS}

    @property
    def num_bytes(self) -> int:
        """Memory that its rows take now."""
        staged, rows = self.staged, self.rows
        if staged is None:
            return self.final_bytes
        return staged.nbytes + (0 if rows is None else self.final_bytes)

    def drop(self) -> None:
        """Gives up the reads that are under way."""
        self.dropped = True
        self.ticket = None


class CachedRows:
    """What PendingRows is to FeatureLoader."""

    def __init__(
        self, loader: CachedFeatureLoader, move: Move, inverse: torch.Tensor | None
    ) -> None:
        self._loader = loader
        self._move = move
        self._inverse = inverse
        self.stats = move.stats
        """COUNTERS, EXCHANGED and STAGES of these rows; final once result() has returned."""

    @property
    def num_bytes(self) -> int:
        """Memory that the rows take now: at first, only those that are read from storage."""
        return self._move.num_bytes

    @property
    def arrived(self) -> bool:
        """Whether no read of these rows is left to do; copies may be."""
        ticket = self._move.ticket
        return ticket is None or ticket.done

    def result(self, timeout_secs: float | None = None) -> torch.Tensor:
        """Blocks until the rows are there: [N, dim]. Rows that were asked for before these, and
        that nobody has waited for, are waited for first, each at most ``timeout_secs`` (default:
        the engine's).

        Raises OSError if a read failed and TimeoutError; from then on the cache is of no use, and
        every later result() and prefetch() raises RuntimeError.
        """
        self._loader.replay_up_to(self._move, timeout_secs)
        rows = self._move.delivered
        return rows if self._inverse is None else rows[self._inverse]


class CachedFeatureLoader(FeatureLoader):
    """A FeatureLoader that keeps rows in memory, those that ``cache`` says.

    Which rows those are is planned from ids alone, as soon as they are asked for; the copying
    follows in the same order when the rows are needed. The plans are better for knowing what comes
    next: announce() batches up to ``window`` ahead. Without announcements each call of prefetch()
    or fetch() is a batch of its own. Rows are the same whatever the cache does. Thread-safe, with
    the batches in one order for all threads.

    store, engine, options, storage, idle_bytes: as for FeatureLoader. scores: [N] float32,
    instead of the store's score ``cache.score``, which is computed and stored if it is missing.
    num_threads: threads that plan, and threads that copy.
    """

    copies_rows = True

    reads_apart = True  # a batch read ahead takes no room for rows that are in memory already

    def __init__(
        self,
        store,
        cache: CacheOptions | None = None,
        *,
        engine: str = "auto",
        options: StorageOptions | None = None,
        storage: Storage | None = None,
        scores: torch.Tensor | None = None,
        idle_bytes: int = 512 << 20,
        num_threads: int = 1,
    ) -> None:
        self.cache = cache or CacheOptions()
        files = files_of(store)
        tiers = CacheRows.of(self.cache, files.row_bytes).within(files.num_rows)
        if scores is None and self.cache.score != "none":
            scores = stored_score(store, self.cache.score)
        super().__init__(
            store, engine=engine, options=options, storage=storage, idle_bytes=idle_bytes // 2
        )
        # Not the pool of the batches: a block that is too large would take more than is counted.
        self._read_pool = native.BufferPool(idle_bytes // 2)
        self.window = tiers.planner.window
        try:
            self._set_up(tiers, scores, num_threads)
        except BaseException:
            self.close()
            raise

    def _set_up(self, tiers: CacheRows, scores: torch.Tensor | None, num_threads: int) -> None:
        self._scores = scores
        none = torch.empty(0, dtype=torch.int64)
        static_ids, constant_ids = none, none
        if scores is not None:
            static_ids, constant_ids = self._hot_rows(tiers, scores)
        self._new_planner = lambda: self._open_planner(
            tiers.planner,
            scores=self._scores,
            static_ids=static_ids if len(static_ids) else None,
            constant_ids=constant_ids if len(constant_ids) else None,
            num_threads=num_threads,
        )
        self._executor = self._open_executor(tiers, static_ids, constant_ids)
        self._threads = native.ThreadPool(num_threads)
        # Two locks, so that plans are made while earlier ones are replayed; who takes both takes
        # the one for replays first.
        self._planning = threading.Lock()
        self._replaying = threading.Lock()
        self._planner = self._new_planner()
        self._is_claimed = False
        self._announced: deque[torch.Tensor] = deque()
        self._announce_secs = 0.0
        self._moves: deque[Move] = deque()  # not replayed yet, in the order of their plans
        self._opening = threading.Lock()  # of _moves; never held for long
        self._open_ahead = 1 + (self.cache.victim_prefetch if tiers.victim_slots else 0)
        self._failure: str | None = None
        self._counting = threading.Lock()
        self._totals = dict.fromkeys((*COUNTERS, *EXCHANGED), 0) | dict.fromkeys(STAGES, 0.0)

    def _open_planner(self, *arguments, **options) -> Planner:
        return Planner(*arguments, **options)

    def _open_executor(
        self, tiers: CacheRows, static_ids: torch.Tensor, constant_ids: torch.Tensor
    ):
        """The tiers' memory. Its replay() fills ``out``, or returns the rows elsewhere."""
        return native.CacheExecutor(
            self.storage.handle(),
            num_lines=tiers.planner.num_lines,
            victim_slots=tiers.victim_slots,
            static_ids=static_ids,
            constant_ids=constant_ids,
            timeout_secs=self.storage.timeout_secs,
            prefetch_iterations=self.cache.victim_prefetch,
        )

    def _hot_rows(self, tiers: CacheRows, scores: torch.Tensor) -> list[torch.Tensor]:
        """The ids of the static partition and of the constant buffer."""
        return hottest(scores, tiers.static, tiers.constant)

    def claim(self) -> None:
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
        with self._planning:
            self._is_claimed = False

    def set_scores(self, scores: torch.Tensor) -> None:
        """Goes by these scores ([N] float32) from the next plan on. Static and constant rows stay
        those that they were."""
        with self._planning:
            if self._planner is not None:
                self._planner.set_scores(scores)
                self._scores = scores

    def announce(self, ids: torch.Tensor) -> None:
        """Says that ``ids`` ([N] int64, no repeats) will be asked for, after all batches announced
        before. Then prefetch() must ask for exactly these, in this order.

        Raises ValueError for an id out of range or a repeated one.
        """
        ids = self._checked(ids)
        with self._planning:
            self._check_usable()
            self._enter(ids)
            self._announced.append(ids)

    def forget_announced(self) -> None:
        """Says that batches which were announced, but not yet asked for, never will be. If there
        are any, the plans made so far count on them: then the cache starts cold again, and rows
        that were asked for and not waited for are dropped."""
        with self._replaying, self._planning:
            if not self._announced or self._failure:
                return
            self._announced.clear()
            self._drop_moves()
            self._planner = self._new_planner()

    def prefetch(self, ids: torch.Tensor) -> CachedRows:
        """Plans for rows ``ids`` ([N] int64, any order) and starts reading those that no memory
        tier will hold. If batches are announced, these must be the ids of the oldest; if not, ids
        may repeat. Raises ValueError otherwise, and for an id out of range."""
        self.check_process()
        ids, inverse = self._checked(ids), None
        with self._planning:
            self._check_usable()
            if self._announced:
                self._take_announced(ids)
            else:
                unique, inverse = native.unique_relabel(ids)
                if len(unique) == len(ids):
                    inverse = None
                self._enter(unique)
            try:
                move = self._start_move()
            except BaseException as error:
                self._fail(error)
                raise
        return CachedRows(self, move, inverse)

    def replay_up_to(self, move: Move, timeout_secs: float | None) -> None:
        """Replays all plans up to that of ``move``, each when its rows have arrived."""
        with self._replaying:
            while not move.done:
                self._check_usable()
                if move.dropped:
                    raise RuntimeError(
                        "these rows were dropped when batches announced before were forgotten"
                    )
                try:
                    self._complete(self._moves[0], timeout_secs)
                    with self._opening:
                        self._moves.popleft()
                        self._open_nearest()
                except BaseException as error:
                    self._fail(error)
                    with self._planning:
                        self._drop_moves()
                    raise

    def stats(self) -> dict[str, int | float]:
        """The storage engine's counters (see Storage.stats), and the sums of COUNTERS, EXCHANGED
        and STAGES over the batches delivered so far: ``cache_requests``, ``cache_hits`` and so on;
        ``cache_victim_prefetched``: victim hits whose rows were copied before their batch was due.
        """
        with self._counting:
            totals = {f"cache_{name}": value for name, value in self._totals.items()}
        totals["cache_victim_prefetched"] = self._executor.prefetched_rows if self._executor else 0
        return super().stats() | totals

    def close(self) -> None:
        """Closes the engine and frees the cache. Rows that were delivered stay valid."""
        if hasattr(self, "_moves") and not self.is_forked:
            with self._replaying, self._planning:
                self._failure = self._failure or "the feature loader is closed"
                self._drop_moves()
                self._announced.clear()
                self._executor = self._planner = None
        super().close()

    def _checked(self, ids: torch.Tensor) -> torch.Tensor:
        ids = vector_of_ids(ids)
        if len(ids):
            low, high = torch.aminmax(ids)
            if low < 0 or high >= self.storage.num_rows:
                raise ValueError(
                    f"ids: expected ids in [0, {self.storage.num_rows}), "
                    f"got {int(low if low < 0 else high)}"
                )
        return ids

    def _check_usable(self) -> None:
        if self._failure:
            raise RuntimeError(self._failure)

    def _enter(self, ids: torch.Tensor) -> None:
        """A batch enters the window."""
        self._push(ids)

    def _push(self, ids: torch.Tensor, rank_starts: torch.Tensor | None = None) -> None:
        start = time.perf_counter()
        self._planner.push(ids, rank_starts)
        self._announce_secs += time.perf_counter() - start

    def _take_announced(self, ids: torch.Tensor) -> None:
        if not torch.equal(self._announced[0], ids):
            raise ValueError(
                f"ids: expected the {len(self._announced[0])} ids of the oldest batch that was "
                f"announced, got {len(ids)} others; use a loader of its own for other rows"
            )
        self._announced.popleft()

    def _start_move(self) -> Move:
        start = time.perf_counter()
        plan = self._planner.plan()
        plan_secs = time.perf_counter() - start + self._announce_secs
        self._announce_secs = 0.0
        move = Move(plan, len(plan.ids) * self.storage.row_bytes)
        move.stats["plan_secs"] = plan_secs
        self._read(move)
        with self._opening:
            self._moves.append(move)
            self._open_nearest()
        return move

    def _read(self, move: Move) -> None:
        """Starts reading the rows that no memory tier will hold."""
        plan = move.plan
        positions = (plan.source == Source.STORAGE).nonzero().view(-1)
        if not self.reads_apart:
            move.rows = self._take_rows(len(plan.ids))
            if len(positions):
                move.ticket = self._reads.submit(plan.ids[positions], move.rows, positions)
            return
        buffer = self._read_pool.take(len(positions) * self.storage.row_bytes)
        move.staged = native.as_tensor(buffer, self.dtype).view(len(positions), self.dim)
        move.positions = positions.int()
        if len(positions):
            move.ticket = self._reads.submit(plan.ids[positions], move.staged)

    def _open_nearest(self) -> None:
        """Gives the batches that are due soon their memory, and lets rows of the victim buffer be
        prefetched to it."""
        for move in itertools.islice(self._moves, self._open_ahead):
            if move.is_open:
                continue
            plan = move.plan
            if move.rows is None:
                move.rows = self._take_rows(len(plan.ids))
            self._executor.open_batch(
                iteration=plan.iteration, source=plan.source, slot=plan.slot, out=move.rows
            )
            move.is_open = True

    def _complete(self, move: Move, timeout_secs: float | None) -> None:
        """Puts the rows of the oldest move where they are delivered."""
        self._wait_for_reads(move, timeout_secs)
        self._replay(move)
        self._finish(move)

    def _wait_for_reads(self, move: Move, timeout_secs: float | None) -> None:
        start = time.perf_counter()
        if move.ticket is not None:
            move.ticket.wait(timeout_secs)
        move.stats["read_wait_secs"] = time.perf_counter() - start

    def _replay(self, move: Move, targets: list[tuple] | None = None) -> None:
        """``targets``: where the rows go, as tensors (row_of, rows, places); by default, into those
        of the move."""
        start = time.perf_counter()
        plan = move.plan
        if move.staged is not None and len(move.staged):
            native.scatter_rows(move.staged, _IN_ORDER, move.rows, move.positions, self._threads)
        delivered = self._executor.replay(
            iteration=plan.iteration,
            source=plan.source,
            slot=plan.slot,
            evict_line=plan.evict_line,
            evict_slot=plan.evict_slot,
            evict_word=plan.evict_word,
            insert_position=plan.insert_position,
            insert_line=plan.insert_line,
            spill_position=plan.spill_position,
            spill_slot=plan.spill_slot,
            spill_word=plan.spill_word,
            tag_slot=plan.tag_slot,
            tag_word=plan.tag_word,
            out=move.rows,
            pool=self._threads,
            targets=targets,
        )
        move.delivered = move.rows = move.rows if delivered is None else delivered
        move.staged = move.positions = None
        move.stats["replay_secs"] = time.perf_counter() - start

    def _finish(self, move: Move) -> None:
        with self._counting:
            for name, value in move.stats.items():
                self._totals[name] += value
        move.plan = move.ticket = None
        move.done = True

    def _fail(self, error: BaseException) -> None:
        """After a plan that could not be carried out, tiers do not hold what later ones expect."""
        self._failure = (
            f"the feature cache lost rows in an earlier failure ({error}); open a new loader"
        )

    def _drop_moves(self) -> None:
        if self._executor is not None:
            self._executor.start_over()
        with self._opening:
            for move in self._moves:
                move.drop()
            self._moves.clear()
