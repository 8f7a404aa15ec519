"""Reads planned together: the same rows, fewer reads, and nobody waits for company."""

import contextlib
import errno
import time

import numpy as np
import pytest
import torch

from lsm import native
from lsm.storage.engine import Storage
from lsm.storage.options import StorageOptions
from lsm.storage.read_scheduler import ReadScheduler
from lsm.storage.row_map import RowMap
from support.engines import ENGINES, QUEUED_ENGINES

PAGE = 4096
ROW_BYTES, NUM_ROWS = 1000, 3000


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).integers(0, 256, (NUM_ROWS, ROW_BYTES), dtype=np.uint8)


@pytest.fixture(scope="module")
def path(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "features.bin"
    path.write_bytes(rows.tobytes() + b"\0" * (-rows.nbytes % PAGE))
    return path


def open_rows(path, engine, **options) -> Storage:
    options = StorageOptions(**{"timeout_secs": 20, **options})
    return Storage([path], num_rows=NUM_ROWS, row_bytes=ROW_BYTES, engine=engine, options=options)


def requests(num: int, size: int, seed: int = 1) -> list[torch.Tensor]:
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.choice(NUM_ROWS, size, replace=False)) for _ in range(num)]


def outputs(ids: list[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.zeros(len(part), ROW_BYTES, dtype=torch.uint8) for part in ids]


def expected_reads(ids: list[torch.Tensor], gap: int) -> tuple[int, int]:
    """(reads, bytes) from the set of blocks alone: its runs, gaps up to ``gap`` bridged."""
    starts = np.concatenate([part.numpy() for part in ids]) * ROW_BYTES
    blocks = {
        block
        for start in starts
        for block in range(start // PAGE, (start + ROW_BYTES - 1) // PAGE + 1)
    }
    order = np.array(sorted(blocks))
    gaps = (np.diff(order) - 1) * PAGE
    bridged = gaps[gaps <= gap]
    return 1 + int((gaps > gap).sum()), len(order) * PAGE + int(bridged.sum())


@pytest.mark.parametrize("engine", ENGINES)
def test_every_request_gets_its_rows(path, rows, engine):
    ids = [*requests(3, 200), torch.empty(0, dtype=torch.int64)]
    out = outputs(ids)
    with open_rows(path, engine, max_gap_bytes=3 * PAGE, queue_depth=4) as storage:
        tickets = storage.submit_together(list(zip(ids, out, [None] * 4, strict=True)))
        for ticket, part in zip(reversed(tickets), reversed(ids), strict=True):
            assert np.array_equal(ticket.wait(), rows[part])
        assert storage.submit_together([]) == []


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
@pytest.mark.parametrize("gap_pages", [0, 1, 5])
def test_reads_are_counted_over_all_requests(path, rows, engine, gap_pages):
    ids = requests(4, 60)
    out = outputs(ids)
    gap = gap_pages * PAGE
    with open_rows(path, engine, max_gap_bytes=gap, max_read_bytes=4 << 20) as storage:
        for ticket in storage.submit_together(list(zip(ids, out, [None] * 4, strict=True))):
            ticket.wait()
        stats = storage.stats()
    assert (stats["reads"], stats["bytes_read"]) == expected_reads(ids, gap)
    assert stats["requests"] == 4


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
def test_an_error_reaches_those_who_wanted_the_read_and_nobody_else(path, rows, engine):
    ids = [torch.tensor([10]), torch.tensor([2000]), torch.tensor([10, 1000])]
    out = outputs(ids)
    with open_rows(path, engine) as storage:
        storage.inject_fault(native.Fault.error, nth=0, value=errno.EIO)
        first, second, third = storage.submit_together(list(zip(ids, out, [None] * 3, strict=True)))
        failed = set()
        for name, ticket, part in (
            ("a", first, ids[0]),
            ("b", second, ids[1]),
            ("c", third, ids[2]),
        ):
            try:
                assert np.array_equal(ticket.wait(), rows[part.numpy()])
            except OSError as error:
                failed.add((name, error.errno))
        # One of the three reads (of rows 10, 1000 and 2000) fails, whichever completes first.
        names = ("ac", "c", "b")
        assert failed in [{(name, errno.EIO) for name in wanted} for wanted in names]


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
def test_an_abandoned_request_does_not_hold_up_its_company(path, rows, engine):
    ids = requests(2, 300)
    out = outputs(ids)
    with open_rows(path, engine, queue_depth=2) as storage:
        dropped, kept = storage.submit_together(list(zip(ids, out, [None] * 2, strict=True)))
        del dropped
        assert np.array_equal(kept.wait(), rows[ids[1]])


def test_the_scheduler_waits_for_company_but_not_when_asked(path, rows):
    ids = requests(5, 50)
    out = outputs(ids)
    with open_rows(path, "posix") as storage:
        scheduler = ReadScheduler([storage], merge_iterations=3)
        tickets = [scheduler.submit(storage, *pair) for pair in zip(ids[:2], out[:2], strict=True)]
        assert storage.stats()["requests"] == 0
        tickets.append(scheduler.submit(storage, ids[2], out[2]))
        assert storage.stats()["requests"] == 3
        tickets += [scheduler.submit(storage, *pair) for pair in zip(ids[3:], out[3:], strict=True)]
        assert storage.stats()["requests"] == 3
        for ticket, part in zip(tickets, ids, strict=True):
            assert np.array_equal(ticket.wait(), rows[part])
        assert storage.stats()["requests"] == 5


def test_bad_arguments_surface_at_the_wait_of_everyone_in_the_company(path):
    with open_rows(path, "posix") as storage:
        scheduler = ReadScheduler([storage], merge_iterations=2)
        good = scheduler.submit(storage, *requests(1, 5), *outputs(requests(1, 5)))
        bad = scheduler.submit(
            storage, torch.tensor([NUM_ROWS]), torch.zeros(ROW_BYTES, dtype=torch.uint8)
        )
        for ticket in (good, bad):
            with pytest.raises(ValueError, match=f"got {NUM_ROWS}"):
                ticket.wait()
        with pytest.raises(ValueError, match="merge_iterations"):
            ReadScheduler([storage], merge_iterations=0)
        at_once = ReadScheduler([storage], merge_iterations=1)
        with pytest.raises(ValueError, match=f"got {NUM_ROWS}"):
            at_once.submit(
                storage, torch.tensor([NUM_ROWS]), torch.zeros(ROW_BYTES, dtype=torch.uint8)
            )


def test_one_wave_goes_to_several_files(path, rows, tmp_path):
    """With several storages a wave counts iterations; a closed one fails its own requests only. The
    second file has the nodes after those of the first, in reverse."""
    parts, more = requests(4, 50), tmp_path / "reversed.bin"
    ids, out = [parts[0], parts[1] + NUM_ROWS, parts[2], parts[3] + NUM_ROWS], outputs(parts)
    more.write_bytes(rows[::-1].tobytes() + b"\0" * (-rows.nbytes % PAGE))
    second = Storage(
        [more],
        num_rows=NUM_ROWS,
        row_bytes=ROW_BYTES,
        engine="posix",
        row_map=RowMap(NUM_ROWS, first=NUM_ROWS),
    )
    with open_rows(path, "posix") as first, second:
        scheduler = ReadScheduler([first, second], merge_iterations=2)
        tickets = [
            scheduler.submit(first, ids[0], out[0]),
            scheduler.submit(second, ids[1], out[1]),
        ]
        scheduler.end_iteration()
        tickets.append(scheduler.submit(first, ids[2], out[2]))
        assert first.stats()["requests"] == second.stats()["requests"] == 0
        scheduler.end_iteration()
        assert (first.stats()["requests"], second.stats()["requests"]) == (2, 1)
        for ticket, source, part in zip(tickets, (rows, rows[::-1], rows), parts[:3], strict=True):
            assert np.array_equal(ticket.wait(), source[part])
        kept = scheduler.submit(first, ids[0], out[0])
        lost = scheduler.submit(second, ids[3], out[3])
        second.close()
        assert np.array_equal(kept.wait(), rows[parts[0]])
        with pytest.raises(RuntimeError, match="closed"):
            lost.wait()


def test_a_request_that_is_dropped_while_it_waits_reads_nothing(path, rows):
    ids = requests(2, 50)
    out = outputs(ids)
    with open_rows(path, "posix") as storage:
        scheduler = ReadScheduler([storage], merge_iterations=3)
        dropped = scheduler.submit(storage, ids[0], out[0])
        kept = scheduler.submit(storage, ids[1], out[1])
        del dropped
        assert np.array_equal(kept.wait(), rows[ids[1]])
        assert storage.stats()["requests"] == 1
    assert not out[0].any()


def test_company_of_half_follows_the_iterations_in_flight(path, rows):
    ids = requests(6, 50)
    out = outputs(ids)
    with open_rows(path, "posix") as storage:
        scheduler = ReadScheduler([storage], merge_iterations="half")
        tickets, handed_on = [], []
        for in_flight, pair in enumerate(zip(ids, out, strict=True), 1):
            scheduler.in_flight(in_flight)
            tickets.append(scheduler.submit(storage, *pair))
            handed_on.append(storage.stats()["requests"])
        assert handed_on == [1, 2, 3, 3, 5, 5]  # companies of 1, 1, 1, 2, and 3 that are not whole
        for ticket, part in zip(tickets, ids, strict=True):
            assert np.array_equal(ticket.wait(), rows[part])
            assert ticket.done
        fixed = ReadScheduler([storage], merge_iterations=1)
        fixed.in_flight(100)
        fixed.submit(storage, ids[0], out[0])
        assert storage.stats()["requests"] == 7


def test_what_waits_is_handed_on_when_the_device_runs_short(path):
    ids = requests(2, 50)
    out = outputs(ids)
    with open_rows(path, "posix", num_threads=1) as storage:
        scheduler = ReadScheduler([storage], merge_iterations=5)
        assert not scheduler.keep_busy(10)  # nothing waits
        waiting = scheduler.submit(storage, ids[0], out[0])
        assert scheduler.keep_busy(0)
        assert not waiting.done
        assert not scheduler.keep_busy(1)
        assert storage.stats()["requests"] == 1
        waiting.wait()


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
def test_outstanding_reads_are_those_neither_done_nor_failed(path, engine):
    ids = [torch.arange(0, NUM_ROWS, 50)]
    out = outputs(ids)
    with open_rows(path, engine, num_threads=1, queue_depth=1) as storage:
        storage.inject_fault(native.Fault.stall)
        ticket = storage.submit(ids[0], out[0])
        with pytest.raises(TimeoutError):
            ticket.wait(0.05)
        stuck = storage.outstanding_reads
        assert 0 < stuck <= len(ids[0])
        storage.reset_stats()
        assert storage.outstanding_reads == stuck
    with open_rows(path, engine) as storage:
        storage.inject_fault(native.Fault.error, nth=0, value=errno.EIO)
        for part, rows_of_it in zip(requests(3, 40), outputs(requests(3, 40)), strict=True):
            with contextlib.suppress(OSError):
                storage.submit(part, rows_of_it).wait()
        deadline = time.monotonic() + 20
        while storage.outstanding_reads and time.monotonic() < deadline:
            time.sleep(0.001)
        assert storage.outstanding_reads == 0
