"""The rules that all policies share, in the reference, against traces worked out by hand: tiers,
sets, the victim buffer. Written as in test_planner_reference.py."""

import numpy as np
import pytest

from reference.hashing import mix64
from reference.planner import ReferencePlanner
from support.planner_traces import config, follow, plans


def test_look_ups_come_before_insertions():
    # 3 misses before 1 is looked up, but 1 is hit and stays: 2 leaves.
    follow("lru", 2, [([1, 2], "1M>0 2M>1"), ([3, 1], "3M>1 1C0 | 1x")])


def test_pool_gives_way_to_strictly_nearer_rows():
    made = follow(
        "lru",
        1,
        [
            ([1], "1M>0"),
            ([2], "2M>0 | 0@0"),  # 1 is due at 6
            ([3], "3M>0 | 0@1"),  # 2 is due at 5
            ([4], "4M>0 | 0x"),  # 3 is due at 6: not nearer than 1
            ([7], "7M>0 | 0@0"),  # 4 is due at 5: takes the slot of 1
            ([2, 4], "2V1>0 4V0-~1 | 0@0"),  # of 7 and 4 nothing is known: there is room
            ([1, 3], "1M>0 3M-~0 | 0x"),  # 3 gets the place of 7; 2 was not requested later than 4
        ],
        victim_mode="pool",
        victim_rows=2,
    )
    assert [plan.counters["spilled"] for plan in made] == [0, 1, 1, 0, 1, 2, 1]
    assert [plan.counters["victim_overflow"] for plan in made] == [0, 0, 0, 1, 1, 0, 0]


def test_pool_ties_push_out_the_highest_slot():
    # 3 and 1 are due at 5; 5, due at 4, takes the place of 1.
    follow(
        "lru",
        1,
        [
            ([3], "3M>0"),
            ([1], "1M>0 | 0@0"),
            ([5], "5M>0 | 0@1"),
            ([6], "6M>0 | 0@1"),
            ([5], "5V1>0 | 0@1"),
            ([1, 3], "1M>0 3V0-~1 | 0@0"),  # 5 and 3 were requested later than 6, in slot 1
        ],
        victim_mode="pool",
        victim_rows=2,
    )


def test_of_the_rows_that_leave_in_one_plan_the_best_enter():
    made = follow(
        "lru",
        1,
        [
            ([4], "4M>0"),
            # 4 is due at 5, 2 at 4, 3 at 3.
            ([1, 2, 3], "1M>0 2M- 3M-~0 | 0x"),
            ([], ""),
            ([3], "3V0>0 | 0@0"),
            ([2], "2M>0 | 0@0"),
            ([4], "4M>0 | 0@0"),
        ],
        victim_mode="pool",
        victim_rows=1,
    )
    assert made[1].counters["spilled"] == 1
    assert made[1].counters["victim_overflow"] == 2


def test_queues_overflow_and_rows_come_back():
    made = follow(
        "lru",
        1,
        [
            ([1, 2, 3, 4], "1M>0 2M-~0 3M- 4M-~1"),  # one row per iteration; 2 and 3 are due at 2
            ([5], "5M>0 | 0x"),  # 1 is due at 2 too
            ([1, 2, 3], "1M>0 2V0-~0 3M- | 0x"),  # 2 leaves slot 0 and, due at 4, enters it again
            ([4], "4V1>0 | 0x"),
            ([2], "2V0>0 | 0x"),
        ],
        window=4,
        victim_mode="queues",
        victim_rows=1,
    )
    assert [plan.counters["victim_overflow"] for plan in made] == [1, 1, 0, 0, 0]
    assert [plan.counters["spilled"] for plan in made] == [2, 0, 1, 0, 0]
    assert [plan.counters["bypasses"] for plan in made] == [3, 0, 2, 0, 0]
    assert [plan.counters["evictions"] for plan in made] == [0, 1, 1, 1, 1]


def test_a_queue_takes_only_rows_with_a_next_use_in_the_window():
    # With a window of 2, batch 2 is not known at 0, when 2 is bypassed, but at 1, when 3 is.
    trace = [([1, 2], "1M>0 2M-"), ([1, 3], "1C0 3M-~0"), ([1, 2, 3], "1C0 2M- 3V0-")]
    follow("lru", 1, trace, window=2, victim_mode="queues", victim_rows=4)


def test_a_pool_keeps_rows_beyond_the_window_and_tags_them_when_it_moves():
    made = follow(
        "lru",
        1,
        [
            ([1, 2], "1M>0 2M-~0"),  # batch 3 is not in the window
            ([1], "1C0"),  # batch 2 has entered: not a word of 2
            ([1], "1C0"),  # batch 3 has entered
            ([5, 2], "5M>0 2V0-~1 | 0@0"),
        ],
        window=2,
        victim_mode="pool",
        victim_rows=4,
    )
    assert made[0].spill_word.tolist() == [-1]
    assert [plan.tag_slot.tolist() for plan in made] == [[], [], [0], []]
    assert made[2].tag_word.tolist() == [3 * 2**48 + 1]  # requested at 3, at position 1


def test_a_pool_tags_no_row_for_the_iteration_that_is_planned():
    trace = [([1], "1M>0"), ([2], "2M>0 | 0@0"), ([1], "1V0>0 | 0@0")]
    made = follow("lru", 1, trace, window=1, victim_mode="pool", victim_rows=1)
    assert [plan.tag_slot.tolist() for plan in made] == [[], [], []]


def test_pool_rows_of_unknown_use_leave_before_all_others_by_score():
    made = follow(
        "lru",
        1,
        [
            ([1], "1M>0"),
            ([2], "2M>0 | 0@0"),
            ([3], "3M>0 | 0@1"),
            ([4], "4M>0 | 0x"),  # 3 has a score as low as 1's
            ([5], "5M>0 | 0@0"),  # 4 pushes 1 out
            ([6], "6M>0 | 0@0"),  # 5 pushes 4 out
            ([7], "7M>0 | 0@1"),  # 6 pushes 2 out, whose score is 5's
            ([8], "8M>0 | 0@0"),  # 7, due at 11, pushes 5 out and does not go by its score
            ([9], "9M>0 | 0@1"),  # 8 pushes 6 out, not 7
            ([10], "10M>0 | 0@1"),  # 9, due at 12, pushes 8 out
            ([11], "11M>0 | 0x"),  # 10 has the highest score, and no next use
            ([7], "7V0>0 | 0@0"),
            ([9], "9V1>0 | 0@1"),
        ],
        scores=np.array([0, 1, 3, 1, 2, 3, 4, 0, 9, 0, 99], np.float32),
        window=5,
        victim_mode="pool",
        victim_rows=2,
    )
    assert sum(plan.counters["victim_overflow"] for plan in made) == 0


def test_other_tiers_are_not_cached():
    made = follow(
        "lru",
        2,
        [
            ([9, 7, 1, 8, 6], "9S1 7K0 1M>0 8S0 6K1"),  # 8 is in both: static comes first
            ([9, 7, 1, 6, 8], "9S1 7K0 1C0 6K1 8S0"),
        ],
        static_ids=[8, 9],
        constant_ids=[7, 6, 8],
        victim_mode="pool",
        victim_rows=4,
    )
    nonzero = {name: count for name, count in made[1].counters.items() if count}
    assert nonzero == {"requests": 5, "hits": 1, "static_hits": 2, "constant_hits": 2}


def test_sets_are_processed_in_order():
    # mix64 mod 2 of 4, 1, 2, 3, 11 is 1, 0, 1, 0, 0: set 0 sees 1, 3, 11, then set 1 sees 4, 2.
    batch = [4, 1, 2, 3, 11]
    assert [mix64(node) % 2 for node in batch] == [1, 0, 1, 0, 0]
    settings = config("lru", 2, 1, victim_mode="pool", victim_rows=2)
    made = plans(ReferencePlanner(settings), [batch, [5, 14], batch], settings.window)
    plan = next(made)
    assert plan.insert_position.tolist() == [1, 0]
    assert plan.insert_line.tolist() == [0, 1]
    # All are due at 2: 3 and 11 fill the pool, 2 comes too late.
    assert plan.spill_position.tolist() == [3, 4]
    assert plan.spill_slot.tolist() == [0, 1]
    plan = next(made)
    # 14 is of set 0, 5 of set 1; the pool stays full.
    assert plan.evict_line.tolist() == plan.insert_line.tolist() == [0, 1]
    assert plan.insert_position.tolist() == [1, 0]
    assert plan.evict_slot.tolist() == [-1, -1]


def test_a_batch_must_be_pushed_before_its_plan():
    planner = ReferencePlanner(config("lru", 2, 2))
    with pytest.raises(ValueError, match="batch 0"):
        planner.plan()


def test_a_batch_requests_a_node_once():
    planner = ReferencePlanner(config("lru", 2, 2))
    with pytest.raises(ValueError, match="batch 0"):
        planner.push([3, 4, 3])
