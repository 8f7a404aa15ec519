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

from lsm.feature_loader import FeatureLoader, PendingRows
from lsm.sampler import SampledGraph

# How often a blocked thread looks whether the pipeline was closed.
_POLL_SECS = 0.05


@dataclass(frozen=True)
class LoadedGraph:
    """A sampled graph, its rows (``x``: [num nodes, dim]) and what it took to make it."""

    iteration: int
    graph: SampledGraph
    x: torch.Tensor
    sample_secs: float


@dataclass(frozen=True)
class _Staged:
    iteration: int
    graph: SampledGraph
    rows: PendingRows
    sample_secs: float


class Pipeline:
    """Iterates over LoadedGraphs for iterations ``first`` to ``last - 1``, in order.

    ``num_threads`` threads sample; one thread starts the feature reads of sampled iterations, at
    most ``prefetch`` of them ahead of the consumer and at most ``staging_bytes`` of rows (but at
    least one iteration, or nothing would ever move). An error in any stage is raised to the
    consumer at the iteration where it happened.
    """

    def __init__(
        self,
        sample: Callable[[int], SampledGraph],
        features: FeatureLoader,
        *,
        first: int,
        last: int,
        prefetch: int,
        staging_bytes: int,
        num_threads: int,
        timeout_secs: float,
    ) -> None:
        self._sample = sample
        self._features = features
        self._iterations = range(first, last)
        self._lookahead = prefetch + num_threads
        self._staging_bytes = staging_bytes
        self._timeout_secs = timeout_secs
        self._closed = threading.Event()
        self._staged: queue.Queue[_Staged | BaseException] = queue.Queue(maxsize=prefetch)
        self._staged_bytes = 0
        self._room = threading.Condition()
        self._samplers = ThreadPoolExecutor(num_threads, thread_name_prefix="lsm-sample")
        self._reader = threading.Thread(target=self._run, name="lsm-read", daemon=True)
        self._reader.start()

    def __iter__(self) -> Iterator[LoadedGraph]:
        for iteration in self._iterations:
            staged = self._next_staged(iteration)
            x = staged.rows.result(self._timeout_secs)
            with self._room:
                self._staged_bytes -= staged.rows.num_bytes
                self._room.notify_all()
            yield LoadedGraph(iteration, staged.graph, x, staged.sample_secs)

    def close(self) -> None:
        """Ends all threads; what was staged is dropped. Reads under way are abandoned."""
        self._closed.set()
        with self._room:
            self._room.notify_all()
        self._reader.join(self._timeout_secs)
        self._samplers.shutdown(wait=True, cancel_futures=True)

    def _next_staged(self, iteration: int) -> _Staged:
        deadline = time.monotonic() + self._timeout_secs
        while True:
            try:
                staged = self._staged.get(timeout=_POLL_SECS)
            except queue.Empty:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"the sample of iteration {iteration} was not ready within "
                        f"{self._timeout_secs} s"
                    ) from None
                continue
            if isinstance(staged, BaseException):
                raise staged
            return staged

    def _run(self) -> None:
        """The reader thread: keeps the samplers busy and starts reads in iteration order."""
        sampling: deque[tuple[int, Future]] = deque()
        to_sample = iter(self._iterations)
        try:
            while not self._closed.is_set():
                while len(sampling) < self._lookahead:
                    iteration = next(to_sample, None)
                    if iteration is None:
                        break
                    future = self._samplers.submit(self._timed_sample, iteration)
                    sampling.append((iteration, future))
                if not sampling:
                    return
                iteration, future = sampling.popleft()
                graph, sample_secs = self._await(future)
                self._stage(iteration, graph, sample_secs)
        except _ClosedError:
            pass
        except BaseException as error:
            # Whatever it was, the consumer must hear of it instead of waiting for its time-out.
            self._put(error)

    def _timed_sample(self, iteration: int) -> tuple[SampledGraph, float]:
        start = time.perf_counter()
        graph = self._sample(iteration)
        return graph, time.perf_counter() - start

    def _await(self, future: Future) -> tuple[SampledGraph, float]:
        while True:
            try:
                return future.result(timeout=_POLL_SECS)
            except TimeoutError:
                if future.done():
                    raise
                self._check_open()

    def _stage(self, iteration: int, graph: SampledGraph, sample_secs: float) -> None:
        num_bytes = graph.n_id.numel() * self._features.storage.row_bytes
        with self._room:
            while self._staged_bytes and self._staged_bytes + num_bytes > self._staging_bytes:
                self._check_open()
                self._room.wait(_POLL_SECS)
            self._staged_bytes += num_bytes
        rows = self._features.prefetch(graph.n_id)
        self._put(_Staged(iteration, graph, rows, sample_secs))

    def _put(self, item: _Staged | BaseException) -> None:
        while not self._closed.is_set():
            try:
                self._staged.put(item, timeout=_POLL_SECS)
            except queue.Full:
                continue
            return

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise _ClosedError


class _ClosedError(Exception):
    """The consumer has gone away; the reader thread ends quietly."""
