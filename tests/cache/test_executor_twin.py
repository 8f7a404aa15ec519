"""The executor of GPUs moves exactly the rows that a plan names: here its twin, which runs the same
kernels, lane by lane, on the host."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm import native
from support.executor_plans import (
    CACHE,
    CONSTANT_IDS,
    LINES,
    SLOTS,
    STATIC_IDS,
    STORAGE,
    VICTIM,
    Tiers,
    as_native,
    make_plan,
    open_rows,
)
from support.gpu_executor import (
    check_random_plans,
    check_random_targets,
    open_gpu_executor,
    replay,
    replay_to,
)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    # Rows of bytes, of 4-byte and of 16-byte words; less than a warp copies at once, and more.
    row_bytes=st.sampled_from([1, 6, 100, 16, 512, 4096, 9216]),
    prefetch_rows=st.sampled_from([0, 2, 50]),
)
def test_any_sequence_of_plans(tmp_path_factory, seed, row_bytes, prefetch_rows):
    check_random_plans(tmp_path_factory.mktemp("rows"), seed, row_bytes, prefetch_rows)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    row_bytes=st.sampled_from([1, 6, 100, 16, 4096]),
    prefetch_rows=st.sampled_from([0, 2, 50]),
)
def test_rows_for_several_ranks(tmp_path_factory, seed, row_bytes, prefetch_rows):
    check_random_targets(tmp_path_factory.mktemp("rows"), seed, row_bytes, prefetch_rows)


def test_wrong_targets_get_nothing(tmp_path):
    _, storage = open_rows(tmp_path, 8)
    with storage:
        executor = open_gpu_executor(storage)
        plan = make_plan(source=[0, 0, 0], slot=[0, 1, 2])
        rows, none = np.full((2, 8), 7, np.uint8), np.empty(0, np.int32)
        targets = [(np.array([row], np.int32), rows, none) for row in (2, 3)]
        with pytest.raises(ValueError, match="row_of: expected rows 0 to 2, got 3 at position 0"):
            replay_to(executor, plan, np.zeros((3, 8), np.uint8), targets, 0)
        assert (rows == 7).all()


def test_memory_that_is_not_aligned(tmp_path):
    rows, storage = open_rows(tmp_path, 16)
    plan = make_plan(source=[CACHE, STORAGE, 0], slot=[2, -1, 1])
    with storage:
        executor, tiers = open_gpu_executor(storage), Tiers(rows)
        for shift in (1, 4, 8):
            staged = np.arange(48, dtype=np.uint8).reshape(3, 16)
            expected = staged.copy()
            tiers.replay(plan, expected)
            assert np.array_equal(replay(executor, plan, staged, shift=shift), expected)


def test_a_prefetched_row_is_that_of_its_own_plan(tmp_path):
    """A slot that the replay before wrote, and that the plan itself writes again."""
    _, storage = open_rows(tmp_path, 4)
    with storage:
        executor = open_gpu_executor(storage, prefetch_rows=4)
        a, b, c = (np.full((1, 4), value, np.uint8) for value in (1, 2, 3))
        insert = {"insert_position": [0], "insert_line": [5]}
        move = {"evict_line": [5], "evict_slot": [3]}
        replay(executor, make_plan(source=[STORAGE], slot=[-1], **insert), a, 0)
        replay(executor, make_plan(source=[STORAGE], slot=[-1], **insert, **move), b, 1)
        swap = make_plan(source=[VICTIM], slot=[3], **insert, **move)
        executor.prefetch(as_native(swap, 2))
        assert np.array_equal(replay(executor, swap, c, 2), a)
        both = make_plan(source=[CACHE, VICTIM], slot=[5, 3])
        executor.prefetch(as_native(both, 3))
        held = replay(executor, both, np.zeros((2, 4), np.uint8), 3)
        assert np.array_equal(held, np.concatenate([a, b]))


@pytest.mark.parametrize(
    ("num_staged", "num_out", "message"),
    [
        (1, 3, "staged: expected 2 rows of 8 bytes, got 8 bytes"),
        (3, 3, "staged: expected 2 rows of 8 bytes, got 24 bytes"),
        (2, 2, "out: expected 3 rows of 8 bytes, got 16 bytes"),
    ],
)
def test_memory_of_a_wrong_size(tmp_path, num_staged, num_out, message):
    _, storage = open_rows(tmp_path, 8)
    plan = make_plan(source=[STORAGE, 0, STORAGE], slot=[-1, 0, -1])
    with storage:
        executor = open_gpu_executor(storage)
        staged, out = (torch.zeros(count, 8, dtype=torch.uint8) for count in (num_staged, num_out))
        with pytest.raises(ValueError, match=message):
            executor.replay(as_native(plan, 0), staged=staged, out=out)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": [CACHE], "slot": [LINES]}, "slot: expected 0 to 15 for source 1, got 16"),
        ({"evict_line": [0], "evict_slot": [SLOTS]}, "evict_slot: expected 0 to 6, got 7"),
    ],
)
def test_a_wrong_plan_moves_nothing(tmp_path, fields, message):
    _, storage = open_rows(tmp_path, 8)
    with storage:
        executor = open_gpu_executor(storage)
        plan = make_plan(**{"source": [0], "slot": [0]} | fields)
        with pytest.raises(ValueError, match=message):
            replay(executor, plan, np.zeros((1, 8), np.uint8))
        with pytest.raises(
            ValueError, match="staging: expected gather, copy or resident, got 'move'"
        ):
            executor.set_staging("move")
        with pytest.raises(ValueError, match=r"victim_slots: expected slots in \[0, 7\), got 7"):
            executor.prefetch(as_native(make_plan(source=[VICTIM], slot=[SLOTS]), 1))


def test_sizes_and_memory(tmp_path):
    _, storage = open_rows(tmp_path, 8)
    with storage:
        executor = open_gpu_executor(storage, prefetch_rows=5)
        assert executor.device_bytes == 8 * (LINES + len(STATIC_IDS) + 5)
        assert executor.pinned_bytes == 8 * (SLOTS + len(CONSTANT_IDS) + 5)
        if not native.build_info()["cuda"]:
            with pytest.raises(RuntimeError, match="LSM_CUDA=ON"):
                open_gpu_executor(storage, device=0)
