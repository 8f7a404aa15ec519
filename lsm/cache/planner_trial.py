"""Chooses between planning on the host and on the GPU by a trial: both make the first plans. The
plans are the same, so either planner can continue."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import torch

from lsm.cache.planner import Plan, Planner, PlannerConfig
from lsm.cache.trial import Trial

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class TrialPlanner:
    """A Planner on the host and one on the GPU. Closes the slower one after a few plans.

    host: plans first during the trial; its plans are returned. gpu: the other planner, or a
    function that makes it. If the GPU's planner fails, the host continues, with a warning. clock:
    seconds.

    The trial times push() and plan() per id. Raises RuntimeError if the plans differ, which is a
    bug.
    """

    def __init__(
        self,
        host: Planner,
        gpu: Callable[[], Planner],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._planner = host
        self._other: Planner | None = None
        self.place = "auto"
        """The processor that plans: host or device; auto during the trial."""
        self._clock = clock
        self._start_trial()
        try:
            self._other = gpu()
        except (RuntimeError, ValueError) as error:
            self._stay_on_host(error)

    def push(self, ids: torch.Tensor, rank_starts: torch.Tensor | None = None) -> None:
        """As Planner.push()."""
        _, secs = self._timed(lambda: self._planner.push(ids, rank_starts))
        if self._other is None:
            return
        self._pushes["host"].append(secs)
        other = self._other
        try:
            _, secs = self._timed(lambda: other.push(ids, rank_starts))
        except (RuntimeError, TimeoutError, ValueError) as error:
            self._stay_on_host(error)
        else:
            self._pushes["device"].append(secs)

    def set_scores(self, scores: torch.Tensor) -> None:
        """As Planner.set_scores()."""
        self._planner.set_scores(scores)
        if self._other is None:
            return
        try:
            self._other.set_scores(scores)
        except (RuntimeError, TimeoutError) as error:
            self._stay_on_host(error)

    def plan(self) -> Plan:
        """As Planner.plan()."""
        plan, secs = self._timed(self._planner.plan)
        if self._other is None:
            return plan
        try:
            other, other_secs = self._timed(self._other.plan)
        except (RuntimeError, TimeoutError) as error:
            self._stay_on_host(error)
            return plan
        _check_same(plan, other)
        self._add("host", plan.num_rows, secs)
        self._add("device", plan.num_rows, other_secs)
        if self._trial.done:
            self._decide()
        return plan

    def restart(self) -> None:
        """As Planner.restart(). Restarts an unfinished trial, too."""
        self._planner.restart()
        if self._other is None:
            return
        self._start_trial()
        try:
            self._other.restart()
        except (RuntimeError, ValueError) as error:
            self._stay_on_host(error)

    def close(self) -> None:
        """As Planner.close()."""
        self._planner.close()
        self._other = None

    @property
    def config(self) -> PlannerConfig:
        """As Planner.config."""
        return self._planner.config

    @property
    def scores(self) -> torch.Tensor | None:
        """As Planner.scores."""
        return self._planner.scores

    @property
    def num_pushed(self) -> int:
        """As Planner.num_pushed."""
        return self._planner.num_pushed

    @property
    def num_planned(self) -> int:
        """As Planner.num_planned."""
        return self._planner.num_planned

    def metadata_bytes(self) -> dict[str, int]:
        """As Planner.metadata_bytes(), of the planner that continues."""
        return self._planner.metadata_bytes()

    def _start_trial(self) -> None:
        self._trial = Trial(("host", "device"))
        self._pushes: dict[str, deque[float]] = {"host": deque(), "device": deque()}

    def _timed(self, work: Callable[[], _T]) -> tuple[_T, float]:
        start = self._clock()
        result = work()
        return result, self._clock() - start

    def _add(self, option: str, num_ids: int, plan_secs: float) -> None:
        secs = self._pushes[option].popleft() + plan_secs
        if num_ids:
            self._trial.add(option, num_ids, secs)

    def _decide(self) -> None:
        rates, fastest = self._trial.rates(), self._trial.fastest
        logger.info(
            "cache.planner=auto takes %s: on the first batches the host planned %.1f and the GPU "
            "%.1f million ids per second",
            fastest,
            rates["host"] / 1e6,
            rates["device"] / 1e6,
        )
        if fastest == "device" and self._other is not None:
            self._planner = self._other
        self._end(fastest)

    def _stay_on_host(self, error: Exception) -> None:
        logger.warning("cache.planner=auto takes host: the GPU's planner failed: %s", error)
        self._end("host")

    def _end(self, place: str) -> None:
        self._other = None
        self._pushes.clear()
        self.place = place


def _check_same(plan: Plan, other: Plan) -> None:
    name = plan.native.difference(other.native)
    if name:
        raise RuntimeError(
            f"iteration {plan.iteration}: the plans of host and GPU differ in {name}, which is a "
            "fault of this program: please report it, and set cache.planner=host"
        )
