"""The planner's GPU code makes the host planner's plans, bit by bit: here as its twin, which runs
the same functors, lane by lane, on the host; on a GPU itself where there is one (test_gpu.py)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.cache.planner import POLICIES, VICTIM_MODES, Planner
from support.native_plans import (
    NUM_NODES,
    assert_same_moves,
    assert_same_plans,
    assert_same_plans_of_large_pools,
    config_of,
    plans,
    skewed_batches,
)


@pytest.mark.parametrize("mode", VICTIM_MODES)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy(policy, mode):
    batches = skewed_batches(seed=0)
    # Fewer ways than lanes, more, and a number that lanes do not share evenly.
    for num_lines, ways in ((96, 12), (128, 64), (90, 45), (32, 1)):
        config = config_of(policy, mode, num_lines, ways, window=9, seed=3)
        for sets in ("twin", "twin_backwards"):
            assert assert_same_plans(config, batches, sets) > 0


def test_large_pools():
    assert_same_plans_of_large_pools("twin_backwards")


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    policy=st.sampled_from(POLICIES),
    mode=st.sampled_from(VICTIM_MODES),
    ways=st.integers(1, 70),
    num_sets=st.integers(1, 9),
    window=st.integers(1, 40),
)
def test_random_traces(seed, policy, mode, ways, num_sets, window):
    config = config_of(policy, mode, num_sets * ways, ways, window=window, seed=seed)
    assert_same_plans(config, skewed_batches(seed, num_batches=12), "twin_backwards")


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    window=st.integers(1, 20),
    policy=st.sampled_from(("lookahead", "hybrid", "window")),
)
def test_next_uses_over_many_windows(seed, window, policy):
    """Long enough that the chain's table is made anew many times; batches with an id that is
    repeated or out of range are refused and leave no trace."""
    rng = np.random.default_rng(seed)
    batches = skewed_batches(seed, num_batches=6 * window, max_ids=int(rng.integers(2, 100)))
    config = config_of(policy, "pool", 40, 8, window=window)
    host, twin = (
        Planner(config, num_nodes=NUM_NODES, sets=sets) for sets in ("host", "twin_backwards")
    )
    for t in range(len(batches)):
        for ids in batches[host.num_pushed : t + window]:
            if len(ids) > 0 and rng.random() < 0.1:
                again = ids[torch.from_numpy(rng.permutation(len(ids))[:3])]
                repeated = torch.cat((ids, again)).flip(0)
                outside = ids.clone()
                outside[rng.integers(len(ids), size=2)] = int(rng.choice([-1, NUM_NODES]))
                for refused, what in ((repeated, "distinct ids"), (outside, "expected ids in")):
                    errors = []
                    for planner in (host, twin):
                        with pytest.raises(ValueError, match=what) as error:
                            planner.push(refused)
                        errors.append(str(error.value))
                    assert errors[0] == errors[1]
            host.push(ids)
            twin.push(ids)
        assert host.metadata_bytes()["window_entries"] == twin.metadata_bytes()["window_entries"]
        plan, other = host.plan(), twin.plan()
        assert_same_moves(plan, other)


def test_ids_of_64_bits_and_no_score():
    batches = [torch.arange(40) * 3 + (1 << 61), torch.arange(20) * 6 + (1 << 61)]
    config = config_of("lookahead", "pool", 8, 4, window=2)
    made = list(plans(config, batches, "twin"))
    assert [plan.counters for plan in made] == [p.counters for p in plans(config, batches, "host")]
    assert made[1].counters["hits"] + made[1].counters["victim_hits"] > 0


def test_where_it_runs_is_checked():
    with pytest.raises(ValueError, match=r"sets: expected host, twin, .* got 'gpu'"):
        Planner(config_of("lru", "none", 8, 4), sets="gpu")
