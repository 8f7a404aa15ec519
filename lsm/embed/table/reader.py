"""Reads partitions from disk in order, a block ahead, and verifies their checksums."""

from __future__ import annotations

import errno
import math
import mmap
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from lsm.embed.table.background import in_thread, result_of
from lsm.embed.table.layout import PartitionLayout
from lsm.storage.transfers import BLOCK_BYTES, Transfers

BYTES_AHEAD = 16 << 20
_SUMS = 1 << 64


@dataclass(frozen=True)
class StoredSlot:
    """A partition's location on disk, and the checksum of its slot."""

    slot: int
    checksum: int


Source = StoredSlot | Callable[[], Tensor]
"""A partition on disk, or a function that returns its rows, [num_rows, width] float32."""


class DamagedError(OSError):
    """A partition's checksum differs from the one it was written with (errno EIO)."""

    def __init__(self, path: Path, partition: int, found: int, expected: int, remedy: str) -> None:
        super().__init__(
            errno.EIO,
            f"partition {partition} was read with checksum {found:016x}, but written with "
            f"{expected:016x}: the disk lost or changed data; {remedy}",
            str(path),
        )


def read_partitions(
    transfers: Transfers,
    layout: PartitionLayout,
    sources: Iterable[tuple[int, Source]],
    remedy: str,
    max_bytes: int = BYTES_AHEAD,
) -> Iterator[tuple[int, Tensor]]:
    """Rows of partitions, block by block: first entity, and rows [n, width] float32.

    ``sources``: partitions, in the order of the blocks. A thread reads the next block meanwhile.
    Each block from disk has memory of its own, of about ``max_bytes`` in whole rows and pages. A
    partition's last block is yielded after its checksum was verified. ``remedy``: advice in the
    message about damage. Raises DamagedError, another OSError, or TimeoutError.
    """
    listed = list(sources)
    reads = _reads(transfers, layout, listed, max_bytes)
    reading = next(reads, None)
    try:
        for partition, source in listed:
            if not isinstance(source, StoredSlot):
                yield layout.starts[partition], source()
                continue
            total, row, end = 0, 0, layout.num_rows(partition)
            while row < layout.frame_rows:
                current, reading = reading, None
                assert current is not None
                rows, checksum = result_of(current, transfers.timeout_secs)
                reading = next(reads, None)
                total = (total + checksum) % _SUMS
                first, row = row, row + len(rows)
                if row >= layout.frame_rows and total != source.checksum:
                    raise DamagedError(transfers.path, partition, total, source.checksum, remedy)
                if first < end:
                    yield layout.starts[partition] + first, rows[: end - first]
    finally:
        if reading is not None:  # no read may outlive the file
            reading.exception(transfers.timeout_secs)


def _reads(
    transfers: Transfers, layout: PartitionLayout, sources: Iterable[tuple[int, Source]], most: int
) -> Iterator[Future[tuple[Tensor, int]]]:
    """Reads of slots, each of at most ``most`` bytes in whole rows and whole pages: the rows, and
    their part of the checksum. A read begins when it is asked for."""
    unit = math.lcm(BLOCK_BYTES, layout.row_bytes)
    size = max(1, most // unit) * unit

    def read(offset: int, first: int) -> tuple[Tensor, int]:
        num_bytes = min(size, layout.frame_bytes - first)
        memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        rows = torch.frombuffer(memory, dtype=torch.float32).view(-1, layout.width)
        page = first // BLOCK_BYTES
        return rows, transfers.swap(rows, read_from=offset + first, first_page=page)[1]

    for partition, source in sources:
        if isinstance(source, StoredSlot):
            offset = layout.slot_offset(partition, source.slot)
            for first in range(0, layout.frame_bytes, size):
                yield in_thread(partial(read, offset, first))
