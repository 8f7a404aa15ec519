"""The transfer of rows from staging (page-locked memory) to a GPU."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lsm import native
from lsm.cache.trial import Trial

logger = logging.getLogger(__name__)

OPTIONS = ("gather", "copy")
_RESIDENT = "resident"

TRY_AGAIN = 1000
"""Batches between two trials of auto. As the cache fills, fewer rows of a batch come from storage,
and they lie farther apart."""


class Staging:
    """Chooses the path of rows from staging to an executor's replays
    (native.GpuExecutor.set_staging).

    option: gather: a kernel reads rows over PCIe; copy: a copy engine moves all of them to the GPU,
    where a kernel brings them to their places; resident: rows are in GPU memory already; auto:
    tries gather and copy in turn on the run's own batches, at the start and every TRY_AGAIN
    batches, and takes the faster. The delivered rows are the same. clock: seconds.
    """

    def __init__(
        self,
        option: str,
        executor: native.GpuExecutor,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if option not in ("auto", _RESIDENT, *OPTIONS):
            raise ValueError(f"staging: expected auto, gather or copy, got {option!r}")
        self._executor = executor
        self._clock = clock
        self._is_auto = option == "auto"
        self._trial = Trial(OPTIONS) if self._is_auto else None
        self._batches = 0
        self.option: str | None = None if self._is_auto else option
        """The option given or found to be the faster; None before the first trial has ended."""
        if self.option is not None:
            executor.set_staging(self.option)

    @contextmanager
    def batch(self, num_staged: int) -> Iterator[None]:
        """A context around the replay of one batch, from the call to its end. ``num_staged``: its
        rows from storage."""
        self._batches += 1
        if self._is_auto and self._batches % TRY_AGAIN == 0:
            self._trial = Trial(OPTIONS)
        trial = self._trial
        if trial is None or not num_staged:
            yield
            return
        option = trial.next
        self._executor.set_staging(option)
        start = self._clock()
        yield
        trial.add(option, num_staged, self._clock() - start)
        if trial.done:
            self._decide(trial)

    def _decide(self, trial: Trial) -> None:
        option, rates = trial.fastest, trial.rates()
        self._executor.set_staging(option)
        if option != self.option:
            logger.info(
                "storage.staging=auto takes %s: batches with rows from storage took %.2f us per "
                "such row with gather, %.2f us with copy",
                option,
                *(1e6 / rates[name] for name in OPTIONS),
            )
        self.option = option
        self._trial = None
