"""Policies on the request lists of neighbour sampling, as training makes them: invariants of any
graph."""

from functools import cache

import pytest
import torch

from lsm.cache.planner import PlannerConfig, simulate
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from support.graphs import random_graph
from support.optimal_cache import optimal_hits
from support.planner_traces import POLICIES

NUM_NODES = 50_000
NUM_RANKS = 2
NUM_ITERATIONS = 400
WINDOW = 256
# Lines, in mean request lists of an owner.
REQUEST_LISTS = (10, 20, 40)


@cache
def graph():
    return random_graph(NUM_NODES, 630_000)


def in_degree():
    return graph().indptr.diff().float()


@cache
def owner_batches():
    """Rank 0's share of both ranks' lists, rank 0's requests first."""
    sampler = NeighborSampler(graph(), [5, 2, 2, 2])
    seeds = torch.randperm(NUM_NODES, generator=torch.Generator().manual_seed(0))
    seeds = seeds[: NUM_ITERATIONS * NUM_RANKS * 2].view(NUM_ITERATIONS, NUM_RANKS, 2)
    batches = []
    for t in range(NUM_ITERATIONS):
        union = {}
        for rank in range(NUM_RANKS):
            sampled = sampler.sample(seeds[t, rank], BatchName(seed=1, iteration=t, rank=rank))
            union |= dict.fromkeys(sampled.n_id.tolist())
        batches.append([node for node in union if node % NUM_RANKS == 0])
    return batches


@cache
def hits(policy, num_lists, mode="none"):
    """Requests that the cache or the victim buffer served, and the number of lines."""
    batches = owner_batches()
    ways = 32
    num_lines = num_lists * sum(map(len, batches)) // len(batches) // ways * ways
    config = PlannerConfig(
        num_lines=num_lines,
        ways=ways,
        policy=policy,
        window=WINDOW,
        victim_mode=mode,
        victim_rows=0 if mode == "none" else num_lines,
    )
    counters = simulate([torch.tensor(b) for b in batches], config, scores=in_degree())
    assert [c["requests"] for c in counters] == [len(batch) for batch in batches]
    return sum(c["hits"] + c["victim_hits"] for c in counters), num_lines


@cache
def optimum(num_lines):
    return optimal_hits(owner_batches(), num_lines)


@pytest.mark.parametrize("num_lists", REQUEST_LISTS)
def test_no_policy_beats_the_optimum(num_lists):
    for policy in POLICIES:
        served, num_lines = hits(policy, num_lists)
        assert 0 < served <= optimum(num_lines)


@pytest.mark.parametrize("num_lists", REQUEST_LISTS)
def test_lookahead_is_near_the_optimum(num_lists):
    served, num_lines = hits("lookahead", num_lists)
    assert served >= 0.9 * optimum(num_lines)


@pytest.mark.parametrize("num_lists", REQUEST_LISTS)
def test_lookahead_with_a_pool_is_near_the_optimum_of_twice_the_lines(num_lists):
    served, num_lines = hits("lookahead", num_lists, "pool")
    assert 0.9 * optimum(2 * num_lines) <= served <= optimum(2 * num_lines)
