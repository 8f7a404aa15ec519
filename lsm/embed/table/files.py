"""The partitions of a run on disk: one file, with two or three slots for each partition."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch

from lsm.core.units import format_bytes
from lsm.data.sink import no_room
from lsm.distributed.watchdog import awaiting
from lsm.embed.table.layout import PartitionLayout
from lsm.embed.table.reader import DamagedError, StoredSlot, read_partitions
from lsm.embed.table.slots import FrameMoves, SlotAccess, SlotBoard
from lsm.storage.transfers import Transfers

FILE_NAME = "partitions.bin"
_POLL_SECS = 0.001
_REMEDY = "the last checkpoint resumes if its slots are intact"


def create(path: Path, layout: PartitionLayout) -> None:
    """Makes the file of partitions with all its blocks, so that training never lacks room.

    An older file is replaced. Raises RuntimeError with the arithmetic if the disk is too small.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    try:
        grow(path, layout)
    except (OSError, RuntimeError):
        path.unlink(missing_ok=True)
        raise


def grow(path: Path, layout: PartitionLayout) -> None:
    """Gives the file all blocks of ``layout``; those it has stay. Raises as ``create``."""
    has = path.stat().st_size if path.exists() else 0
    free = shutil.disk_usage(path.parent).free
    room = f"{format_bytes(free)} free" + (f" next to {format_bytes(has)} of it" if has else "")
    remedy = "choose another run.dir, or a smaller embed.dim"
    remedy += ", or train.select=last, which needs 2 slots" if layout.num_slots > 2 else ""
    problem = RuntimeError(
        f"run.dir: {path} needs {layout.num_slots} slots x {layout.partitions} partitions x "
        f"{format_bytes(layout.frame_bytes)} = {format_bytes(layout.file_bytes)}, and its disk has "
        f"{room}; {remedy}"
    )
    if layout.file_bytes - has > free:
        raise problem
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(descriptor, 0, layout.file_bytes)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise problem from None
        if error.errno == errno.EFBIG:
            raise no_room(error.errno, path, layout.file_bytes - has, free) from None
        raise
    finally:
        os.close(descriptor)


def check(path: Path, layout: PartitionLayout) -> None:
    """ValueError unless the file at ``path`` has the slots of ``layout``."""
    size = path.stat().st_size
    if size < layout.file_bytes:
        raise ValueError(
            f"{path}: expected {layout.file_bytes} bytes, got {size}; it is damaged: set "
            "checkpoint.resume=never to start afresh"
        )


class PartitionFiles:
    """Moves partitions between frames and their slots, and checks every byte read."""

    def __init__(
        self,
        transfers: Transfers,
        layout: PartitionLayout,
        board: SlotBoard,
        timeout_secs: float = 300.0,
    ) -> None:
        """``timeout_secs``: longest wait for another rank to write a partition."""
        self.layout = layout
        self.transfers = transfers
        self.board = board
        self._timeout_secs = timeout_secs

    def move(self, frame: torch.Tensor, moves: FrameMoves) -> None:
        """Writes ``frame`` to a slot, then fills it from another, as ``moves`` says.

        ``frame``: [frame_rows, width] float32. Blocks. Raises OSError, with errno EIO if a checksum
        differs.
        """
        write, read = moves
        if read is not None and not self.board.is_written(read) and write != read:
            if write is not None:  # written first, because the awaited rank may await this one
                self._transfer(frame, write, None)
                write = None
            self._await(read)
        self._transfer(frame, write, read)

    def read_ahead(
        self, sources: Iterable[tuple[int, SlotAccess | Callable[[], torch.Tensor]]]
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Rows of partitions, block by block: first entity, and rows [n, width] float32 on the
        host. ``sources``: each partition with its read, or with a function that returns its rows. A
        thread reads the next block meanwhile. Raises as ``move``.

        Precondition: all reads have been written, and nothing else moves until the end.
        """
        stored = [(p, self._stored(s) if isinstance(s, SlotAccess) else s) for p, s in sources]
        return read_partitions(self.transfers, self.layout, stored, _REMEDY)

    @property
    def timeout_secs(self) -> float:
        """Longest time that moves take: a write, a wait for another rank and a read."""
        return 2 * self.transfers.timeout_secs + self._timeout_secs

    def _transfer(
        self, frame: torch.Tensor, write: SlotAccess | None, read: SlotAccess | None
    ) -> None:
        if write is None and read is None:
            return
        written, found = self.transfers.swap(
            frame, write_to=self._offset(write), read_from=self._offset(read)
        )
        if write is not None:
            self.board.post(write, written)
        if read is None:
            return
        expected = self.board.checksum(read.partition, read.slot)
        if found != expected:
            raise DamagedError(self.transfers.path, read.partition, found, expected, _REMEDY)

    def _stored(self, read: SlotAccess) -> StoredSlot:
        assert self.board.is_written(read)
        return StoredSlot(read.slot, self.board.checksum(read.partition, read.slot))

    def _offset(self, access: SlotAccess | None) -> int | None:
        return None if access is None else self.layout.slot_offset(access.partition, access.slot)

    def _await(self, read: SlotAccess) -> None:
        what = f"the write of partition {read.partition} by another rank"
        deadline = time.monotonic() + self._timeout_secs
        with awaiting(what):
            while not self.board.is_written(read):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{what} did not end in {self._timeout_secs:g} s")
                time.sleep(_POLL_SECS)
