"""The buffer over a file: what was trained is what is on disk, whatever fails."""

import errno
import threading

import numpy as np
import pytest
import torch

from lsm import native
from lsm.embed.table import background
from lsm.embed.table import files as partition_files
from lsm.embed.table.frames import HostFrames
from lsm.embed.table.layout import PartitionLayout
from lsm.embed.table.slots import SlotAccess, SlotBoard, Slots
from support.engines import QUEUED_ENGINES
from support.partitions import WIDTH, change, table, twin_frames

EPOCHS = 3


def reference(made, epochs):
    """The same buckets over a table in memory."""
    rows = torch.zeros(made.layout.num_entities, WIDTH)
    rows[:, 0] = torch.arange(made.layout.num_entities)
    starts = made.layout.starts
    for epoch in range(epochs):
        for step in made.itinerary.epoch(epoch):
            for bucket in step.buckets:
                for side, p in enumerate(bucket):
                    change(rows[starts[p] : starts[p + 1]], bucket, side)
    return rows.numpy()


@pytest.mark.parametrize("make", [HostFrames, twin_frames])
@pytest.mark.parametrize("engine", QUEUED_ENGINES)
@pytest.mark.parametrize(
    ("order", "n", "c"),
    [("best", 1, 3), ("best", 4, 3), ("best", 8, 3), ("beta", 7, 4), ("random", 6, 3)],
)
def test_the_file_has_what_was_trained(tmp_path, engine, order, n, c, make):
    with table(tmp_path, order=order, n=n, c=c, engine=engine, make=make) as made:
        made.buffer.fill(made.itinerary.epoch(0)[0])
        for epoch in range(EPOCHS):
            last = made.epoch(epoch)
        made.buffer.write_back(last)
        stored = made.stored()
    with table(tmp_path, order=order, n=n, c=c) as other:
        np.testing.assert_array_equal(stored, reference(other, EPOCHS))


def test_an_epoch_moves_no_more_than_its_loads(tmp_path):
    with table(tmp_path) as made:
        made.buffer.fill(made.itinerary.epoch(0)[0])
        before = made.files.transfers.stats()
        for epoch in range(EPOCHS):
            made.epoch(epoch)
        after, loads = made.files.transfers.stats(), EPOCHS * len(made.itinerary._order.loads)
        moved = loads * made.layout.frame_bytes
    assert after["bytes_read"] - before["bytes_read"] == moved
    assert after["bytes_written"] - before["bytes_written"] == moved


def test_slots_of_the_last_checkpoint_are_not_written(tmp_path):
    with table(tmp_path) as made:
        made.slots.save()
        saved, first = made.slots.current, made.stored()
        made.buffer.fill(made.itinerary.epoch(0)[0])
        for epoch in range(EPOCHS):
            last = made.epoch(epoch)
        made.buffer.write_back(last)
        assert made.slots.current == [1 - slot for slot in saved]
        trained = made.stored()
        made.slots._current = saved
        np.testing.assert_array_equal(made.stored(), first)
        assert not np.array_equal(trained, first)


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
@pytest.mark.parametrize("nth", [0, 3, 7])
def test_a_failing_disk_is_an_error_of_the_step(tmp_path, engine, nth):
    with table(tmp_path, engine=engine) as made:
        made.buffer.fill(made.itinerary.epoch(0)[0])
        made.transfers.inject_fault(native.Fault.error, nth, errno.EIO)
        with pytest.raises(OSError, match=r"(read|write) of \d+ bytes") as caught:
            made.epoch(0)
        assert caught.value.errno == errno.EIO


def test_a_stuck_disk_is_an_error_of_the_step(tmp_path):
    with table(tmp_path) as made:
        made.buffer.fill(made.itinerary.epoch(0)[0])
        made.transfers._timeout_secs = 0.3
        made.transfers.inject_fault(native.Fault.stall, 2)
        with pytest.raises(TimeoutError, match=r"not moved in 0.3 s"):
            made.epoch(0)


def test_a_stuck_system_call_is_an_error_of_the_step(tmp_path, monkeypatch):
    with table(tmp_path) as made:
        step, ending = made.itinerary.epoch(0)[0], threading.Event()
        made.buffer.fill(step)
        monkeypatch.setattr(background, "_GRACE_SECS", 0.1)
        made.transfers._timeout_secs = made.files._timeout_secs = 0.0
        monkeypatch.setattr(made.transfers, "swap", lambda *_, **__: ending.wait(20))
        made.buffer.start(step)
        with pytest.raises(TimeoutError, match="the disk does not answer"):
            made.buffer.finish()
        ending.set()


@pytest.mark.parametrize("half", ["first", "second"])
def test_a_torn_write_is_noticed(tmp_path, half):
    with table(tmp_path, num_entities=20_000) as made:
        layout, step = made.layout, made.itinerary.epoch(0)[0]
        read = made.slots.read(step.loaded)
        at = layout.slot_offset(read.partition, read.slot)
        at += layout.frame_bytes // 2 if half == "second" else 0
        with open(made.path, "r+b") as file:
            file.seek(at)
            file.write(bytes(layout.frame_bytes // 2))
        made.buffer.fill(step)
        made.buffer.start(step)
        with pytest.raises(OSError, match=f"partition {step.loaded} was read with checksum"):
            made.buffer.finish()


def test_a_partition_that_another_rank_writes_is_awaited(tmp_path):
    with table(tmp_path) as made:
        step = made.itinerary.epoch(0)[0]
        made.slots.write(step.loaded)  # as the other rank reckons, too
        made.files._timeout_secs = 0.2
        made.buffer.start(step)
        with pytest.raises(RuntimeError, match=f"the write of partition {step.loaded} by another"):
            made.buffer.finish()


def test_ranks_see_the_board_of_one_file(tmp_path):
    path = tmp_path / "board"
    path.write_bytes(bytes(SlotBoard.num_bytes(4)))
    writer, reader = SlotBoard(4, path), SlotBoard(4, path)
    access = SlotAccess(2, 1, 1)
    assert not reader.is_written(access)
    writer.post(access, 2**64 - 1)
    assert reader.is_written(access)
    assert [reader.checksum(p, 1) for p in range(4)] == [0, 0, 2**64 - 1, 0]


def test_slots_alternate_with_checkpoints_only():
    slots = Slots([0, 1])
    assert [slots.write(0).slot, slots.write(0).slot, slots.read(0).number] == [1, 1, 2]
    assert slots.read(1) == SlotAccess(1, 1, 0)
    slots.save()
    assert slots.write(0).slot == 0
    assert slots.write(1).slot == 0
    assert slots.current == [0, 0]


def test_frames_and_slots_are_whole_blocks_that_do_not_overlap():
    for width in (1, 3, 100, 128, 200, 257):
        layout = PartitionLayout.of([0, 40, 81, 120], width)
        assert layout.frame_rows >= 41
        assert layout.frame_bytes % 4096 == 0
        offsets = sorted(layout.slot_offset(p, slot) for p in range(3) for slot in range(2))
        assert offsets == [k * layout.frame_bytes for k in range(6)]
        assert layout.file_bytes == 6 * layout.frame_bytes


def test_a_disk_too_small_is_said_with_the_arithmetic(disk):
    layout = PartitionLayout.of(range(0, 8193, 1024), 512)
    path = disk / "run" / partition_files.FILE_NAME
    message = r"needs 2 slots x 8 partitions x 2 MiB = 32 MiB, and its disk has 8 MiB free"
    with pytest.raises(RuntimeError, match=message):
        partition_files.create(path, layout)
    assert not path.exists()


def test_a_file_of_another_size_is_damaged(tmp_path):
    layout = PartitionLayout.of([0, 10], 4)
    path = tmp_path / partition_files.FILE_NAME
    partition_files.create(path, layout)
    partition_files.check(path, layout)
    path.write_bytes(b"short")
    with pytest.raises(ValueError, match=rf"expected {layout.file_bytes} bytes, got 5"):
        partition_files.check(path, layout)
