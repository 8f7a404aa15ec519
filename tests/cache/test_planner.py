"""The native planner equals the reference, plan by plan, on random traces."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm.cache import planner as cache
from lsm.cache.planner import Planner, PlannerConfig, simulate, simulate_optimal
from reference.planner import ReferencePlanner
from support.optimal_cache import optimal_hits
from support.planner_golden import BATCHES, GOLDEN_MISSES, NUM_LINES, SCORES, WAYS, WINDOW
from support.planner_traces import (
    ARRAYS,
    POLICIES,
    assert_same_array,
    plans,
    power_law_trace,
    replay,
)

MODES = ("none", "queues", "pool")


def tensors(batches):
    return [torch.tensor(batch, dtype=torch.int64) for batch in batches]


def planner_of(settings, arguments, num_threads):
    arguments = {
        name: tensors(value) if name == "trace" else torch.as_tensor(value)
        for name, value in arguments.items()
    }
    return Planner(settings, **arguments, num_threads=num_threads)


def rank_starts_of(batches, num_ranks):
    """Any positions that rise from 0 to at most the length of the batch."""
    rng = np.random.default_rng(num_ranks)
    return [
        [0, *sorted(rng.integers(0, len(batch) + 1, num_ranks - 1).tolist())] for batch in batches
    ]


def assert_equal_plans(settings, batches, arguments, threads=(1, 3), num_ranks=1):
    """Compares every field of every plan, at each number of threads."""
    if settings.policy == "belady":
        arguments = arguments | {"trace": batches}
    window = settings.window
    starts = rank_starts_of(batches, num_ranks)
    expected = list(plans(ReferencePlanner(settings, **arguments), batches, window, starts))
    for num_threads in threads:
        planner = planner_of(settings, arguments, num_threads)
        made = plans(planner, tensors(batches), window, None if num_ranks == 1 else tensors(starts))
        for plan, reference in zip(made, expected, strict=True):
            where = f"iteration {reference.iteration}, {num_threads} threads"
            assert plan.iteration == reference.iteration
            for name in ARRAYS:
                array = getattr(plan, name).numpy()
                assert_same_array(array, getattr(reference, name), f"{name} of {where}")
            assert plan.counters == reference.counters, where
    tiers = {name: arguments[name] for name in arguments if name.endswith("_ids")}
    replay(expected, window, **tiers)
    return expected


@st.composite
def cases(draw, policy, mode):
    """(config, batches, the planner's other arguments). Nodes and batches are drawn to the size of
    the cache, low nodes more often, so that lines are hit, leave and come back."""
    num_sets = draw(st.integers(1, 6))
    ways = draw(st.integers(1, 4) | st.integers(1, 64))
    num_lines = num_sets * ways
    num_nodes = 1 + int(num_lines * draw(st.sampled_from([0.5, 2, 4])))
    max_batch = 1 + min(80, int(num_lines * draw(st.sampled_from([0.2, 0.7, 2]))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    batches = []
    for _ in range(draw(st.integers(1, 60))):
        drawn = (num_nodes * rng.random(rng.integers(0, max_batch + 1)) ** 2).astype(int)
        batches.append(list(dict.fromkeys(drawn.tolist())))
    config = PlannerConfig(
        num_lines=num_lines,
        ways=ways,
        policy=policy,
        window=draw(st.integers(1, 40)),
        update_period=draw(st.integers(1, 6)),
        near_fraction=draw(st.sampled_from([0.0, 0.1, 0.125, 0.3, 1.0])),
        victim_mode=mode,
        victim_rows=draw(st.integers(1, 12)) if mode != "none" else 0,
        seed=draw(st.integers(0, 2**64 - 1)),
    )
    arguments = {}
    if draw(st.booleans()):
        # Few distinct scores, so that they tie.
        arguments["scores"] = rng.integers(0, 5, num_nodes).astype(np.float32) / 4
    for name in ("static_ids", "constant_ids"):
        if draw(st.booleans()):
            size = rng.integers(0, num_nodes // 4 + 1)
            arguments[name] = rng.choice(num_nodes, size, replace=False)
    return config, batches, arguments


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_traces(policy, mode, data):
    num_ranks = data.draw(st.sampled_from([1, 2, 256]))
    assert_equal_plans(*data.draw(cases(policy, mode)), num_ranks=num_ranks)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", POLICIES)
def test_power_law_trace(policy, mode):
    """A longer trace than hypothesis draws: queues move, ghosts fill, thousands of evictions."""
    batches = power_law_trace(num_batches=120, batch_size=48, num_nodes=2000)
    config = PlannerConfig(
        num_lines=3 * 20,
        ways=20,
        policy=policy,
        window=20,
        update_period=3,
        victim_mode=mode,
        victim_rows={"none": 0, "queues": 3, "pool": 10}[mode],
        seed=5,
    )
    scores = np.sqrt(np.arange(2000, 0, -1, dtype=np.float32))
    arguments = {"scores": scores, "static_ids": [3, 1, 900], "constant_ids": [7, 901]}
    expected = assert_equal_plans(config, batches, arguments, threads=[2])
    total = Counter()
    for plan in expected:
        total.update(plan.counters)
    assert total["evictions"] > 300
    assert total["bypasses"] > 0
    assert total["static_hits"] > 0 < total["constant_hits"]
    assert mode == "none" or total["victim_hits"] > 0 < total["victim_overflow"]


@pytest.mark.parametrize("policy", POLICIES)
def test_golden_miss_counts(policy):
    """Also of ``simulate``, whose loop is native: its counters are the planner's."""
    config = PlannerConfig(num_lines=WAYS, ways=WAYS, policy=policy, window=WINDOW)
    arguments = {"scores": torch.from_numpy(SCORES)}
    batches = tensors(BATCHES)
    misses = [
        sum(
            c["misses"]
            for c in simulate(batches, config.model_copy(update={"num_lines": n}), **arguments)
        )
        for n in NUM_LINES
    ]
    assert misses == GOLDEN_MISSES[policy]


def test_every_policy_is_tested():
    assert set(cache.POLICIES) == set(POLICIES)


def test_ids_of_any_size():
    """Ids and scores use all their bits."""
    batches = [[2**62 + 5, 1, 2**40], [7, 2**33, 2**62], [1, 2**40, 2**33 + 1], [2**62 + 5, 7]]
    for policy in POLICIES:
        config = PlannerConfig(num_lines=2, ways=2, policy=policy, window=4)
        config = config.model_copy(update={"victim_mode": "pool", "victim_rows": 2})
        assert_equal_plans(config, batches, {}, threads=[1])


def test_scores_are_ordered_as_floats():
    """Zeros of both signs, subnormal and huge scores."""
    values = np.array([0, -0.0, 1e-45, 1e-38, 1.0, 1 + 2**-23, 3e38, 5e-324], np.float32)
    rng = np.random.default_rng(0)
    batches = [[int(node)] for node in rng.integers(0, len(values), 200)]
    for policy in ("static", "hybrid", "lookahead"):
        config = PlannerConfig(num_lines=3, ways=3, policy=policy, window=4)
        assert_equal_plans(config, batches, {"scores": values}, threads=[1])


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "mode"), [("lookahead", "pool"), ("hybrid", "queues")])
def test_iterations_beyond_16_bits(policy, mode):
    """The packed word keeps a next use modulo 2^16; nothing may show where it wraps."""
    batches = [[] for _ in range(2**16 - 60)] + power_law_trace(120, 12, 150)
    config = PlannerConfig(
        num_lines=24, ways=8, policy=policy, window=40, victim_mode=mode, victim_rows=4
    )
    expected = [plan.counters for plan in plans(ReferencePlanner(config), batches, config.window)]
    assert simulate(tensors(batches), config) == expected


def test_simulated_belady_on_one_set():
    batches = power_law_trace(num_batches=60, batch_size=64, num_nodes=3000)
    for num_lines in (10, 100, 1000):
        config = PlannerConfig(num_lines=num_lines, ways=num_lines, policy="belady", window=1)
        expected = assert_equal_plans(config, batches, {}, threads=[1])
        counters = simulate(tensors(batches), config)
        assert counters == [plan.counters for plan in expected]
        assert sum(c["hits"] for c in counters) == optimal_hits(batches, num_lines)


@pytest.mark.parametrize("num_lines", [1, 16, 100, 512])
def test_simulated_optimum(num_lines):
    static_ids, constant_ids = [0, 3, 70], [3, 5]
    served = {*static_ids, *constant_ids}
    for fixed in ({}, {"static_ids": static_ids, "constant_ids": constant_ids}):
        arguments = {name: torch.tensor(ids) for name, ids in fixed.items()}
        counters = simulate_optimal(tensors(BATCHES), num_lines, **arguments)
        cached = [[n for n in batch if not fixed or n not in served] for batch in BATCHES]
        assert sum(c["hits"] for c in counters) == optimal_hits(cached, num_lines)
        for c, batch in zip(counters, BATCHES, strict=True):
            fixed_hits = c["static_hits"] + c["constant_hits"]
            assert len(batch) == c["requests"] == c["hits"] + c["misses"] + fixed_hits
