"""The executor of GPUs, or its twin, against tiers in NumPy."""

import numpy as np
import torch

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
    make_plan,
    open_rows,
    random_plan,
    random_targets,
)

TWIN = -1
WORDS = ("evict", "spill")


def open_device_executor(storage, prefetch_rows=0, device=TWIN):
    return native.GpuExecutor(
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
