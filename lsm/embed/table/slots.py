"""Tracks the slots of partitions on disk: to write, to read, and named by the last checkpoint.

A partition is never written to a slot that the last checkpoint names, as the state to continue from
or as the best table so far. A killed run therefore finds the slots of its checkpoint unchanged.
That takes two slots, and three to keep the best. Ranks in lock-step plan the same writes in the
same order, so each knows the location of every partition without asking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class SlotAccess:
    """One write or read of a partition's slot. ``number``: writes of the partition so far, this
    one included; a read awaits that many."""

    partition: int
    slot: int
    number: int


class FrameMoves(NamedTuple):
    """The write of a frame to a slot, then the read that fills the frame; None: there is none."""

    write: SlotAccess | None
    read: SlotAccess | None


class SlotBoard:
    """Checksum of every slot, and how often each partition was written since the run started;
    shared by the ranks of a machine through a file."""

    def __init__(self, partitions: int, path: Path | None = None, num_slots: int = 2) -> None:
        """``path``: an existing file of ``num_bytes(partitions, num_slots)``; None: memory of this
        process."""
        shape = (num_slots + 1, partitions)  # checksums by slot, then numbers of writes
        self._table: np.ndarray = (
            np.zeros(shape, np.uint64)
            if path is None
            else np.memmap(path, np.uint64, "r+", shape=shape)
        )

    @staticmethod
    def num_bytes(partitions: int, num_slots: int = 2) -> int:
        """Size of the file."""
        return (num_slots + 1) * partitions * 8

    def post(self, write: SlotAccess, checksum: int) -> None:
        """Says that ``write`` has ended, with ``checksum``; ``number`` 0: the one that a checkpoint
        names. Checksums come before the number of writes, which tells readers that they may
        look."""
        self._table[write.slot, write.partition] = checksum
        self._table[-1, write.partition] = write.number

    def checksum(self, partition: int, slot: int) -> int:
        return int(self._table[slot, partition])

    def is_written(self, access: SlotAccess) -> bool:
        """True if the writes that ``access`` builds on have ended."""
        return int(self._table[-1, access.partition]) >= access.number


class Slots:
    """The slots of all partitions, planned identically by every rank."""

    def __init__(
        self, saved: Sequence[int], best: Sequence[int] | None = None, num_slots: int = 2
    ) -> None:
        """``saved``: the slot of each partition that the last checkpoint continues from; ``best``:
        that of the best table, if it names one, which takes ``num_slots`` of 3."""
        self._num_slots = num_slots
        self._best = None if best is None else list(best)
        self._saved = list(saved)
        self._current = list(saved)
        self._writes = [0] * len(self._saved)

    @property
    def current(self) -> list[int]:
        """The slot of each partition that was written last; a checkpoint now would name these."""
        return list(self._current)

    def write(self, partition: int) -> SlotAccess:
        """The next write of ``partition``."""
        named = {self._saved[partition]}
        if self._best is not None:
            named.add(self._best[partition])
        if self._current[partition] in named:
            free = (slot for slot in range(self._num_slots) if slot not in named)
            self._current[partition] = next(free)
        self._writes[partition] += 1
        return self.read(partition)

    def read(self, partition: int) -> SlotAccess:
        """A read of the slot that was written last."""
        return SlotAccess(partition, self._current[partition], self._writes[partition])

    def save(self, *, is_best: bool = False) -> None:
        """A checkpoint that names ``current`` is on the disk; ``is_best``: also as the best."""
        self._saved = list(self._current)
        if is_best:
            self._best = list(self._current)
