"""The executor moves exactly the rows that a plan names, in the order of its steps."""

import errno
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm import native
from support.executor_plans import (
    CACHE,
    CONSTANT,
    CONSTANT_IDS,
    LINES,
    SLOTS,
    STATIC,
    STATIC_IDS,
    STORAGE,
    VICTIM,
    Tiers,
    as_native,
    make_plan,
    open_rows,
    random_plan,
    random_targets,
)

ITERATIONS = itertools.count()


def open_executor(storage):
    return native.CacheExecutor(
        storage.handle(),
        num_lines=LINES,
        victim_slots=SLOTS,
        static_rows=torch.tensor(STATIC_IDS),
        constant_rows=torch.tensor(CONSTANT_IDS),
        timeout_secs=60,
    )


def replay(executor, plan, out, num_threads=1, targets=None):
    """At an iteration after all before; rows that enter the victim buffer wait for the next."""
    iteration = next(ITERATIONS)
    pool = native.ThreadPool(num_threads)
    if targets is not None:
        targets = [tuple(map(torch.from_numpy, target)) for target in targets]
    out = torch.from_numpy(out)
    executor.replay(as_native(plan, iteration), out=out, pool=pool, targets=targets)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    row_bytes=st.sampled_from([1, 100, 4096, 100_000]),
    to_targets=st.booleans(),
)
def test_any_sequence_of_plans(tmp_path_factory, seed, row_bytes, to_targets):
    rng = np.random.default_rng(seed)
    rows, storage = open_rows(tmp_path_factory.mktemp("rows"), row_bytes)
    with storage:
        executor, tiers = open_executor(storage), Tiers(rows)
        for num_threads in (1, 3, 1, 3):
            plan = random_plan(rng)
            out = rng.integers(0, 256, (len(plan["source"]), row_bytes), dtype=np.uint8)
            expected = out.copy()
            tiers.replay(plan, expected)
            if not to_targets:
                replay(executor, plan, out, num_threads)
                assert np.array_equal(out, expected)
                continue
            targets = random_targets(rng, len(out), row_bytes)
            replay(executor, plan, out, num_threads, targets)
            for row_of, rows, places in targets:
                wanted = np.full_like(rows, 77)
                wanted[places if len(places) else slice(len(row_of))] = expected[row_of]
                assert np.array_equal(rows, wanted)
        # Every line and slot, read back.
        plan = make_plan(
            source=[CACHE] * LINES + [VICTIM] * SLOTS, slot=[*range(LINES), *range(SLOTS)]
        )
        out = np.empty((LINES + SLOTS, row_bytes), np.uint8)
        replay(executor, plan, out)
        assert np.array_equal(out, np.concatenate([tiers.lines, tiers.victims]))


def test_a_slot_that_is_read_is_written_again_in_the_same_plan(tmp_path):
    _, storage = open_rows(tmp_path, 8)
    with storage:
        executor = open_executor(storage)
        a, b = np.full((1, 8), 1, np.uint8), np.full((1, 8), 2, np.uint8)
        insert = {"insert_position": [0], "insert_line": [5]}
        replay(executor, make_plan(source=[STORAGE], slot=[-1], **insert), a)
        move = {"evict_line": [5], "evict_slot": [3]}
        replay(executor, make_plan(source=[STORAGE], slot=[-1], **insert, **move), b)
        # Now line 5 holds b and slot 3 a: swap them, through the batch.
        swapped = np.zeros((1, 8), np.uint8)
        replay(executor, make_plan(source=[VICTIM], slot=[3], **insert, **move), swapped)
        assert np.array_equal(swapped, a)
        both = np.zeros((2, 8), np.uint8)
        replay(executor, make_plan(source=[CACHE, VICTIM], slot=[5, 3]), both)
        assert np.array_equal(both, np.concatenate([a, b]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": [5], "slot": [0]}, "source: expected 0 to 4, got 5 at position 0"),
        ({"source": [STATIC], "slot": [3]}, "slot: expected 0 to 2 for source 0, got 3"),
        ({"source": [CACHE], "slot": [LINES]}, "slot: expected 0 to 15 for source 1, got 16"),
        ({"source": [VICTIM], "slot": [-1]}, "slot: expected 0 to 6 for source 2, got -1"),
        ({"source": [CONSTANT], "slot": [2]}, "slot: expected 0 to 1 for source 3, got 2"),
        ({"evict_line": [LINES], "evict_slot": [-1]}, "evict_line: .* got 16 at position 0"),
        ({"evict_line": [0], "evict_slot": [SLOTS]}, "evict_slot: expected 0 to 6, got 7"),
        ({"evict_line": [0], "evict_slot": [-2]}, "evict_slot: expected 0 to 6, got -2"),
        ({"insert_position": [2], "insert_line": [0]}, "insert_position: .* got 2"),
        ({"insert_position": [0], "insert_line": [-1]}, "insert_line: expected 0 to 15, got -1"),
        ({"spill_position": [-1], "spill_slot": [0]}, "spill_position: .* got -1"),
        ({"spill_position": [0], "spill_slot": [-1]}, "spill_slot: expected 0 to 6, got -1"),
        ({"insert_position": [0, 1], "insert_line": [3, 3]}, "insert_line: 3 .* written twice"),
        (
            {"evict_line": [1], "evict_slot": [2], "spill_position": [0], "spill_slot": [2]},
            "spill_slot: 2 at position 0 is written twice",
        ),
        ({"insert_position": [0]}, "insert_position, insert_line: expected the same length"),
        (
            {"evict_line": [1], "evict_slot": [2], "evict_word": []},
            "evict_slot, evict_word: expected the same length, got 1 and 0",
        ),
        (
            {"spill_position": [0], "spill_slot": [2], "spill_word": [0]},
            "spill_word: expected a next use after iteration 0, got 0 at position 0",
        ),
        ({"tag_slot": [0]}, "tag_slot, tag_word: expected the same length, got 1 and 0"),
        (
            {"tag_slot": [7], "tag_word": [-1]},
            r"tag_slot: expected .*\[0, 7\), got 7 at position 0",
        ),
        ({"source": [STORAGE] * 3, "slot": [-1] * 3}, "out: expected 3 rows of 8 bytes, got 16"),
    ],
)
def test_a_wrong_plan_moves_nothing(tmp_path, monkeypatch, fields, message):
    _, storage = open_rows(tmp_path, 8)
    with storage:
        executor = open_executor(storage)
        monkeypatch.setitem(globals(), "ITERATIONS", itertools.count())
        out = np.full((2, 8), 9, np.uint8)
        full = {"source": [STATIC, STATIC], "slot": [0, 1]} | fields
        if len(full["source"]) == 1:
            full["source"], full["slot"] = full["source"] * 2, full["slot"] * 2
        with pytest.raises(ValueError, match=message):
            replay(executor, make_plan(**full), out)
        assert (out == 9).all()


@pytest.mark.parametrize(
    ("row_of", "places", "message"),
    [
        ([2], [0], "targets, row_of: expected rows 0 to 1, got 2 at position 0"),
        ([0, -1], [0, 1], "targets, row_of: .* got -1 at position 1"),
        ([0], [3], "targets, place: expected rows 0 to 2, got 3"),
        ([0, 1], [0], "targets, place: expected none or 2, got 1"),
        ([0, 1, 0, 1], [], "targets, rows: expected 4 rows, got 3"),
    ],
)
def test_wrong_targets_move_nothing(tmp_path, row_of, places, message):
    _, storage = open_rows(tmp_path, 8)
    with storage:
        executor = open_executor(storage)
        out, rows = np.full((2, 8), 9, np.uint8), np.full((3, 8), 9, np.uint8)
        right = (np.array([0], np.int32), rows, np.array([0], np.int32))
        wrong = (np.array(row_of, np.int32), rows, np.array(places, np.int32))
        plan = make_plan(source=[STATIC, STATIC], slot=[0, 1])
        with pytest.raises(ValueError, match=message):
            replay(executor, plan, out, targets=[right, wrong])
        assert (out == 9).all()
        assert (rows == 9).all()


@pytest.mark.parametrize("engine", ["posix", "io_uring"])
def test_rows_that_cannot_be_read_at_first_are_an_error(tmp_path, engine):
    if engine == "io_uring" and native.io_uring_problem():
        pytest.skip(native.io_uring_problem())
    _, storage = open_rows(tmp_path, 4096, engine)
    with storage:
        storage.inject_fault(native.Fault.error, nth=1, value=errno.EIO)
        with pytest.raises(OSError, match=r"rows\.4096\.bin"):
            open_executor(storage)


def test_sizes_are_checked(tmp_path):
    _, storage = open_rows(tmp_path, 8)
    none = torch.empty(0, dtype=torch.int64)
    sizes = {"num_lines": 1, "victim_slots": 0, "static_rows": none, "constant_rows": none}
    with storage:
        with pytest.raises(ValueError, match="num_lines: expected at least 0, got -1"):
            native.CacheExecutor(storage.handle(), **sizes | {"num_lines": -1}, timeout_secs=1)
        bad = {"static_rows": torch.tensor([60])}
        with pytest.raises(ValueError, match=r"ids in \[0, 60\), got 60"):
            native.CacheExecutor(storage.handle(), **sizes | bad, timeout_secs=1)
