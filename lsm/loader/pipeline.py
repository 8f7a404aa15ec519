"""Sampling and feature reads that run ahead of training, in iteration order and bounded memory."""

from __future__ import annotations

import atexit
import queue
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Any

from lsm.core.counters import READ_AHEAD
from lsm.core.device import HOST, device_of
from lsm.core.profiler import span
from lsm.core.threads import starting
from lsm.features.row_source import RowSource
from lsm.loader.prepared import Prepared, Sample, Window
from lsm.loader.rows_in_flight import POLL_SECS, ClosedError, RowsInFlight, RunAhead


class Pipeline:
    """Iterates over Prepared batches for iterations ``first`` to ``last - 1``, in order.

    Three steps run ahead of the consumer, each in iteration order:

    - ``policy.num_threads`` threads call ``seeds_at``, which returns an iteration's seeds, and
      ``sample``, which returns the Sample of seeds. Before the first of the next ``rows.window``
      iterations requests its rows, the window holds all their samples and has announced their
      nodes; at the end of the range it runs dry. A window of several iterations packs its samples.
      ``policy.window_bytes`` bounds them, but for one, unless ranks announce together.
    - One thread requests rows from ``rows`` for the iterations that ``policy.read_ahead`` allows,
      and at most ``policy.staging_bytes`` of rows (but for one iteration, else nothing would ever
      move). Only present memory counts: cached rows take none until their batch is due.
    - Where rows are copied, one thread completes ``rows.completed_ahead`` batches.

    Any step raises its error to the consumer at the iteration where it happened.
    """

    def __init__(
        self,
        seeds_at: Callable[[int], Any],
        sample: Callable[[Any], Sample],
        rows: RowSource,
        *,
        first: int,
        last: int,
        policy: RunAhead,
    ) -> None:
        self._seeds_at, self._sample = seeds_at, sample
        self._rows = rows
        self._policy = policy
        self._iterations = range(first, last)
        self._packs = rows.window > 1
        # Ranks that announce together must do so equally often, or one waits for another in vain.
        self._window_bytes = None if rows.peer_timeout_secs else policy.window_bytes
        self._sample_secs = policy.timeout_secs + rows.peer_timeout_secs
        self._rows_secs = 2 * self._sample_secs
        self._flight = RowsInFlight(rows, policy)
        self._started: queue.SimpleQueue[Prepared | BaseException] = queue.SimpleQueue()
        self._last_sample = time.monotonic()
        self._to_sample: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._sampled: queue.SimpleQueue[tuple[int, Prepared | BaseException]] = queue.SimpleQueue()
        self._early: dict[int, Prepared | BaseException] = {}  # samples whose turn will come
        self._to_complete: queue.SimpleQueue[Prepared | None] = queue.SimpleQueue()
        self._completed: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        # No executor: the interpreter joins its threads before it lets anybody close the pipeline.
        self._threads: list[threading.Thread] = []  # the reader is the first
        self._num_samplers = min(policy.num_threads, len(self._iterations))
        rows.claim()
        try:
            with starting("loader.num_threads", policy.num_threads):
                self._start_thread(self._run, "lsm-read")
                self._start_thread(self._complete_all, "lsm-rows")
                for _ in range(self._num_samplers):
                    self._start_thread(self._sample_all, "lsm-sample")
        except BaseException:  # also Ctrl-C, after which a notebook iterates again
            self.close()
            raise
        _OPEN.add(self)

    def _start_thread(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def __iter__(self) -> Generator[Prepared, None, None]:
        for iteration in self._iterations:
            yield self._next(iteration)

    def close(self) -> None:
        """Ends all threads and drops all batches. Abandons reads in flight, except those of one
        iteration, for which it blocks. Does nothing a second time, nor in a forked process."""
        if self._flight.is_closed or self._rows.is_forked:
            return  # in a forked process the threads, and the messages of ranks, are the parent's
        self._end_threads()
        try:
            self._rows.forget_announced()
        finally:
            self._rows.release()

    def _end_threads(self) -> None:
        self._flight.close()
        for _ in range(self._num_samplers):
            self._to_sample.put(None)
        self._to_complete.put(None)
        self._rows.leave()
        threads = [thread for thread in self._threads if thread.ident is not None]  # have started
        for thread in threads[1:]:
            thread.join(self._rows_secs)
        # The reader may wait for ids of ranks that wait for rows of this one.
        self._rows.leave_rows()
        for thread in threads[:1]:
            thread.join(self._rows_secs)

    def _next(self, iteration: int) -> Prepared:
        self._rows.check_process()
        prepared = self._next_started(iteration)
        self._await_rows(prepared)
        self._flight.take()
        prepared.stats |= prepared.rows.stats
        return prepared

    def _next_started(self, iteration: int) -> Prepared:
        asked = time.monotonic()
        while True:
            try:
                started = self._started.get(timeout=POLL_SECS)
            except queue.Empty:
                if time.monotonic() > max(asked, self._last_sample) + self._sample_secs:
                    raise TimeoutError(
                        f"the sample of iteration {iteration} was not ready: none was finished "
                        f"within {self._sample_secs} s"
                    ) from None
                continue
            if isinstance(started, BaseException):
                raise started
            return started

    def _await_rows(self, prepared: Prepared) -> None:
        if self._rows.completed_ahead == 0:
            self._take_rows(prepared)
            return
        # The completing thread began to wait no later than now, with the same time-out, and its
        # error tells more. The extra time is for the copies.
        try:
            error = self._completed.get(timeout=self._rows_secs)
        except queue.Empty:
            raise TimeoutError(
                f"the rows of iteration {prepared.iteration} were not ready within "
                f"{self._rows_secs} s"
            ) from None
        if error is not None:
            raise error

    def _run(self) -> None:
        """The reader thread: keeps the samplers busy and starts reads in iteration order."""
        announced = Window(self._rows.window, self._window_bytes)
        to_sample, to_announce = iter(self._iterations), iter(self._iterations)
        try:
            self._draw_next(to_sample, self._policy.read_ahead.iterations + self._num_samplers)
            while not self._flight.is_closed:
                while announced.has_room():
                    iteration = next(to_announce, None)
                    if iteration is None:
                        break
                    prepared = self._await(iteration)
                    self._draw_next(to_sample, 1)
                    self._announce(prepared)
                    announced.append(prepared)
                    del prepared
                if not announced:
                    return
                self._start(announced.take())
        except ClosedError:
            pass
        except BaseException as error:
            # Any error must reach the consumer, which would otherwise wait for its time-out.
            self._started.put(error)

    def _announce(self, prepared: Prepared) -> None:
        sample = prepared.sample
        prepared.announced = self._rows.announce(sample.ids, repeats=sample.repeats)

    def _draw_next(self, to_sample: Iterator[int], count: int) -> None:
        for iteration in islice(to_sample, count):
            self._to_sample.put(iteration)

    def _sample_all(self) -> None:
        """A sampling thread."""
        while (iteration := self._to_sample.get()) is not None and not self._flight.is_closed:
            try:
                self._sampled.put((iteration, self._draw(iteration)))
            except BaseException as error:  # for the consumer, whatever it was
                self._sampled.put((iteration, error))

    def _draw(self, iteration: int) -> Prepared:
        start = time.perf_counter()
        with span("sample"):
            seeds = self._seeds_at(iteration)
            sample = self._sample(seeds)
            if self._packs:
                sample = sample.pack()
        return Prepared(iteration, seeds, sample, {"sample_secs": time.perf_counter() - start})

    def _await(self, iteration: int) -> Prepared:
        """The sample of ``iteration``; the threads may finish others before it."""
        while iteration not in self._early:
            try:
                number, sampled = self._sampled.get(timeout=POLL_SECS)
            except queue.Empty:
                self._flight.check_open()
            else:
                self._early[number] = sampled
        self._last_sample = time.monotonic()
        sampled = self._early.pop(iteration)
        if isinstance(sampled, BaseException):
            raise sampled
        return sampled

    def _start(self, prepared: Prepared) -> None:
        """Requests the rows of the oldest announced batch."""
        self._flight.await_room(prepared.announced.num_bytes)
        self._rows.reads.in_flight(len(self._flight) + 1)
        with span("plan"):
            prepared.rows = prepared.announced.start()
        seen = self._flight.add(prepared.rows)
        prepared.stats |= dict(zip(READ_AHEAD, seen, strict=True))
        if self._rows.completed_ahead > 0:
            self._to_complete.put(prepared)
        self._started.put(prepared)

    def _complete_all(self) -> None:
        while (prepared := self._to_complete.get()) is not None and not self._flight.is_closed:
            try:
                self._complete(prepared)
            except BaseException as error:  # for the consumer, whatever it was
                self._completed.put(error)
                return  # other ranks may wait for this batch, and would not come to the next
            self._completed.put(None)
            del prepared  # its memory is the consumer's while the next is awaited

    def _complete(self, prepared: Prepared) -> None:
        """Waits for the rows of the oldest batch whose reads have been started."""
        self._flight.await_completion()
        self._take_rows(prepared)

    def _take_rows(self, prepared: Prepared) -> None:
        with span("rows"):
            prepared.x = prepared.rows.result(self._policy.timeout_secs)
            # Another thread copies the graph, so the copy takes no time of the thread that trains.
            is_ahead = self._rows.completed_ahead > 0
            prepared.sample = prepared.sample.unpack(device_of(prepared.x) if is_ahead else HOST)


_OPEN: weakref.WeakSet[Pipeline] = weakref.WeakSet()


@atexit.register
def _close_open() -> None:
    """Closes the pipelines of unfinished iterators before the interpreter ends."""
    for pipeline in list(_OPEN):
        pipeline.close()
