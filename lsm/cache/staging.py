"""How rows that were read from storage get from page-locked memory to a GPU."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from lsm import native
from lsm.cache.planner import Source
from lsm.cache.trial import Trial

logger = logging.getLogger(__name__)

WAYS = ("gather", "copy")

TRY_AGAIN = 1000
"""Batches after which auto tries both ways again: as the cache fills, fewer rows of a batch come
from storage, and they lie farther apart."""


class Staging:
    """Sets the way of an executor's replays (native.GpuExecutor.set_staging).

    way: gather: the kernel that gathers a batch reads them over PCIe; copy: the copy engines move
    whole runs of them; auto: both are tried in turns on the run's own batches, now and every
    TRY_AGAIN batches, and the faster is taken. What is delivered is the same. clock: seconds.
    """

    def __init__(
        self,
        way: str,
        executor: native.GpuExecutor,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if way not in ("auto", *WAYS):
            raise ValueError(f"staging: expected auto, gather or copy, got {way!r}")
        self._executor = executor
        self._clock = clock
        self._is_auto = way == "auto"
        self._trial = Trial(WAYS) if self._is_auto else None
        self._batches = 0
        self.way: str | None = None if self._is_auto else way
        """The way that was given, or found to be the faster; None before that."""
        if self.way is not None:
            executor.set_staging(self.way)

    @contextmanager
    def batch(self, source: torch.Tensor) -> Iterator[None]:
        """To be held while a batch is replayed, from the call to its end. ``source``: [n] uint8,
        a Source per row."""
        self._batches += 1
        if self._is_auto and self._batches % TRY_AGAIN == 0:
            self._trial = Trial(WAYS)
        trial = self._trial
        num_staged = int((source == Source.STORAGE).sum()) if trial else 0
        if trial is None or not num_staged:
            yield
            return
        way = trial.next
        self._executor.set_staging(way)
        start = self._clock()
        yield
        trial.add(way, num_staged, self._clock() - start)
        if trial.done:
            self._decide(trial)

    def _decide(self, trial: Trial) -> None:
        way, rates = trial.fastest, trial.rates()
        self._executor.set_staging(way)
        if way != self.way:
            logger.warning(
                "storage.staging=auto takes %s: batches with rows from storage took %.2f us per "
                "such row with gather, %.2f us with copy",
                way,
                *(1e6 / rates[name] for name in WAYS),
            )
        self.way = way
        self._trial = None
