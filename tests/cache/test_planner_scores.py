"""Scores that are replaced while planning: reference, host planner and GPU code agree plan by plan,
and decisions by the old scores are revised."""

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.cache.planner import Planner, PlannerConfig
from lsm.cache.planner_trial import TrialPlanner
from reference.planner import ReferencePlanner
from support.native_plans import assert_same_moves
from support.planner_traces import (
    ARRAYS,
    POLICIES,
    assert_same_array,
    config,
    describe,
    power_law_trace,
)

NUM_NODES = 400
SCORED = ("static", "hybrid", "lookahead")


def scored_plans(planner, batches, window, changes):
    """Every plan; before plan t, once its window is pushed, scores change to changes[t]."""
    num_pushed = 0
    for t in range(len(batches)):
        while num_pushed < min(t + window, len(batches)):
            planner.push(batches[num_pushed])
            num_pushed += 1
        if t in changes:
            planner.set_scores(changes[t])
        yield planner.plan()


def assert_same(policy, mode, first, changes, threads=1, num_batches=40):
    """Compares the plans of all planners; returns those of the reference."""
    lists = power_law_trace(num_batches, batch_size=30, num_nodes=NUM_NODES)
    batches = [torch.tensor(ids) for ids in lists]
    rows = {"none": 0, "queues": 3, "pool": 20}[mode]
    fields = {"window": 6, "victim_mode": mode, "victim_rows": rows, "update_period": 3}
    native = PlannerConfig(num_lines=48, ways=12, policy=policy, **fields)
    scores = None if first is None else torch.from_numpy(first)
    trace = batches if policy == "belady" else None
    made = [
        scored_plans(
            Planner(native, scores=scores, trace=trace, num_threads=threads, sets=sets),
            batches,
            6,
            {t: torch.from_numpy(array) for t, array in changes.items()},
        )
        for sets in ("host", "twin", "twin_backwards")
    ]
    reference = ReferencePlanner(
        config(policy, 48, 12, **fields),
        scores=first,
        trace=lists if policy == "belady" else None,
    )
    expected = list(scored_plans(reference, lists, 6, changes))
    for plan, *others in zip(expected, *made, strict=True):
        for name in ARRAYS:
            assert_same_array(getattr(others[0], name).numpy(), getattr(plan, name), name)
        for other in others:
            assert other.counters == plan.counters
        for twin in others[1:]:
            assert_same_moves(plan, twin)
    return expected


def drawn_scores(seed, size=NUM_NODES):
    return np.random.default_rng(seed).integers(0, 9, size).astype(np.float32) / 4


@pytest.mark.parametrize("mode", ["none", "queues", "pool"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy(policy, mode):
    changes = {11: drawn_scores(1), 17: drawn_scores(2, NUM_NODES // 2)}
    changed = assert_same(policy, mode, drawn_scores(0), changes)
    if policy in SCORED:
        unchanged = assert_same(policy, mode, drawn_scores(0), {})
        same = [describe(a) == describe(b) for a, b in zip(changed, unchanged, strict=True)]
        assert all(same[:11])
        assert not all(same[11:])


@settings(deadline=None, max_examples=25)
@given(
    policy=st.sampled_from(SCORED),
    mode=st.sampled_from(["none", "pool"]),
    has_first=st.booleans(),
    times=st.sets(st.integers(0, 24), max_size=4),
    threads=st.sampled_from([1, 3]),
    seed=st.integers(0, 2**32),
)
def test_any_time(policy, mode, has_first, times, threads, seed):
    first = drawn_scores(seed) if has_first else None
    changes = {t: drawn_scores(seed + 1 + t) for t in times}
    assert_same(policy, mode, first, changes, threads, num_batches=25)


def test_lines_are_ranked_by_the_new_scores():
    """By the first scores 1 would leave, by the second 2 does, which was inserted before them."""
    batches = [torch.tensor([1, 2]), torch.tensor([3])]
    planner = Planner(
        PlannerConfig(num_lines=2, ways=2, policy="static", window=1),
        scores=torch.tensor([0.0, 1.0, 2.0, 3.0]),
    )
    planner.push(batches[0])
    planner.plan()
    planner.push(batches[1])
    planner.set_scores(torch.tensor([0.0, 2.0, 1.0, 3.0]))
    assert planner.plan().evict_line.tolist() == [1]


def test_both_planners_of_a_trial_get_the_scores():
    batches = [torch.arange(t, t + 40) % 60 for t in range(30)]
    settings = PlannerConfig(num_lines=16, ways=8, policy="lookahead", window=3)
    trial = TrialPlanner(Planner(settings), lambda: Planner(settings, sets="twin"))
    changes = {1: torch.rand(60, generator=torch.Generator().manual_seed(0))}
    alone = scored_plans(Planner(settings), batches, 3, changes)
    for plan, other in zip(scored_plans(trial, batches, 3, changes), alone, strict=True):
        assert torch.equal(plan.slot, other.slot)


@pytest.mark.parametrize("sets", ["host", "twin"])
def test_bad_scores_change_nothing(sets):
    planner = Planner(PlannerConfig(num_lines=2, ways=2, window=1), sets=sets)
    with pytest.raises(ValueError, match=r"scores: expected finite scores >= 0, got -1 for node 1"):
        planner.set_scores(torch.tensor([0.0, -1.0]))
    with pytest.raises(ValueError, match=r"scores: expected \[N\], got 2 dims"):
        planner.set_scores(torch.zeros(2, 2))
    planner.push(torch.tensor([0, 1, 2]))
    assert planner.plan().counters["misses"] == 3


@pytest.mark.parametrize("sets", ["host", "twin"])
def test_scores_that_were_replaced_are_freed(sets):
    settings = PlannerConfig(num_lines=2, ways=2, policy="static", window=1)
    planner = Planner(settings, scores=torch.ones(4), sets=sets)
    earlier = [weakref.ref(planner.scores)]
    for number in range(3):
        planner.set_scores(torch.full((4,), float(number)))
        earlier.append(weakref.ref(planner.scores))
    gc.collect()
    assert [each() is None for each in earlier] == [True, True, True, False]


def test_a_planner_that_starts_over_plans_by_the_scores_set_last():
    lists = power_law_trace(20, batch_size=30, num_nodes=NUM_NODES)
    batches = [torch.tensor(ids) for ids in lists]
    draw = torch.Generator().manual_seed(2)
    first, last = (torch.rand(NUM_NODES, generator=draw) for _ in range(2))
    options = PlannerConfig(num_lines=48, ways=12, policy="static", window=6)
    restarted = Planner(options, scores=first)
    list(scored_plans(restarted, batches, 6, {3: last}))
    restarted.restart()
    counters = {
        name: [plan.counters for plan in scored_plans(planner, batches, 6, {})]
        for name, planner in (
            ("restarted", restarted),
            ("first", Planner(options, scores=first)),
            ("last", Planner(options, scores=last)),
        )
    }
    assert counters["restarted"] == counters["last"] != counters["first"]
