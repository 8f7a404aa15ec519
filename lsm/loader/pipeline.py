"""Sampling and feature reads that run ahead of training, in iteration order and bounded memory."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from lsm.core.counters import READ_AHEAD
from lsm.core.profiler import stage
from lsm.core.threads import starting
from lsm.features.loader import FeatureLoader, PendingRows
from lsm.sampler.neighbor import PackedGraph, SampledGraph
from lsm.storage.read_ahead import Decision, InFlight, ReadAhead

# How often a blocked thread looks whether the pipeline was closed.
_POLL_SECS = 0.05
# How often the reads that the device still has are counted while more may be started.
_DEVICE_POLL_SECS = 0.002
# Batches that are made of what was read for them before training takes them, if they take more
# memory then: enough for copies to go on while training works.
COPIED_AHEAD = 2


PLANNER_BYTES_PER_ID = 24
"""Most that the next-use chain of a planner on the host takes for each id of the window."""


@dataclass(frozen=True)
class LoadedGraph:
    """A sampled graph, its rows (``x``: [num nodes, dim]) and what it took to make it."""

    iteration: int
    graph: SampledGraph
    x: torch.Tensor
    stats: dict[str, float]
    """COUNTERS, STAGES and READ_AHEAD of lsm.core.counters, and ``sample_secs``."""


@dataclass(frozen=True)
class _Sampled:
    iteration: int
    graph: SampledGraph | PackedGraph
    sample_secs: float

    @property
    def window_bytes(self) -> int:
        """Memory that it takes in a window, with what a planner knows of its nodes."""
        own = self.graph.num_bytes if isinstance(self.graph, PackedGraph) else 0
        return own + PLANNER_BYTES_PER_ID * len(self.graph.n_id)


@dataclass(frozen=True)
class _Staged:
    sampled: _Sampled
    rows: PendingRows
    x: Future | PendingRows
    read_ahead: dict[str, int]


class Pipeline:
    """Iterates over LoadedGraphs for iterations ``first`` to ``last - 1``, in order.

    Three stages run ahead of the consumer, each in iteration order:

    - ``num_threads`` threads sample. The graphs of the next ``features.window`` iterations are held
      and their nodes announced before the first of them asks for rows; at the end of the range the
      window runs dry. Graphs hold no rows, and may be packed. With ``window_bytes``, only
      as many are held as it has room for, and one at least; not so where ranks announce together.
    - One thread asks for the rows of as many iterations as ``read_ahead`` says, and at most
      ``staging_bytes`` of them (but for at least one iteration, or nothing would ever move). What
      counts is the memory they take at the time: rows that are cached take none until their batch
      is due.
    - Where rows are copied from a cache, one thread waits for their reads and copies.

    An error in any stage is raised to the consumer at the iteration where it happened.
    """

    def __init__(
        self,
        sample: Callable[[int], SampledGraph | PackedGraph],
        features: FeatureLoader,
        *,
        first: int,
        last: int,
        read_ahead: ReadAhead,
        staging_bytes: int,
        num_threads: int,
        timeout_secs: float,
        window_bytes: int | None = None,
    ) -> None:
        features.claim()
        self._sample = sample
        self._features = features
        self._iterations = range(first, last)
        self._max_sampling = read_ahead.iterations + num_threads
        self._read_ahead = read_ahead
        self._staging_bytes = staging_bytes
        # Ranks that announce together must do so equally often, or one waits for the other's next.
        self._window_bytes = None if features.peer_timeout_secs else window_bytes
        self._timeout_secs = timeout_secs
        self._sample_secs = timeout_secs + features.peer_timeout_secs
        self._rows_secs = 2 * (timeout_secs + features.peer_timeout_secs)
        self._closed = threading.Event()
        self._staged: queue.SimpleQueue[_Staged | BaseException] = queue.SimpleQueue()
        self._room = threading.Condition()
        self._in_flight: deque[PendingRows] = deque()
        self._num_complete = 0  # of those in flight that were copied and wait for training
        self._last_sample = time.monotonic()
        self._num_threads = num_threads
        self._samplers = ThreadPoolExecutor(num_threads, thread_name_prefix="lsm-sample")
        self._completer = ThreadPoolExecutor(1, thread_name_prefix="lsm-rows")
        self._reader = threading.Thread(target=self._run, name="lsm-read", daemon=True)
        with starting("sampler.num_threads", num_threads):
            self._reader.start()

    def __iter__(self) -> Iterator[LoadedGraph]:
        for iteration in self._iterations:
            yield self._next(iteration)

    def close(self) -> None:
        """Ends all threads; what was staged is dropped. Reads under way are abandoned, but for
        those of one iteration, which are waited for. Does nothing in a forked process."""
        if self._features.is_forked:
            return  # the threads, and the word of other ranks, are the parent's
        self._closed.set()
        with self._room:
            self._room.notify_all()
        self._features.leave()
        self._reader.join(self._sample_secs)
        self._samplers.shutdown(wait=True, cancel_futures=True)
        self._completer.shutdown(wait=True, cancel_futures=True)
        try:
            self._features.forget_announced()
        finally:
            self._features.release()

    def _next(self, iteration: int) -> LoadedGraph:
        self._features.check_process()
        staged = self._next_staged(iteration)
        graph, x = self._completed(staged)
        self._leave()
        stats = staged.rows.stats | staged.read_ahead
        stats["sample_secs"] = staged.sampled.sample_secs
        return LoadedGraph(iteration, graph, x, stats)

    def _next_staged(self, iteration: int) -> _Staged:
        asked = time.monotonic()
        while True:
            try:
                staged = self._staged.get(timeout=_POLL_SECS)
            except queue.Empty:
                if time.monotonic() > max(asked, self._last_sample) + self._sample_secs:
                    raise TimeoutError(
                        f"the sample of iteration {iteration} was not ready: none was finished "
                        f"within {self._sample_secs} s"
                    ) from None
                continue
            if isinstance(staged, BaseException):
                raise staged
            return staged

    def _completed(self, staged: _Staged) -> tuple[SampledGraph, torch.Tensor]:
        if staged.x is staged.rows:
            return staged.sampled.graph, staged.rows.result(self._timeout_secs)
        # The completing thread began to wait no later than now and has the same patience; its error
        # says more. The extra time is for the copies.
        try:
            return staged.x.result(self._rows_secs)
        except TimeoutError:
            if staged.x.done():
                raise
            raise TimeoutError(
                f"the rows of iteration {staged.sampled.iteration} were not ready within "
                f"{self._rows_secs} s"
            ) from None

    def _run(self) -> None:
        """The reader thread: keeps the samplers busy and starts reads in iteration order."""
        sampling: deque[tuple[int, Future]] = deque()
        announced: deque[_Sampled] = deque()
        to_sample = iter(self._iterations)
        try:
            while not self._closed.is_set():
                while self._has_room(announced):
                    self._keep_sampling(sampling, to_sample)
                    if not sampling:
                        break
                    announced.append(self._await(*sampling.popleft()))
                    self._features.announce(announced[-1].graph.n_id)
                self._keep_sampling(sampling, to_sample)
                if not announced:
                    return
                self._stage(announced.popleft())
        except _ClosedError:
            pass
        except BaseException as error:
            # Whatever it was, the consumer must hear of it instead of waiting for its time-out.
            self._staged.put(error)

    def _has_room(self, announced: deque[_Sampled]) -> bool:
        """Whether one more iteration, of the size of the last, fits the window."""
        if not announced or self._window_bytes is None:
            return len(announced) < self._features.window
        held = sum(sampled.window_bytes for sampled in announced) + announced[-1].window_bytes
        return len(announced) < self._features.window and held <= self._window_bytes

    def _keep_sampling(self, sampling: deque[tuple[int, Future]], to_sample: Iterator[int]) -> None:
        while len(sampling) < self._max_sampling:
            iteration = next(to_sample, None)
            if iteration is None:
                return
            with starting("sampler.num_threads", self._num_threads):
                future = self._samplers.submit(self._timed_sample, iteration)
            sampling.append((iteration, future))

    def _timed_sample(self, iteration: int) -> tuple[SampledGraph | PackedGraph, float]:
        start = time.perf_counter()
        with stage("sample"):
            graph = self._sample(iteration)
        return graph, time.perf_counter() - start

    def _await(self, iteration: int, future: Future) -> _Sampled:
        while True:
            try:
                graph, sample_secs = future.result(timeout=_POLL_SECS)
            except TimeoutError:
                if future.done():
                    raise
                self._check_open()
                continue
            self._last_sample = time.monotonic()
            return _Sampled(iteration, graph, sample_secs)

    def _stage(self, sampled: _Sampled) -> None:
        self._await_room(sampled.graph.n_id.numel() * self._features.storage.row_bytes)
        self._features.reads.in_flight(len(self._in_flight) + 1)
        with stage("plan"):
            rows = self._features.prefetch(sampled.graph.n_id)
        with self._room:
            self._in_flight.append(rows)
            seen = (len(self._in_flight), self._features.storage.outstanding_reads)
        x = rows
        if self._features.copies_rows:
            x = self._completer.submit(self._complete, rows, sampled.graph)
        read_ahead = dict(zip(READ_AHEAD, seen, strict=True))
        self._staged.put(_Staged(sampled, rows, x, read_ahead))

    def _complete(
        self, rows: PendingRows, graph: SampledGraph | PackedGraph
    ) -> tuple[SampledGraph, torch.Tensor]:
        with self._room:
            while self._features.reads_apart and self._num_complete >= COPIED_AHEAD:
                self._check_open()
                self._room.wait(_POLL_SECS)
            self._num_complete += 1
        with stage("rows"):
            unpacked = graph.unpack() if isinstance(graph, PackedGraph) else graph
            return unpacked, rows.result(self._timeout_secs)

    def _await_room(self, num_bytes: int) -> None:
        """Blocks until the reads of an iteration whose rows take ``num_bytes`` may start."""
        with self._room:
            while True:
                self._check_open()
                decision = self._read_ahead.decide(self._flight(), num_bytes, self._staging_bytes)
                if decision is Decision.START:
                    return
                # Training says when it takes rows; the device does not say when it runs short.
                accesses = self._read_ahead.accesses
                waits = accesses > 0 and self._features.reads.keep_busy(accesses)
                for_device = waits or decision is Decision.WAIT_FOR_DEVICE
                self._room.wait(_DEVICE_POLL_SECS if for_device else _POLL_SECS)

    def _flight(self) -> InFlight:
        return InFlight(
            iterations=len(self._in_flight),
            ready=sum(rows.arrived for rows in self._in_flight),
            row_bytes=self._row_bytes(),
            reads=self._features.storage.outstanding_reads,
        )

    def _row_bytes(self) -> int:
        return sum(rows.num_bytes for rows in self._in_flight)

    def _leave(self) -> None:
        """Training has taken the oldest rows in flight."""
        with self._room:
            self._in_flight.popleft()
            self._num_complete -= self._features.copies_rows
            self._room.notify_all()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise _ClosedError


class _ClosedError(Exception):
    """The consumer has gone away; the reader thread ends quietly."""
