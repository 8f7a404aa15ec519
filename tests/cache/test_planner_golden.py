"""The reference planner on one power-law trace: golden miss counts, and bounds that know nothing of
how it works."""

from collections import Counter, OrderedDict, deque
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.hashing import mix64
from reference.planner import ReferencePlanner
from support.optimal_cache import exhaustive_hits, optimal_hits
from support.planner_golden import (
    BATCHES,
    GOLDEN_MISSES,
    NUM_LINES,
    NUM_NODES,
    SCORES,
    WAYS,
    WINDOW,
)
from support.planner_traces import POLICIES, config, plans, power_law_trace, replay


def counts(batches, settings, **arguments):
    """The counters summed over the trace."""
    if settings.policy == "belady":
        arguments["trace"] = batches
    planner = ReferencePlanner(settings, **arguments)
    total = Counter()
    for plan in plans(planner, batches, settings.window):
        total.update(plan.counters)
    return total


@cache
def golden_counts(policy, num_lines, mode="none", victim_rows=0, ways=WAYS):
    fields = {"window": WINDOW, "victim_mode": mode, "victim_rows": victim_rows}
    return counts(BATCHES, config(policy, num_lines, ways, **fields), scores=SCORES)


def test_golden_trace_is_what_it_was():
    assert sum(map(len, BATCHES)) == GOLDEN_MISSES["requests"]
    assert max(map(max, BATCHES)) < NUM_NODES


@pytest.mark.parametrize("policy", POLICIES)
def test_golden_miss_counts(policy):
    misses = [golden_counts(policy, num_lines)["misses"] for num_lines in NUM_LINES]
    assert misses == GOLDEN_MISSES[policy]


@pytest.mark.parametrize("mode", ["queues", "pool"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_is_served_by_one_tier(policy, mode):
    total = golden_counts(policy, 128, mode, 64 if mode == "pool" else 4)
    tiers = ("hits", "static_hits", "victim_hits", "constant_hits", "misses")
    assert total["requests"] == sum(total[tier] for tier in tiers) == GOLDEN_MISSES["requests"]
    # What enters the victim buffer is requested or lost, up to the rows that the window holds.
    assert total["victim_hits"] <= total["spilled"]
    assert total["victim_hits"] > 0


@pytest.mark.parametrize("mode", ["none", "queues", "pool"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_finds_its_row(policy, mode):
    victim_rows = {"none": 0, "queues": 2, "pool": 20}[mode]
    fields = {"window": WINDOW, "victim_mode": mode, "victim_rows": victim_rows}
    tiers = {"static_ids": [0, 5, 40], "constant_ids": [5, 2, 300]}
    trace = BATCHES if policy == "belady" else None
    planner = ReferencePlanner(config(policy, 64, WAYS, **fields), trace=trace, **tiers)
    replay(plans(planner, BATCHES, WINDOW), WINDOW, **tiers)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 4), max_size=4, unique=True), max_size=6), st.integers(1, 2)
)
def test_optimal_hits_are_optimal(batches, num_lines):
    assert optimal_hits(batches, num_lines) == exhaustive_hits(batches, num_lines)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_beats_the_optimum(policy):
    for num_lines in NUM_LINES:
        total = golden_counts(policy, num_lines)
        assert total["hits"] <= optimal_hits(BATCHES, num_lines)


@pytest.mark.parametrize("mode", ["queues", "pool"])
@pytest.mark.parametrize("policy", POLICIES)
def test_no_victim_buffer_beats_the_optimum_with_its_rows_added(policy, mode):
    rows = {"pool": 64, "queues": 4}[mode]
    total = golden_counts(policy, 128, mode, rows)
    num_rows = 128 + {"pool": 64, "queues": 4 * WINDOW}[mode]
    assert total["hits"] + total["victim_hits"] <= optimal_hits(BATCHES, num_rows)


def optimal_hits_of_sets(batches, num_lines, ways):
    """Every set is a cache of its own, of the nodes that it may hold."""
    num_sets = num_lines // ways
    return sum(
        optimal_hits([[n for n in batch if mix64(n) % num_sets == s] for batch in batches], ways)
        for s in range(num_sets)
    )


@pytest.mark.parametrize("num_lines", NUM_LINES)
def test_belady_is_optimal(num_lines):
    for ways in (WAYS, num_lines):
        hits = golden_counts("belady", num_lines, ways=ways)["hits"]
        assert hits == optimal_hits_of_sets(BATCHES, num_lines, ways)


@pytest.mark.parametrize("num_lines", [1, 3, 16, 64, 256])
@pytest.mark.parametrize("batch_size", [1, 64])
def test_lookahead_over_the_whole_trace_is_optimal(num_lines, batch_size):
    # Without scores the keys of the two order lines alike, so do their ties.
    batches = BATCHES
    if batch_size == 1:
        batches = [[node] for batch in power_law_trace(25, 32, 300) for node in batch]
    lookahead, belady = (
        counts(batches, config(policy, num_lines, num_lines, window=len(batches)))
        for policy in ("lookahead", "belady")
    )
    assert lookahead == belady
    assert lookahead["hits"] == optimal_hits(batches, num_lines)


def textbook_lru(requests, num_lines):
    lines, misses = OrderedDict(), 0
    for node in requests:
        if node in lines:
            lines.move_to_end(node)
            continue
        misses += 1
        if len(lines) == num_lines:
            lines.popitem(last=False)
        lines[node] = None
    return misses


def textbook_fifo(requests, num_lines):
    lines, misses = deque(maxlen=num_lines), 0
    for node in requests:
        if node not in lines:
            misses += 1
            lines.append(node)
    return misses


def textbook_second_chance(requests, num_lines):
    """CLOCK as a FIFO queue whose referenced heads go round again."""
    queue, referenced, misses = deque(), {}, 0
    for node in requests:
        if node in referenced:
            referenced[node] = True
            continue
        misses += 1
        if len(queue) == num_lines:
            while referenced[queue[0]]:
                referenced[queue[0]] = False
                queue.rotate(-1)
            del referenced[queue.popleft()]
        queue.append(node)
        referenced[node] = False
    return misses


def textbook_sieve(requests, num_lines):
    """Nodes from the newest to the oldest, as in the paper's figure; the hand is an index."""
    queue, visited, hand, misses = [], set(), None, 0
    for node in requests:
        if node in queue:
            visited.add(node)
            continue
        misses += 1
        if len(queue) == num_lines:
            at = len(queue) - 1 if hand is None or hand < 0 else hand
            while queue[at] in visited:
                visited.discard(queue[at])
                at = at - 1 if at else len(queue) - 1
            queue.pop(at)
            hand = at - 1
        queue.insert(0, node)
        if hand is not None and hand >= 0:
            hand += 1
    return misses


def textbook_lfu(requests, num_lines):
    lines, misses = {}, 0
    for t, node in enumerate(requests):
        if node not in lines and len(lines) == num_lines:
            lines.pop(min(lines, key=lines.get))
        misses += node not in lines
        lines[node] = (lines.get(node, (0, 0))[0] + 1, t)
    return misses


@pytest.mark.parametrize("num_lines", [1, 4, 30, 100])
@pytest.mark.parametrize(
    ("policy", "textbook"),
    [
        ("lru", textbook_lru),
        ("round_robin", textbook_fifo),
        ("clock", textbook_second_chance),
        ("sieve", textbook_sieve),
        ("lfu", textbook_lfu),
    ],
)
def test_one_request_at_a_time_is_the_textbook(policy, textbook, num_lines):
    requests = [node for batch in power_law_trace(40, 32, 300) for node in batch]
    total = counts([[node] for node in requests], config(policy, num_lines, num_lines))
    assert total["misses"] == textbook(requests, num_lines)


def test_a_cache_of_everything_misses_each_node_once():
    num_distinct = len({node for batch in BATCHES for node in batch})
    for policy in POLICIES:
        settings = config(policy, NUM_NODES, NUM_NODES)
        assert counts(BATCHES, settings, scores=SCORES)["misses"] == num_distinct


def test_scores_decide_between_lines_that_are_never_used_again():
    with_scores, without = (
        counts(BATCHES, config("lookahead", 128, WAYS, window=3), scores=scores)["misses"]
        for scores in (SCORES, np.zeros(NUM_NODES, np.float32))
    )
    assert with_scores < without
