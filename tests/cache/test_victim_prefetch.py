"""Rows of the victim buffer are in their batches before their plan is replayed, and no others."""

import time

import pytest
import torch

from lsm import native
from support.executor_plans import CACHE, STATIC, STORAGE, VICTIM, make_plan, open_rows

ROW_BYTES = 64
LINES, SLOTS = 8, 6


def open_executor(storage, ahead, row_bytes=ROW_BYTES):
    none = torch.empty(0, dtype=torch.int64)
    return native.CacheExecutor(
        storage.handle(),
        num_lines=LINES,
        victim_slots=SLOTS,
        static_rows=none,
        constant_rows=none,
        timeout_secs=60,
        prefetch_iterations=ahead,
    )


@pytest.fixture
def storage(tmp_path):
    with open_rows(tmp_path, ROW_BYTES)[1] as storage:
        yield storage


def rows_of(*values):
    return torch.tensor(values, dtype=torch.uint8).view(-1, 1).repeat(1, ROW_BYTES)


def replay(executor, iteration, plan, out, targets=None):
    moves = make_plan(**plan)
    made = native.Plan(iteration=iteration, source=moves.pop("source"), moves=moves)
    executor.replay(made, out=out, pool=native.ThreadPool(1), targets=targets)


def spill(executor, iteration, rows, waits_for, slots=None):
    """Replays a plan that puts ``rows`` into the victim buffer, each for (next use, position)."""
    slots = list(range(len(rows))) if slots is None else slots
    plan = {
        "source": [STORAGE] * len(rows),
        "slot": [-1] * len(rows),
        "spill_position": list(range(len(rows))),
        "spill_slot": slots,
        "spill_word": [native.pack_metadata(i, 0, p) for i, p in waits_for],
    }
    replay(executor, iteration, plan, rows)


def plan_of(iteration, source, slot):
    plan = make_plan(source=source, slot=slot)
    return native.Plan(iteration=iteration, source=plan["source"], moves={"slot": plan["slot"]})


def open_batch(executor, iteration, source, slot):
    out = torch.zeros(len(source), ROW_BYTES, dtype=torch.uint8)
    executor.open_batch(plan_of(iteration, source, slot), out)
    return out


def wait_for(executor, num_rows):
    deadline = time.monotonic() + 20
    while executor.prefetched_rows < num_rows:
        assert time.monotonic() < deadline, f"{executor.prefetched_rows} of {num_rows} rows"
        time.sleep(0.001)


def test_rows_arrive_where_their_words_say(storage):
    executor = open_executor(storage, ahead=2)
    near = open_batch(executor, 6, [STORAGE, VICTIM, VICTIM], [-1, 2, 0])
    far = open_batch(executor, 7, [VICTIM, STORAGE], [1, -1])
    spill(executor, 5, rows_of(10, 11, 12), [(6, 2), (7, 0), (6, 1)])
    wait_for(executor, 3)
    assert torch.equal(near, rows_of(0, 12, 10))
    assert torch.equal(far, rows_of(11, 0))
    near[0] = 99  # the read from storage
    replay(executor, 6, {"source": [STORAGE, VICTIM, VICTIM], "slot": [-1, 2, 0]}, near)
    assert torch.equal(near, rows_of(99, 12, 10))


def test_rows_that_arrived_reach_targets_and_lines(storage):
    """One row has arrived, one is still in the buffer; both are inserted, and wanted twice."""
    executor = open_executor(storage, ahead=2)
    batch = open_batch(executor, 6, [VICTIM, VICTIM, VICTIM], [2, 0, 1])
    spill(executor, 5, rows_of(10, 11, 12), [(6, 1), (8, 0), (8, 1)])
    wait_for(executor, 1)
    numbers = [torch.tensor(part, dtype=torch.int32) for part in ([2, 0, 1, 1], [3, 0, 2, 4])]
    wanted = torch.zeros(5, ROW_BYTES, dtype=torch.uint8)
    plan = {"source": [VICTIM] * 3, "slot": [2, 0, 1]}
    plan |= {"insert_position": [1, 2], "insert_line": [4, 0]}
    replay(executor, 6, plan, batch, [(numbers[0], wanted, numbers[1])])
    assert torch.equal(wanted, rows_of(12, 0, 10, 11, 10))
    held = torch.zeros(2, ROW_BYTES, dtype=torch.uint8)
    replay(executor, 7, {"source": [CACHE, CACHE], "slot": [4, 0]}, held)
    assert torch.equal(held, rows_of(10, 11))


def test_rows_may_enter_before_their_batch_opens_and_after(storage):
    """The iteration counts on beyond 16 bits."""
    executor = open_executor(storage, ahead=3)
    t = 2**16 - 2
    spill(executor, t, rows_of(10), [(t + 3, 1)], slots=[4])
    out = open_batch(executor, t + 3, [VICTIM, VICTIM], [5, 4])
    wait_for(executor, 1)
    assert torch.equal(out, rows_of(0, 10))
    spill(executor, t + 1, rows_of(20), [(t + 3, 0)], slots=[5])
    wait_for(executor, 2)
    assert torch.equal(out, rows_of(20, 10))


def test_a_row_of_unknown_use_is_copied_once_it_is_tagged(storage):
    """2^16 - 1 iterations wait for no row that nobody has requested, whatever a word's low bits."""
    executor = open_executor(storage, ahead=2)
    t = 2**16 - 2
    plan = {"source": [STORAGE], "slot": [-1], "spill_position": [0], "spill_slot": [3]}
    replay(executor, t - 1, plan | {"spill_word": [-1]}, rows_of(10))
    same_bits = open_batch(executor, t + 1, [VICTIM], [3])
    out = open_batch(executor, t + 2, [STORAGE, VICTIM], [-1, 3])
    nothing = torch.zeros(0, ROW_BYTES, dtype=torch.uint8)
    word = native.pack_metadata(t + 2, 0, 1)
    word -= 2**64 if word >= 2**63 else 0
    replay(executor, t, {"tag_slot": [3], "tag_word": [word]}, nothing)
    wait_for(executor, 1)
    assert torch.equal(out, rows_of(0, 10))
    assert not same_bits.any()


def test_a_tagged_row_may_give_way_in_the_same_plan(storage):
    executor = open_executor(storage, ahead=2)
    plan = {"source": [STORAGE], "slot": [-1], "spill_position": [0], "spill_slot": [3]}
    replay(executor, 0, plan | {"spill_word": [-1]}, rows_of(10))
    out = open_batch(executor, 2, [STORAGE, VICTIM], [-1, 3])
    plan |= {"spill_word": [native.pack_metadata(2, 0, 1)]}
    plan |= {"tag_slot": [3], "tag_word": [native.pack_metadata(2, 0, 0)]}
    replay(executor, 1, plan, rows_of(20))
    wait_for(executor, 1)
    assert torch.equal(out, rows_of(0, 20))


@pytest.mark.parametrize("ahead", [0, 1])
def test_no_further_ahead_than_asked(storage, ahead):
    executor = open_executor(storage, ahead)
    out = open_batch(executor, 2, [VICTIM], [0])
    spill(executor, 0, rows_of(10), [(2, 0)])
    # Were there any haste, this row would be copied first.
    other = open_batch(executor, 1, [STORAGE], [-1])
    time.sleep(0.05)
    assert executor.prefetched_rows == 0
    assert not out.any()
    replay(executor, 1, {"source": [STORAGE], "slot": [-1]}, other)
    if ahead:
        wait_for(executor, 1)
    replay(executor, 2, {"source": [VICTIM], "slot": [0]}, out)
    assert torch.equal(out, rows_of(10))


def test_a_row_that_gives_way_is_left_to_storage(storage):
    """Its plan, which is known by then, says that storage serves it; another row has its slot."""
    executor = open_executor(storage, ahead=4)
    spill(executor, 0, rows_of(10), [(4, 1)], slots=[3])
    open_batch(executor, 4, [STORAGE, STORAGE], [-1, -1])
    spill(executor, 1, rows_of(20), [(3, 0)], slots=[3])
    last = open_batch(executor, 3, [VICTIM], [3])
    wait_for(executor, 1)
    assert torch.equal(last, rows_of(20))
    assert executor.prefetched_rows == 1


def test_a_slot_may_be_written_by_the_plan_that_frees_it(storage):
    executor = open_executor(storage, ahead=1)
    insert = {"source": [STORAGE], "slot": [-1], "insert_position": [0], "insert_line": [7]}
    replay(executor, 0, insert, rows_of(50))
    for t in range(1, 40):
        spill(executor, 4 * t, rows_of(t), [(4 * t + 1, 0)], slots=[2])
        out = open_batch(executor, 4 * t + 1, [VICTIM], [2])
        if t % 2:  # else a race: whether it was prefetched or not is the same
            wait_for(executor, executor.prefetched_rows)
        word = native.pack_metadata(4 * t + 2, 0, 0)
        move = {"evict_line": [7], "evict_slot": [2], "evict_word": [word]}
        replay(executor, 4 * t + 1, {"source": [VICTIM], "slot": [2]} | move, out)
        assert torch.equal(out, rows_of(t))
        out = open_batch(executor, 4 * t + 2, [VICTIM, CACHE], [2, 7])
        replay(executor, 4 * t + 2, {"source": [VICTIM, CACHE], "slot": [2, 7]}, out)
        assert torch.equal(out, rows_of(50, 50))


def test_what_goes_wrong_in_the_thread_shows_at_the_replay(storage):
    executor = open_executor(storage, ahead=2)
    out = open_batch(executor, 1, [VICTIM], [0])
    plan = {"source": [VICTIM], "slot": [0]}
    spill(executor, 0, rows_of(10), [(1, 5)])
    message = r"victim slot 0: .* position 5 of iteration 1, which has 1 rows"
    deadline = time.monotonic() + 20
    # Until the thread has come to it, a replay on other memory is refused for that.
    error = None
    while not isinstance(error, RuntimeError) and time.monotonic() < deadline:
        with pytest.raises((RuntimeError, ValueError)) as caught:
            replay(executor, 1, plan, out.clone())
        error = caught.value
    with pytest.raises(RuntimeError, match=message):
        replay(executor, 1, plan, out)
    executor.start_over()
    spill(executor, 0, rows_of(10), [(1, 0)])
    out = open_batch(executor, 1, [VICTIM], [0])
    wait_for(executor, 1)
    replay(executor, 1, plan, out)
    assert torch.equal(out, rows_of(10))


def test_calls_out_of_turn(storage):
    executor = open_executor(storage, ahead=2)
    spill(executor, 3, rows_of(10), [(4, 0)])
    with pytest.raises(ValueError, match="expected one after 3, which was replayed last, got 3"):
        open_batch(executor, 3, [VICTIM], [0])
    with pytest.raises(ValueError, match=r"expected one after 3, .* got 2"):
        replay(executor, 2, {}, rows_of())
    out = open_batch(executor, 4, [VICTIM], [0])
    with pytest.raises(ValueError, match="4 has been opened before"):
        open_batch(executor, 4, [VICTIM], [0])
    plan = {"source": [VICTIM], "slot": [0]}
    with pytest.raises(ValueError, match="the memory that iteration 4 was opened with"):
        replay(executor, 4, plan, out.clone())
    too_short = torch.zeros(63, dtype=torch.uint8)
    with pytest.raises(ValueError, match="64 bytes for each position, got 1, 1 and 63 bytes"):
        executor.open_batch(plan_of(5, [STATIC], [0]), too_short)
    replay(executor, 4, plan, out)
    assert torch.equal(out, rows_of(10))
    with pytest.raises(ValueError, match="prefetch_iterations: expected 0 to 65535, got -1"):
        open_executor(storage, ahead=-1)


def test_closing_while_rows_are_copied(tmp_path):
    """The thread may be writing to a batch of which Python has dropped all references."""
    row_bytes = 1 << 18
    with open_rows(tmp_path, row_bytes)[1] as storage:
        for start_over in (False, True) * 3:
            executor = open_executor(storage, 2, row_bytes)
            plan = {
                "source": [STORAGE] * SLOTS,
                "slot": [-1] * SLOTS,
                "spill_position": list(range(SLOTS)),
                "spill_slot": list(range(SLOTS)),
                "spill_word": [native.pack_metadata(1, 0, p) for p in range(SLOTS)],
            }
            out = torch.ones(SLOTS, row_bytes, dtype=torch.uint8)
            replay(executor, 0, plan, out)
            executor.open_batch(plan_of(1, [VICTIM] * SLOTS, range(SLOTS)), out.clone())
            if start_over:
                executor.start_over()
                assert executor.prefetched_rows <= SLOTS
            del executor
    assert out.all()
