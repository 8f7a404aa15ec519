"""Which of a partition's two slots on disk is written, read, and named by the last checkpoint.

A partition is always written to the slot that the last checkpoint does not name, so a run that is
killed finds the slots of its checkpoint as they were. Ranks in lock-step plan the same writes in
the same order, so that each knows where any partition lies without asking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class SlotAccess:
    """One write or read of a partition's slot. ``number``: writes of the partition so far, this
    one included; a read awaits that many."""

    partition: int
    slot: int
    number: int


class SlotBoard:
    """Checksum of every slot, and how often each partition was written since the run started;
    shared by the ranks of a machine through a file."""

    def __init__(self, partitions: int, path: Path | None = None) -> None:
        """``path``: an existing file of ``num_bytes(partitions)``; None: memory of this process."""
        shape = (3, partitions)
        self._table: np.ndarray = (
            np.zeros(shape, np.uint64)
            if path is None
            else np.memmap(path, np.uint64, "r+", shape=shape)
        )

    @staticmethod
    def num_bytes(partitions: int) -> int:
        """Size of the file."""
        return 3 * partitions * 8

    def post(self, write: SlotAccess, checksum: int) -> None:
        """Says that ``write`` has ended, with ``checksum``. Checksums come before the number of
        writes, which tells readers that they may look."""
        self._table[write.slot, write.partition] = checksum
        self._table[2, write.partition] = write.number

    def restore(self, partition: int, slot: int, checksum: int) -> None:
        """Takes over the checksum of a slot that a checkpoint names."""
        self._table[slot, partition] = checksum

    def checksum(self, partition: int, slot: int) -> int:
        return int(self._table[slot, partition])

    def is_written(self, access: SlotAccess) -> bool:
        """Whether the writes that ``access`` builds on have ended."""
        return int(self._table[2, access.partition]) >= access.number


class Slots:
    """The slots of all partitions, as every rank reckons them."""

    def __init__(self, saved: Sequence[int]) -> None:
        """``saved``: the slot of each partition that the last checkpoint names."""
        self._saved = list(saved)
        self._current = list(saved)
        self._writes = [0] * len(self._saved)

    @property
    def current(self) -> list[int]:
        """The slot of each partition that was written last: what a checkpoint now names."""
        return list(self._current)

    def write(self, partition: int) -> SlotAccess:
        """The next write of ``partition``."""
        self._current[partition] = 1 - self._saved[partition]
        self._writes[partition] += 1
        return self.read(partition)

    def read(self, partition: int) -> SlotAccess:
        """A read of what was written last."""
        return SlotAccess(partition, self._current[partition], self._writes[partition])

    def save(self) -> None:
        """A checkpoint that names ``current`` is on the disk."""
        self._saved = list(self._current)
