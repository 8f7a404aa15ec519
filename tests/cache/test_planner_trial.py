"""planner=auto: host and GPU (here its twin) make the first plans, and the faster continues with
the same state. The test sets the clock."""

import logging

import pytest
import torch

from lsm.cache.planner import Planner
from lsm.cache.planner_trial import TrialPlanner
from lsm.cache.trial import Trial
from support.native_plans import config_of, skewed_batches
from support.planner_traces import MOVES

CONFIG = config_of("lookahead", "pool", 40, 8, window=5)


class SlowPlanner:
    """A Planner whose calls each take a given time of the clock's."""

    def __init__(self, planner, clock, push_secs, plan_secs):
        self.planner, self._clock = planner, clock
        self._push_secs, self._plan_secs = push_secs, plan_secs

    def push(self, *arguments):
        self._clock[0] += self._push_secs
        self.planner.push(*arguments)

    def plan(self):
        self._clock[0] += self._plan_secs
        return self.planner.plan()

    def __getattr__(self, name):
        return getattr(self.planner, name)


def run(planner, batches, window=CONFIG.window):
    """All plans, each as its arrays."""
    for t in range(len(batches)):
        for ids in batches[planner.num_pushed : t + window]:
            planner.push(ids)
        plan = planner.plan()
        yield [getattr(plan, name) for name in MOVES]


def same(plans, others):
    return all(
        all(map(torch.equal, plan, other)) for plan, other in zip(plans, others, strict=True)
    )


@pytest.mark.parametrize(
    ("host_secs", "gpu_secs", "expected"),
    [
        ((1.0, 3.0), (2.0, 1.5), "device"),  # slower to push, faster in all
        ((1.0, 2.0), (3.0, 1.0), "host"),
        ((2.0, 1.0), (1.0, 2.0), "host"),  # as fast: nothing is gained by the GPU
    ],
)
def test_the_faster_one_goes_on(caplog, host_secs, gpu_secs, expected):
    clock, batches = [0.0], skewed_batches(seed=4, num_batches=40)
    planner = TrialPlanner(
        SlowPlanner(Planner(CONFIG), clock, *host_secs),
        lambda: SlowPlanner(Planner(CONFIG, sets="twin"), clock, *gpu_secs),
        clock=lambda: clock[0],
    )
    with caplog.at_level(logging.INFO):
        assert same(run(planner, batches), run(Planner(CONFIG), batches))
    assert planner.place == expected
    (said,) = [each.getMessage() for each in caplog.records]
    assert said.startswith(f"cache.planner=auto takes {expected}: on the first batches the host")
    spent = clock[0]
    planner.push(torch.arange(3))
    planner.plan()
    assert clock[0] - spent == sum(host_secs if expected == "host" else gpu_secs)


def test_batches_without_ids_are_not_timed():
    planner = TrialPlanner(Planner(CONFIG), lambda: Planner(CONFIG, sets="twin"), clock=lambda: 0.0)
    list(run(planner, [torch.empty(0, dtype=torch.int64)] * 30))
    assert planner.place == "auto"


class Failing:
    """A planner that fails at the ``at``-th call of one of its methods."""

    def __init__(self, method, at, error):
        self._planner = Planner(CONFIG, sets="twin")
        self._method, self._left, self._error = method, at, error

    def push(self, *arguments):
        self._count("push")
        self._planner.push(*arguments)

    def plan(self):
        self._count("plan")
        return self._planner.plan()

    def _count(self, method):
        if method == self._method:
            self._left -= 1
            if self._left < 0:
                raise self._error


@pytest.mark.parametrize("method", ["push", "plan"])
@pytest.mark.parametrize("at", [0, 7])
def test_a_gpu_that_fails_leaves_the_host(caplog, method, at):
    batches = skewed_batches(seed=5)
    error = RuntimeError("CUDA: allocate 9 bytes of GPU memory: cudaErrorMemoryAllocation")
    planner = TrialPlanner(Planner(CONFIG), lambda: Failing(method, at, error))
    with caplog.at_level(logging.INFO):
        assert same(run(planner, batches), run(Planner(CONFIG), batches))
    assert planner.place == "host"
    assert [str(error) in each.getMessage() for each in caplog.records] == [True]


def test_a_gpu_planner_that_cannot_be_made_leaves_the_host():
    def make():
        raise RuntimeError("out of memory")

    planner = TrialPlanner(Planner(CONFIG), make)
    assert planner.place == "host"
    batches = skewed_batches(seed=5, num_batches=9)
    assert same(run(planner, batches), run(Planner(CONFIG), batches))


def test_plans_that_differ_are_an_error():
    other = config_of("lru", "pool", 40, 8, window=5)
    planner = TrialPlanner(Planner(CONFIG), lambda: Planner(other))
    with pytest.raises(RuntimeError, match=r"plans of host and GPU differ in .*cache\.planner=ho"):
        list(run(planner, skewed_batches(seed=6)))


def test_bad_input_is_refused_by_both(caplog):
    planner = TrialPlanner(Planner(CONFIG), lambda: Planner(CONFIG, sets="twin"))
    with pytest.raises(ValueError, match="distinct ids"):
        planner.push(torch.tensor([1, 2, 1]))
    assert planner.num_pushed == planner.num_planned == 0
    planner.push(torch.tensor([1, 2]))
    assert len(planner.plan().ids) == 2
    assert planner.metadata_bytes()["lines"] > 0
    assert not caplog.records


def test_a_trial_goes_by_medians_after_the_warm_up():
    trial = Trial(("a", "b"), warm_up=1, rounds=3)
    for secs in (9, 1, 1, 100):
        assert not trial.done
        assert trial.next == "a"
        trial.add("a", 10, secs)
        assert trial.next == "b"
        trial.add("b", 10, 2 if secs < 100 else 0.1)
    assert trial.done
    assert trial.rates() == {"a": 10, "b": 5}
    assert trial.fastest == "a"
