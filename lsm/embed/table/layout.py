"""The location of entity rows: in partitions, in frames of memory, in slots on disk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lsm.storage.transfers import BLOCK_BYTES

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class PartitionLayout:
    """Partition p holds the entities ``starts[p]`` to ``starts[p + 1] - 1``, in rows of ``width``
    floats. A frame, and a slot on disk, takes any partition and ends at a block of the disk."""

    starts: tuple[int, ...]
    width: int
    num_slots: int = 2
    """Number of slots of each partition on disk."""

    @classmethod
    def of(cls, starts: Sequence[int], width: int, num_slots: int = 2) -> PartitionLayout:
        """``starts``: first entity of each partition, and the end."""
        return cls(tuple(starts), width, num_slots)

    @property
    def partitions(self) -> int:
        return len(self.starts) - 1

    @property
    def num_entities(self) -> int:
        return self.starts[-1]

    @property
    def row_bytes(self) -> int:
        return self.width * _FLOAT_BYTES

    @cached_property
    def frame_rows(self) -> int:
        """Rows of a frame: those of the largest partition, rounded up to whole blocks."""
        unit = BLOCK_BYTES // math.gcd(BLOCK_BYTES, self.row_bytes)
        largest = max(self.num_rows(p) for p in range(self.partitions))
        return -(-largest // unit) * unit

    @property
    def frame_bytes(self) -> int:
        return self.frame_rows * self.row_bytes

    @property
    def file_bytes(self) -> int:
        """Size of the file of partitions."""
        return self.num_slots * self.partitions * self.frame_bytes

    def num_rows(self, partition: int) -> int:
        """Entities of ``partition``."""
        return self.starts[partition + 1] - self.starts[partition]

    def slot_offset(self, partition: int, slot: int) -> int:
        """First byte in the file of a slot of ``partition``."""
        return (slot * self.partitions + partition) * self.frame_bytes
