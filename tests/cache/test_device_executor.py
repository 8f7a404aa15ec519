"""The executor of GPUs moves exactly the rows that a plan names: here its twin, which runs the same
kernels, lane by lane, on the host."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_executor import (
    CACHE,
    CONSTANT_IDS,
    LINES,
    SLOTS,
    STATIC_IDS,
    STORAGE,
    VICTIM,
    Tiers,
    make_plan,
    open_rows,
    random_plan,
    random_targets,
)

from lsm import native

TWIN = -1
WORDS = ("evict", "spill")


def open_device_executor(storage, prefetch_rows=0, device=TWIN):
    return native.DeviceExecutor(
        storage.handle(),
        num_lines=LINES,
        victim_slots=SLOTS,
        prefetch_rows=prefetch_rows,
        static_ids=torch.tensor(STATIC_IDS),
        constant_ids=torch.tensor(CONSTANT_IDS),
        timeout_secs=10,
        device=device,
    )


def replay(executor, plan, staged, iteration=0):
    """The rows that the batch gets. ``staged``: rows by position, of which storage's are read."""
    waits = native.pack_metadata(iteration + 1, 0, 0)
    plan = {"evict_word": np.full(len(plan["evict_slot"]), waits)} | plan
    plan = {"spill_word": np.full(len(plan["spill_slot"]), waits)} | plan
    none = np.empty(0, np.int64)
    plan = {"tag_slot": none, "tag_word": none} | plan
    tensors = {name: torch.from_numpy(values) for name, values in plan.items()}
    on_gpu = executor.device >= 0
    staged = torch.from_numpy(staged)
    out = torch.full_like(staged, 7, device=f"cuda:{executor.device}" if on_gpu else "cpu")
    if on_gpu:
        staged = staged.pin_memory()
        torch.cuda.synchronize()
    executor.replay(iteration=iteration, **tensors, staged=staged, out=out)
    executor.synchronize()
    return out.cpu().numpy()


def replay_to(executor, plan, staged, targets, iteration):
    """What is in the memory of each target."""
    waits = native.pack_metadata(iteration + 1, 0, 0)
    plan = plan | {f"{kind}_word": np.full(len(plan[f"{kind}_slot"]), waits) for kind in WORDS}
    plan |= dict.fromkeys(("tag_slot", "tag_word"), np.empty(0, np.int64))
    tensors = {name: torch.from_numpy(values) for name, values in plan.items()}
    on_gpu = executor.device >= 0
    staged = torch.from_numpy(staged)
    lists = [tuple(map(torch.from_numpy, target)) for target in targets]
    if on_gpu:
        staged = staged.pin_memory()
        # One of them in page-locked memory, as for a rank that gets its rows as messages.
        lists = [
            (row_of, rows.pin_memory() if r == 1 else rows.cuda(executor.device), place)
            for r, (row_of, rows, place) in enumerate(lists)
        ]
        torch.cuda.synchronize()
    executor.replay(iteration=iteration, **tensors, staged=staged, targets=lists)
    executor.wait_delivered()
    delivered = [rows.cpu().numpy().copy() for _, rows, _ in lists]
    executor.synchronize()
    return delivered


def victims_of(plan):
    return torch.from_numpy(plan["slot"][plan["source"] == VICTIM])


def fill_plan():
    """Puts a row into every victim slot, whose memory is not initialised."""
    slots = range(SLOTS)
    return make_plan(
        source=[STORAGE] * SLOTS, slot=[-1] * SLOTS, spill_position=slots, spill_slot=slots
    )


def check_held(executor, tiers, row_bytes, iteration):
    """Every line and slot, read back."""
    everything = make_plan(
        source=[CACHE] * LINES + [VICTIM] * SLOTS, slot=[*range(LINES), *range(SLOTS)]
    )
    staged = np.zeros((LINES + SLOTS, row_bytes), np.uint8)
    held = replay(executor, everything, staged, iteration)
    assert np.array_equal(held, np.concatenate([tiers.lines, tiers.victims]))


def check_random_plans(directory, seed, row_bytes, prefetch_rows, device=TWIN, num_plans=6):
    rng = np.random.default_rng(seed)
    rows, storage = open_rows(directory, row_bytes)
    with storage:
        executor, tiers = open_device_executor(storage, prefetch_rows, device), Tiers(rows)
        plans = [fill_plan(), *(random_plan(rng) for _ in range(num_plans - 1))]
        for iteration, plan in enumerate(plans):
            staged = rng.integers(0, 256, (len(plan["source"]), row_bytes), dtype=np.uint8)
            expected = staged.copy()
            tiers.replay(plan, expected)
            executor.set_staging("copy" if rng.random() < 0.5 else "gather")
            assert np.array_equal(replay(executor, plan, staged, iteration), expected)
            # Of the next plan, of one that is not the next, or of none.
            if iteration + 1 < num_plans and rng.random() < 0.8:
                executor.prefetch(victims_of(plans[iteration + 1 - (rng.random() < 0.2)]))
        check_held(executor, tiers, row_bytes, num_plans)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    # Rows of bytes, of 4-byte and of 16-byte words; less than a warp copies at once, and more.
    row_bytes=st.sampled_from([1, 6, 100, 16, 512, 4096, 9216]),
    prefetch_rows=st.sampled_from([0, 2, 50]),
)
def test_any_sequence_of_plans(tmp_path_factory, seed, row_bytes, prefetch_rows):
    check_random_plans(tmp_path_factory.mktemp("rows"), seed, row_bytes, prefetch_rows)


def check_random_targets(directory, seed, row_bytes, prefetch_rows, device=TWIN, num_plans=6):
    """As check_random_plans(), with the rows going to several requesters."""
    rng = np.random.default_rng(seed)
    rows, storage = open_rows(directory, row_bytes)
    with storage:
        executor, tiers = open_device_executor(storage, prefetch_rows, device), Tiers(rows)
        plans = [fill_plan(), *(random_plan(rng) for _ in range(num_plans - 1))]
        for iteration, plan in enumerate(plans):
            num_rows = len(plan["source"])
            staged = rng.integers(0, 256, (num_rows, row_bytes), dtype=np.uint8)
            expected = staged.copy()
            tiers.replay(plan, expected)
            targets = random_targets(rng, num_rows, row_bytes)
            executor.set_staging("copy" if rng.random() < 0.5 else "gather")
            delivered = replay_to(executor, plan, staged, targets, iteration)
            for (row_of, memory, place), got in zip(targets, delivered, strict=True):
                memory = np.full_like(memory, 77)
                memory[place if len(place) else np.arange(len(row_of))] = expected[row_of]
                assert np.array_equal(got, memory)
            if iteration + 1 < num_plans:
                executor.prefetch(victims_of(plans[iteration + 1]))
        check_held(executor, tiers, row_bytes, num_plans)


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
        executor = open_device_executor(storage)
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
        executor, tiers = open_device_executor(storage), Tiers(rows)
        for shift in (1, 4, 8):
            memory = np.arange(48 + shift, dtype=np.uint8)
            staged = memory[shift:].reshape(3, 16)
            expected = staged.copy()
            tiers.replay(plan, expected)
            assert np.array_equal(replay(executor, plan, staged), expected)


def test_a_prefetched_row_is_that_of_its_own_plan(tmp_path):
    """A slot that the replay before wrote, and that the plan itself writes again."""
    _, storage = open_rows(tmp_path, 4)
    with storage:
        executor = open_device_executor(storage, prefetch_rows=4)
        a, b, c = (np.full((1, 4), value, np.uint8) for value in (1, 2, 3))
        insert = {"insert_position": [0], "insert_line": [5]}
        move = {"evict_line": [5], "evict_slot": [3]}
        replay(executor, make_plan(source=[STORAGE], slot=[-1], **insert), a, 0)
        replay(executor, make_plan(source=[STORAGE], slot=[-1], **insert, **move), b, 1)
        executor.prefetch(torch.tensor([3]))
        swap = make_plan(source=[VICTIM], slot=[3], **insert, **move)
        assert np.array_equal(replay(executor, swap, c, 2), a)
        both = make_plan(source=[CACHE, VICTIM], slot=[5, 3])
        executor.prefetch(torch.tensor([3]))
        held = replay(executor, both, np.zeros((2, 4), np.uint8), 3)
        assert np.array_equal(held, np.concatenate([a, b]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": [CACHE], "slot": [LINES]}, "slot: expected 0 to 15 for source 1, got 16"),
        ({"evict_line": [0], "evict_slot": [SLOTS]}, "evict_slot: expected 0 to 6, got 7"),
        (
            {"source": [STORAGE] * 3, "slot": [-1] * 3},
            "staged: expected 3 rows of 8 bytes, got 8 bytes",
        ),
    ],
)
def test_a_wrong_plan_moves_nothing(tmp_path, fields, message):
    _, storage = open_rows(tmp_path, 8)
    with storage:
        executor = open_device_executor(storage)
        plan = make_plan(**{"source": [0], "slot": [0]} | fields)
        with pytest.raises(ValueError, match=message):
            replay(executor, plan, np.zeros((1, 8), np.uint8))
        with pytest.raises(ValueError, match="way: expected gather or copy, got 'move'"):
            executor.set_staging("move")
        with pytest.raises(ValueError, match=r"victim_slots: expected slots in \[0, 7\), got 7"):
            executor.prefetch(torch.tensor([SLOTS]))


def test_sizes_and_memory(tmp_path):
    _, storage = open_rows(tmp_path, 8)
    with storage:
        executor = open_device_executor(storage, prefetch_rows=5)
        assert executor.device_bytes == 8 * (LINES + len(STATIC_IDS) + 5)
        assert executor.pinned_bytes == 8 * (SLOTS + len(CONSTANT_IDS) + 5)
        if not native.build_info()["cuda"]:
            with pytest.raises(RuntimeError, match="LSM_CUDA=ON"):
                open_device_executor(storage, device=0)
