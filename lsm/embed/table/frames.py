"""Memory for the partitions in training: frames of one contiguous table."""

from __future__ import annotations

import mmap

import torch
from torch import Tensor

from lsm import native
from lsm.core.device import current, locking
from lsm.core.limits import MOST_BYTES
from lsm.core.units import format_bytes
from lsm.embed.table.files import PartitionFiles
from lsm.embed.table.layout import PartitionLayout
from lsm.embed.table.slots import FrameMoves


class HostFrames:
    """A table of frames in host memory. Each can move to and from disk, whose engine reads and
    writes it directly."""

    def __init__(self, layout: PartitionLayout, num_frames: int) -> None:
        """Raises RuntimeError if there is no memory for them."""
        self.rows = _map(num_frames * layout.frame_bytes).view(-1, layout.width)
        """[frames * frame_rows, width] float32."""

    def mark(self) -> object:
        """Marks the end of the work on ``rows`` that this thread has queued so far."""
        return None

    def move(
        self, files: PartitionFiles, frame: Tensor, moves: FrameMoves, trained: object
    ) -> None:
        """``files.move(frame, moves)``, once the work before the mark ``trained`` is done. Blocks.
        One call at a time, from any thread."""
        files.move(frame, moves)


class GpuFrames(HostFrames):
    """Frames in GPU memory. A frame passes through a page-locked buffer of its size on the way to
    or from disk, by copies on a stream of their own."""

    def __init__(self, layout: PartitionLayout, num_frames: int, device: torch.device) -> None:
        """Raises RuntimeError if there is no memory for them."""
        self._device = device
        shape = (num_frames * layout.frame_rows, layout.width)
        try:
            self.rows = torch.zeros(shape, device=device)
        except torch.OutOfMemoryError:
            raise _no_memory(num_frames * layout.frame_bytes, f" on {device}") from None
        self._stream = torch.cuda.Stream(device)
        with locking(layout.frame_bytes, "make embed.dim smaller or embed.partitions larger"):
            block = native.LockedBlock(layout.frame_bytes, device.index)
        self._staging = native.as_tensor(block, torch.float32).view(-1, layout.width)

    def mark(self) -> object:
        return torch.cuda.current_stream(self._device).record_event()

    def move(
        self, files: PartitionFiles, frame: Tensor, moves: FrameMoves, trained: object
    ) -> None:
        if moves.write is not None:
            self._copy(self._staging, frame, trained)
        files.move(self._staging, moves)
        if moves.read is not None:
            self._copy(frame, self._staging, trained)

    def _copy(self, target: Tensor, source: Tensor, trained: object) -> None:
        assert isinstance(trained, torch.cuda.Event)
        with current(self._device), torch.cuda.stream(self._stream):
            self._stream.wait_event(trained)
            target.copy_(source, non_blocking=True)
            self._stream.synchronize()


def make_frames(layout: PartitionLayout, num_frames: int, device: torch.device) -> HostFrames:
    """Frames in the memory of ``device``."""
    if device.type == "cuda":
        return GpuFrames(layout, num_frames, device)
    return HostFrames(layout, num_frames)


def _map(num_bytes: int) -> Tensor:
    """Zeros [num_bytes / 4] float32 at a page-aligned address."""
    try:
        if num_bytes > MOST_BYTES:
            raise OSError
        memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError):
        raise _no_memory(num_bytes) from None
    memory.madvise(mmap.MADV_HUGEPAGE)  # random rows of a large table: huge pages save TLB misses
    return torch.frombuffer(memory, dtype=torch.float32)


def _no_memory(num_bytes: int, where: str = "") -> RuntimeError:
    return RuntimeError(
        f"embed.buffer: no memory{where} for frames of {format_bytes(num_bytes)}; lower embed.dim, "
        "or raise embed.partitions"
    )
