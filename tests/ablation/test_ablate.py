"""Records of simulated caches, against counts that are made here."""

from collections import OrderedDict

import numpy as np
import pytest

from lsm.ablation import runs
from lsm.ablation.runs import Combination
from lsm.cache import planner as cache
from reference.hashing import mix64, owner
from reference.planner import COUNTERS, ReferencePlanner
from support.ablation import make_trace, random_trace, run_one

SERVED = ("hits", "victim_hits", "static_hits", "constant_hits")


def test_requests_count_once_per_owner_and_iteration_or_per_rank():
    # Iteration 0: ranks want 0 1 2 and 2 1 5; iteration 1: 0 2 and 0. Everything fits.
    trace = make_trace([[0, 1, 2], [2, 1, 5], [0, 2], [0]], num_nodes=8, num_ranks=2)
    shared = run_one(trace, "lru", 8, ways=4)
    assert (shared["requests"], shared["hits"], shared["misses"]) == (4 + 2, 2, 4)
    assert (shared["requests_2nd"], shared["hits_2nd"], shared["misses_2nd"]) == (2, 2, 0)
    assert (shared["hit_ratio"], shared["hit_ratio_2nd"]) == (2 / 6, 1)
    own = run_one(trace, "lru", 8, ways=4, mode="independent")
    # Rank 0 has 0 and 2 of its own; rank 1 has never seen 0.
    assert (own["requests"], own["hits"], own["misses"]) == (6 + 3, 2, 7)
    assert (own["requests_2nd"], own["hits_2nd"], own["misses_2nd"]) == (3, 2, 1)


def test_a_cache_holds_what_its_rank_owns_only():
    # Two lines per rank and one set each: 0 2 and 1 3 stay, whichever rank asks.
    trace = make_trace([[0, 1], [2, 3], [3, 2], [1, 0]], num_nodes=4, num_ranks=2)
    assert run_one(trace, "lru", 2, ways=2)["hits"] == 4
    assert run_one(trace, "lru", 2, ways=2, mode="independent")["hits"] == 0


def lru_hits(batches, num_sets, ways):
    """Hits of a batch-synchronous LRU cache: one dict per set, the least recent first; equally
    recent lines are evicted in the order of their ways, and lines touched in a batch stay in it."""
    sets = [[None] * ways for _ in range(num_sets)]  # [id, last touch] per way
    hits = 0
    for t, ids in enumerate(batches):
        misses = []
        for node in ids:
            lines = sets[mix64(node) % num_sets]
            line = next((line for line in lines if line and line[0] == node), None)
            if line:
                line[1] = t
                hits += 1
            else:
                misses.append(node)
        for node in misses:
            lines = sets[mix64(node) % num_sets]
            way = min(range(ways), key=lambda way: lines[way][1] if lines[way] else -1)
            if lines[way] is None or lines[way][1] < t:
                lines[way] = [node, t]
    return hits


@pytest.mark.parametrize("hash", ["stride", "mix64"])
def test_lru_counts_are_those_of_a_simulation_in_a_few_lines(hash):
    trace = random_trace(num_ranks=3)
    expected = 0
    for rank in range(3):
        batches = []
        for t in range(trace.num_iterations):
            ids = OrderedDict.fromkeys(
                int(node) for r in range(3) for node in trace.request_list(t, r)
            )
            batches.append([node for node in ids if owner(node, 3, hash) == rank])
        expected += lru_hits(batches, num_sets=5, ways=4)
    record = run_one(trace, "lru", 20, ways=4, hash=hash)
    assert record["hits"] == expected > 0
    assert record["hits"] + record["misses"] == record["requests"]


def reference_counts(trace, combination, rank):
    """Counters of every iteration by the plain planner of ``reference``."""
    batches = trace.owner_batches(rank, combination.hash, combination.mode == "shared")
    planner = ReferencePlanner(
        combination.planner_config(), scores=trace.static_score, trace=batches
    )
    steps, pushed = [], 0
    for t in range(len(batches)):
        while pushed < min(t + combination.window, len(batches)):
            planner.push(batches[pushed])
            pushed += 1
        steps.append(planner.plan().counters)
    return steps


@pytest.mark.parametrize(
    ("policy", "victim"),
    [(policy, victim) for policy in cache.POLICIES for victim in ("none", "queues", "pool")],
)
def test_records_are_the_sums_of_the_plain_planner(policy, victim):
    trace = random_trace()
    combination = Combination(
        policy=policy,
        lines=16,
        ways=4,
        window=6,
        update_period=3,
        victim=victim,
        victim_rows=3,
        seed=2,
    )
    (record,) = runs.run(trace, [combination], progress=False)
    steps = [reference_counts(trace, combination, rank) for rank in range(2)]
    for name in COUNTERS:
        assert record[name] == sum(step[name] for rank in steps for step in rank), name
        assert record[f"{name}_2nd"] == sum(step[name] for rank in steps for step in rank[20:]), (
            name
        )
    assert sum(record[name] for name in SERVED) + record["misses"] == record["requests"]
    served = sum(record[f"{name}_2nd"] for name in SERVED)
    assert record["hit_ratio_2nd"] == served / record["requests_2nd"]


def test_one_job_or_many_give_the_same_records_in_the_order_asked_for():
    trace = random_trace()
    asked = [
        Combination(policy=policy, lines=lines, ways=4, window=window)
        for policy in ("lookahead", "lru", "hybrid", "belady")
        for lines in (8, 24)
        for window in (4, 12)
    ]
    one = runs.run(trace, asked, jobs=1, progress=False)
    assert runs.run(trace, asked, jobs=4, progress=False) == one
    for record, combination in zip(one, asked, strict=True):
        assert (record["policy"], record["lines"], record["window"]) == (
            combination.policy,
            combination.lines,
            combination.window,
        )
    # A policy that looks at no window has a record for each, all alike.
    assert {key: value for key, value in one[4].items() if key != "window"} == {
        key: value for key, value in one[5].items() if key != "window"
    }
    assert one[0]["hits"] != one[1]["hits"]


def test_no_policy_beats_the_bound():
    trace = random_trace(num_iterations=80)
    records = runs.run(
        trace,
        [Combination(policy=name, lines=16, ways=4, window=8) for name in runs.POLICIES],
        progress=False,
    )
    bound = next(record for record in records if record["policy"] == "optimal")
    assert all(record["hits"] <= bound["hits"] for record in records)
    assert bound["hits"] < bound["requests"]


def test_a_constant_buffer_serves_the_best_nodes():
    lists = [[0, 1, 2, 3], [0, 1, 2, 3]]
    score = np.array([0, 3, 1, 2], np.float32)
    trace = make_trace(lists, num_nodes=4, static_score=score)
    # 1 and 3 are constant; 0 and 2 share the only set of one line: neither stays long enough.
    record = run_one(trace, "round_robin", 1, ways=1, constant_rows=2)
    assert (record["constant_hits"], record["requests"]) == (4, 8)
    assert record["hit_ratio"] == (4 + record["hits"]) / 8
    everything = run_one(trace, "round_robin", 1, ways=1, constant_rows=4, constant_score="random")
    assert (everything["constant_hits"], everything["hit_ratio"]) == (8, 1)
    bare = make_trace(lists, num_nodes=4)
    with pytest.raises(ValueError, match="a constant buffer by static score needs"):
        run_one(bare, "lru", 4, ways=4, constant_rows=2)


def test_surprises_are_said():
    trace = random_trace(scored=False)
    with pytest.warns(UserWarning, match="no static_score: static: every node counts"):
        run_one(trace, "static", 16, ways=4)
    with pytest.raises(ValueError, match="victim rows 1000000000000: expected a cache that"):
        run_one(trace, "lru", 16, ways=4, victim="queues", victim_rows=10**12)
