"""The reference's policies against traces worked out by hand.

Each trace is a list of (batch, plan), plans as planner_traces.describe writes them. With one set, a
line is a way. The comments say why.
"""

import numpy as np
import pytest

from reference.hashing import mix64, philox4x32
from reference.planner import ReferencePlanner
from support.planner_traces import config, describe, follow, plans


def scores_of(scores):
    """A float32 score per node from {node: score}."""
    array = np.zeros(max(scores) + 1, np.float32)
    for node, score in scores.items():
        array[node] = score
    return array


def test_mix64_and_philox_known_answers():
    assert mix64(0) == 0
    assert mix64(1) == 0xB456BCFC34C2CB2C  # fmix64(1) of Appleby's MurmurHash3.cpp
    counter, key = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], 0x299F31D0A4093822
    assert philox4x32(counter, key) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    assert philox4x32([0] * 4, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_lru():
    follow(
        "lru",
        2,
        [
            ([1, 2, 3], "1M>0 2M>1 3M-"),  # lowest empty way; then all lines are touched
            ([1], "1C0"),
            ([4], "4M>1 | 1x"),  # last touches: 1, 0
            ([5], "5M>0 | 0x"),  # last touches: 1, 2
            ([4, 5, 6], "4C1 5C0 6M-"),
            ([6, 7, 8], "6M>0 7M>1 8M- | 0x 1x"),  # both last touched at 4: lowest way
        ],
    )


def test_round_robin():
    follow(
        "round_robin",
        3,
        [
            ([1, 2, 3], "1M>0 2M>1 3M>2"),  # fills do not move the pointer
            ([4], "4M>0 | 0x"),
            ([2, 5], "2C1 5M>2 | 2x"),  # pointer 1 is touched
            ([6], "6M>0 | 0x"),  # the pointer has wrapped
            ([2, 5, 7], "2C1 5C2 7M>0 | 0x"),  # 1 and 2 are touched: round to 0
            ([8], "8M>1 | 1x"),
            ([7, 8, 5, 9], "7C0 8C1 5C2 9M-"),  # a bypass leaves the pointer at 2
            ([10], "10M>2 | 2x"),
        ],
    )


def test_lfu():
    follow(
        "lfu",
        3,
        [
            ([1, 2, 3], "1M>0 2M>1 3M>2"),
            ([1, 2], "1C0 2C1"),
            ([1], "1C0"),
            ([4], "4M>2 | 2x"),  # counts 3, 2, 1
            ([5], "5M>2 | 2x"),  # the count started again with 4
            ([5], "5C2"),
            ([6], "6M>1 | 1x"),  # counts 3, 2, 2, last touches 2, 1, 5
            ([2], "2M>1 | 1x"),
        ],
    )


def test_clock():
    follow(
        "clock",
        3,
        [
            ([1, 2, 3], "1M>0 2M>1 3M>2"),
            ([1, 2], "1C0 2C1"),
            ([4], "4M>2 | 2x"),  # the hand clears 0 and 1
            ([1, 5], "1C0 5M>1 | 1x"),  # 0 is touched: skipped, its bit stays
            ([6], "6M>2 | 2x"),
            ([7], "7M>1 | 1x"),  # clears 0
            ([8], "8M>2 | 2x"),
            ([9], "9M>0 | 0x"),
        ],
    )


def test_sieve():
    follow(
        "sieve",
        3,
        [
            ([1, 2, 3], "1M>0 2M>1 3M>2"),
            ([1], "1C0"),
            ([4], "4M>1 | 1x"),  # clears 0; by age now 0 2 1, hand at 2
            ([5], "5M>2 | 2x"),  # the hand goes on, 0 has survived: 0 1 2, hand at 1
            ([4, 6], "4C1 6M>2 | 2x"),  # 1 is touched; the newest leaves: the hand starts again
            ([7], "7M>0 | 0x"),  # 1 2 0, hand at 1
            ([8], "8M>2 | 2x"),  # 1 was visited at 4: cleared; 1 0 2, hand at 0
            ([9], "9M>0 | 0x"),  # 1 2 0, hand at 2
            ([10], "10M>2 | 2x"),  # 1 0 2, hand at 0
        ],
    )


def test_s3fifo():
    # S takes 1 of 4 ways. Queues are written oldest first, S by lines, G by nodes.
    follow(
        "s3fifo",
        4,
        [
            ([1, 2, 3, 4], "1M>0 2M>1 3M>2 4M>3"),  # all in S
            ([1], "1C0"),
            ([1], "1C0"),
            ([5], "5M>1 | 1x"),  # 1 has frequency 2: to M. 2 leaves. S 2 3 1, M 0, G 2
            ([2], "2M>2 | 2x"),  # 2 is in G: to M. S 3 1, M 0 2, G 3
            ([6], "6M>3 | 3x"),  # S 1 3, M 0 2, G 3 4
            ([5, 4], "5C1 4M>3 | 3x"),  # 1 is touched: 6 leaves. S 1, M 0 2 3, G 3 6
            ([5], "5C1"),
            ([7], "7M>0 | 0x"),  # 5 to M: S below its share, so M's oldest leaves, not to G
            ([1], "1M>0 | 0x"),  # S 0, M 2 3 1, G 3 6 7
            ([2, 8], "2C2 8M>0 | 0x"),  # G 3 6 7 1
            ([8, 9], "8C0 9M>3 | 3x"),  # S is touched. 2 has frequency 1: again; 4 leaves. M 1 2
            ([10], "10M>0 | 0x"),  # frequency 1 does not reach M. S 3 0, G 6 7 1 8
            ([3], "3M>3 | 3x"),  # G had room for four: 3 is forgotten, to S. S 0 3
            ([11], "11M>0 | 0x"),  # S 3 0
            ([12], "12M>3 | 3x"),
        ],
    )


def test_s3fifo_share_of_20_ways():
    # S keeps 2 of 20 ways: 17 of the first lines go to M when they were used twice, 3 leave.
    nodes = list(range(20))
    settings = config("s3fifo", 20, 20)
    batches = [nodes, nodes, nodes, [20], [21]]
    made = [describe(p) for p in plans(ReferencePlanner(settings), batches, 8)]
    # All 20 have frequency 2. 19 go to M; with 1 left in S, M's oldest, line 0, has frequency 0.
    assert made[3] == "20M>0 | 0x"
    # S is 19, 0: line 19 goes to M, then M's oldest is line 1.
    assert made[4] == "21M>1 | 1x"


@pytest.mark.parametrize("seed", [0, 1, 7 + (11 << 32)])
def test_random(seed):
    settings = config("random", 4, 4, seed=seed)
    batches = [[1, 2, 3, 4], [1, 5, 6]]
    plan = list(plans(ReferencePlanner(settings), batches, 8))[1]
    eligible, lines = [1, 2, 3], []
    for k in range(2):
        word = philox4x32([0, 1, k, 0], seed)[0]
        lines.append(eligible.pop(word * len(eligible) // 2**32))
    assert plan.evict_line.tolist() == plan.insert_line.tolist() == lines


def test_window_pins_lines_with_a_next_use():
    follow(
        "window",
        3,
        [
            ([1, 2, 3], "1M>0 2M>1 3M>2"),
            ([4], "4M>2 | 2x"),  # 1 and 2 are requested at 2 and 3
            ([1, 5], "1C0 5M>2 | 2x"),  # 2 is pinned, 4 is not
            ([2, 6], "2C1 6M-"),  # 1 and 5 are pinned
            ([2, 1, 5], "2C1 1C0 5C2"),
        ],
        window=3,
    )


def test_static():
    follow(
        "static",
        3,
        [
            ([1, 2, 3], "1M>0 2M>1 3M>2"),
            ([4], "4M>1 | 1x"),  # no admission: 4 is colder than 2
            ([5], "5M>1 | 1x"),
            ([1, 6], "1C0 6M>1 | 1x"),  # 3 and 5 tie
        ],
        scores=scores_of({1: 5, 2: 3, 3: 9, 4: 1, 5: 9, 6: 2}),
    )


def test_missing_scores_are_zero():
    follow("static", 2, [([1, 2], "1M>0 2M>1"), ([3], "3M>0 | 0x"), ([4], "4M>0 | 0x")])


def test_dynamic():
    follow(
        "dynamic",
        3,
        [
            ([1, 2, 3], "1M>0 2M>1 3M>2"),
            ([4], "4M>0 | 0x"),  # nothing is known
            ([5], "5M>0 | 0x"),  # refreshed: 4 none, 2 at 3, 3 at 4
            ([2, 6], "2C1 6M>0 | 0x"),  # 5 is unknown, 3 is known
            ([3, 7], "3C2 7M>1 | 1x"),  # refreshed: 6 at 6, 2 at 7; the farthest
            ([8], "8M>1 | 1x"),  # 6 is known; 7 and 3, inserted and consumed, are not
            ([6], "6C0"),  # refreshed: 8 none, 3 none
            ([2], "2M>1 | 1x"),  # 6 is consumed, 8 and 3 tie
        ],
        window=4,
        update_period=2,
    )


HYBRID_BATCHES = [[1, 2, 3, 4], [], [], [], [4, 5], [2, 6], [7], [], [8], [7, 3], [5], [6]]
HYBRID_SCORES = scores_of({1: 1, 2: 6, 3: 3, 4: 2, 5: 5, 6: 7, 7: 4, 8: 8})


def test_hybrid():
    # Near is up to 2 iterations ahead. Levels are written by line.
    expected = [
        "1M>0 2M>1 3M>2 4M>3",
        *("", "", ""),
        "4C3 5M>0 | 0x",  # refreshed: 1 none, 2 at 5, 3 at 9: levels 0 3 1 -
        "2C1 6M>2 | 2x",  # levels 2 - 1 2
        "7M>3 | 3x",  # all unknown: 4 has the lowest score
        "",
        "8M>1 | 1x",  # refreshed: 5 at 10, 2 none, 6 at 11, 7 at 9: levels 3 0 1 3
        "7C3 3M>1 | 1x",  # 6 has come near: levels 3 2 3 -
        "5C0",
        "6C2",
    ]
    trace = list(zip(HYBRID_BATCHES, expected, strict=True))
    follow("hybrid", 4, trace, scores=HYBRID_SCORES, near_fraction=0.25)


HYBRID_SPILLS = {  # of rows without a next use, which only a pool takes, and where 6 waits
    "queues": ("0x", "3x", "0@1", "1x", "6V1>1 | 1x"),
    "pool": ("0@1", "3@2", "0@3", "1@0", "6V3>1 | 1@3"),
}


@pytest.mark.parametrize("mode", ["queues", "pool"])
def test_hybrid_with_a_victim_buffer_swaps_the_lowest_levels(mode):
    first, fourth, sixth, second, last = HYBRID_SPILLS[mode]
    expected = [
        "1M>0 2M>1 3M>2 4M>3",
        *("", "", ""),
        "4C3 5M>2 | 2@0",  # levels 1 3 0 -: 3, due at 9, goes to the buffer
        f"2C1 6M>0 | {first}",  # levels 1 - 2 2
        f"7M>3 | {fourth}",  # all unknown
        "",
        f"8M>0 | {sixth}",  # refreshed: 6 at 11, 2 none, 5 at 10, 7 at 9: levels 0 1 3 3
        f"7C3 3V0>1 | {second}",  # levels 2 1 3 -
        "5C2",
        last,  # all unknown: 3 has the lowest score
    ]
    trace = list(zip(HYBRID_BATCHES, expected, strict=True))
    fields = {"near_fraction": 0.25, "victim_mode": mode, "victim_rows": 4}
    follow("hybrid", 4, trace, scores=HYBRID_SCORES, **fields)


def test_lookahead():
    follow(
        "lookahead",
        2,
        [
            ([1, 2], "1M>0 2M>1"),
            ([3], "3M>1 | 1x"),  # 1 is due at 2, 3 at 3, 2 never
            ([1, 4], "1C0 4M>0 | 0x"),  # neither 1 nor 4 is due, and 4 has a higher score
            ([3, 5], "3C1 5M>1 | 1x"),  # 5 is due at 6, 3 and 4 never; 4 has a higher score
            ([6], "6M-"),  # neither 4 nor 6 is due, and their scores are equal
            ([7], "7M>0 | 0x"),  # a higher score than 4's
            ([5, 8], "5C1 8M-"),  # a lower score than 5's
            ([9], "9M>0 | 0x"),  # batch 10 has entered: 5, which had no next use, is due
            ([10], "10M-"),  # 5 is due at 10, 9 at 9, 10 at 11
            ([9, 12], "9C0 12M>0 | 0x"),  # 5 and 12 are both due at 10, 9 never
            ([5, 12], "5C1 12C0"),
        ],
        scores=scores_of({1: 2, 3: 3, 4: 4, 5: 5, 6: 4, 7: 6, 8: 1, 9: 9, 10: 2, 12: 0}),
        window=4,
    )


def test_lookahead_takes_the_best_newcomers_first():
    follow(
        "lookahead",
        3,
        [
            ([1, 2, 3], "1M>2 2M>0 3M>1"),  # 2 is due at 1, 3 at 2, 1 never
            ([2, 4, 5, 6], "2C0 4M- 5M>2 6M>0 | 2x 0x"),  # 6 is due at 2, 5 at 3, 4 never
            ([3, 6, 7, 8], "3C1 6C0 7M>0 8M>1 | 0x 1x"),  # 7 and 8 tie, as do 6 and 3
            ([5, 9], "5C2 9M>2 | 2x"),
        ],
        scores=scores_of({1: 2, 2: 1, 3: 0, 4: 9, 5: 1, 6: 0, 7: 5, 8: 5, 9: 3}),
    )


def test_lookahead_ties_take_the_lowest_way():
    # 1 and 2 are both due at 3, 3 at 2.
    follow(
        "lookahead",
        2,
        [([1, 2], "1M>0 2M>1"), ([3], "3M>0 | 0x"), ([3], "3C0"), ([1, 2], "1M>0 2C1 | 0x")],
        scores=scores_of({1: 2, 2: 1, 3: 1}),
    )


def test_belady_sees_beyond_the_window():
    follow(
        "belady",
        2,
        [
            ([1, 2], "1M>0 2M>1"),
            ([3], "3M-"),  # 1 is due at 2, 2 at 4, 3 at 5
            ([1], "1C0"),
            ([4], "4M-"),  # neither 1 nor 4 is ever due
            ([2], "2C1"),
            ([3, 5], "3M>0 5M- | 0x"),  # 3 is due; 1 and 2 tie
            ([3], "3C0"),
        ],
        scores=scores_of({4: 9, 5: 9}),
        window=1,
    )
