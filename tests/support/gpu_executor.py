"""The executor of GPUs, or its twin, against tiers in NumPy."""

import numpy as np
import torch

from lsm import native
from lsm.cache.staging import OPTIONS
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
    random_plan,
    random_targets,
)

TWIN = -1
WAYS = (*OPTIONS, "resident")  # a twin's memory is the host's


def open_gpu_executor(storage, prefetch_rows=0, device=TWIN):
    return native.GpuExecutor(
        storage.handle(),
        num_lines=LINES,
        victim_slots=SLOTS,
        prefetch_rows=prefetch_rows,
        static_rows=torch.tensor(STATIC_IDS),
        constant_rows=torch.tensor(CONSTANT_IDS),
        timeout_secs=60,
        device=device,
    )


def staged_rows(plan, rows, shift=0):
    """The rows from storage among ``rows``, one after the other, ``shift`` bytes off alignment."""
    chosen = rows[plan["source"] == STORAGE]
    memory = np.empty(shift + chosen.nbytes, np.uint8)
    memory[shift:] = chosen.reshape(-1)
    return torch.from_numpy(memory[shift:].reshape(chosen.shape))


def replay(executor, plan, staged, iteration=0, shift=0):
    """The rows that the batch gets. ``staged``: rows by position, of which storage's are read."""
    on_gpu = executor.device >= 0
    place = f"cuda:{executor.device}" if on_gpu else "cpu"
    out = torch.full(staged.shape, 7, dtype=torch.uint8, device=place)
    staged = staged_rows(plan, staged, shift)
    if on_gpu:
        staged = staged.pin_memory()
        torch.cuda.synchronize()
    executor.replay(as_native(plan, iteration), staged=staged, out=out)
    executor.synchronize()
    return out.cpu().numpy()


def replay_to(executor, plan, staged, targets, iteration):
    """The memory of each target."""
    on_gpu = executor.device >= 0
    staged = staged_rows(plan, staged)
    lists = [tuple(map(torch.from_numpy, target)) for target in targets]
    if on_gpu:
        staged = staged.pin_memory()
        # One of them in page-locked memory, as for a rank that gets its rows as messages.
        lists = [
            (row_of, rows.pin_memory() if r == 1 else rows.cuda(executor.device), place)
            for r, (row_of, rows, place) in enumerate(lists)
        ]
        torch.cuda.synchronize()
    executor.replay(as_native(plan, iteration), staged=staged, targets=lists)
    executor.wait_delivered()
    delivered = [rows.cpu().numpy().copy() for _, rows, _ in lists]
    executor.synchronize()
    return delivered


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


def replayed_plans(directory, seed, row_bytes, prefetch_rows, device, num_plans):
    """Yields (random numbers, executor, plans, iteration, staged rows, rows of the batch) for each
    of some random plans, which is to be replayed; then checks what the executor holds."""
    rng = np.random.default_rng(seed)
    rows, storage = open_rows(directory, row_bytes)
    with storage:
        executor, tiers = open_gpu_executor(storage, prefetch_rows, device), Tiers(rows)
        plans = [fill_plan(), *(random_plan(rng) for _ in range(num_plans - 1))]
        for iteration, plan in enumerate(plans):
            staged = rng.integers(0, 256, (len(plan["source"]), row_bytes), dtype=np.uint8)
            expected = staged.copy()
            tiers.replay(plan, expected)
            yield rng, executor, plans, iteration, staged, expected
        check_held(executor, tiers, row_bytes, num_plans)


def check_random_plans(directory, seed, row_bytes, prefetch_rows, device=TWIN, num_plans=6):
    cases = replayed_plans(directory, seed, row_bytes, prefetch_rows, device, num_plans)
    for rng, executor, plans, iteration, staged, expected in cases:
        executor.set_staging(rng.choice(WAYS if executor.device < 0 else OPTIONS))
        assert np.array_equal(replay(executor, plans[iteration], staged, iteration), expected)
        # Of the next plan, of one that is not the next, or of none.
        if iteration + 1 < num_plans and rng.random() < 0.8:
            later = iteration + 1 - (rng.random() < 0.2)
            executor.prefetch(as_native(plans[later], later))


def check_random_targets(directory, seed, row_bytes, prefetch_rows, device=TWIN, num_plans=6):
    """As check_random_plans(), with the rows going to several requesters."""
    cases = replayed_plans(directory, seed, row_bytes, prefetch_rows, device, num_plans)
    for rng, executor, plans, iteration, staged, expected in cases:
        targets = random_targets(rng, len(staged), row_bytes)
        executor.set_staging(rng.choice(WAYS if executor.device < 0 else OPTIONS))
        delivered = replay_to(executor, plans[iteration], staged, targets, iteration)
        for (row_of, memory, place), got in zip(targets, delivered, strict=True):
            memory = np.full_like(memory, 77)
            memory[place if len(place) else np.arange(len(row_of))] = expected[row_of]
            assert np.array_equal(got, memory)
        if iteration + 1 < num_plans:
            executor.prefetch(as_native(plans[iteration + 1], iteration + 1))
