"""A buffer over a file of partitions, as a run has it, with rows that tests can reckon."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import torch

from lsm.embed.orders.itinerary import Itinerary
from lsm.embed.orders.order import make_order
from lsm.embed.table import files as partition_files
from lsm.embed.table.buffer import PartitionBuffer
from lsm.embed.table.files import PartitionFiles
from lsm.embed.table.frames import GpuFrames, HostFrames
from lsm.embed.table.layout import PartitionLayout
from lsm.embed.table.slots import SlotBoard, Slots
from lsm.storage.transfers import TransferOptions, Transfers

WIDTH = 5


class Table:
    """Everything that moves the partitions of one rank."""

    def __init__(self, path, transfers, layout, order, seed=0, make=HostFrames):
        self.path, self.transfers, self.layout = path, transfers, layout
        self.board = SlotBoard(layout.partitions)
        self.files = PartitionFiles(transfers, layout, self.board, timeout_secs=5)
        self.slots = Slots([1] * layout.partitions)
        self.itinerary = Itinerary(order, 0, seed)
        self.frames = make(layout, self.itinerary.num_frames)
        self.buffer = PartitionBuffer(self.files, self.slots, self.frames)
        for partition in range(layout.partitions):
            self.buffer.write_new(partition, lambda rows, p=partition: rows.copy_(self.new(p)))

    def new(self, partition):
        """First rows of a partition: the id of the entity, and 0 for all else."""
        rows = torch.zeros(self.layout.num_rows(partition), WIDTH)
        rows[:, 0] = torch.arange(*self.layout.starts[partition : partition + 2])
        return rows

    def stored(self):
        """[num_entities, WIDTH] as the file has it, read without the code under test."""
        layout = self.layout
        content = np.fromfile(self.path, np.float32)
        slots = content.reshape(2, layout.partitions, layout.frame_rows, WIDTH)
        return np.concatenate(
            [slots[slot, p, : layout.num_rows(p)] for p, slot in enumerate(self.slots.current)]
        )

    def epoch(self, epoch):
        """Walks an epoch; ``train`` changes rows of both partitions of every bucket."""
        for step in self.itinerary.epoch(epoch):
            self.buffer.start(step)
            for bucket in step.buckets:
                for side, partition in enumerate(bucket):
                    change(self.buffer.partition(partition, step.frames[partition]), bucket, side)
            self.buffer.finish()
        return step


class twin_frames(GpuFrames):
    """Frames of a GPU that the host stands for."""

    def __init__(self, layout, num_frames):
        HostFrames.__init__(self, layout, num_frames)
        self._staging = HostFrames(layout, 1).rows

    def mark(self):
        return None

    def _copy(self, target, source, trained):
        target.copy_(source)


def change(rows, bucket, side):
    """Not commutative, so that the order of buckets shows."""
    rows[:, 1 + side] = rows[:, 1 + side] * 0.75 + bucket[1 - side] + rows[:, 0] / 1024


@contextmanager
def table(
    folder, num_entities=1000, *, order="best", n=8, c=3, engine="posix", make=HostFrames, **options
):
    starts = [p * num_entities // n for p in range(n + 1)]
    layout = PartitionLayout.of(starts, WIDTH)
    path = folder / partition_files.FILE_NAME
    partition_files.create(path, layout)
    options = TransferOptions(engine=engine, timeout_secs=5.0, chunk_bytes=8192, **options)
    with Transfers(path, options) as transfers:
        yield Table(path, transfers, layout, make_order(order, n, c), make=make)
