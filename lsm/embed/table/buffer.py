"""The partitions in memory: those in training, and one in flight."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from torch import Tensor

from lsm.embed.orders.itinerary import Step
from lsm.embed.table.background import in_thread, result_of
from lsm.embed.table.files import PartitionFiles
from lsm.embed.table.frames import HostFrames
from lsm.embed.table.slots import FrameMoves, SlotAccess, Slots


class PartitionBuffer:
    """Frames of one contiguous table. During the training of a step, a thread writes the old
    content of the spare frame back and fills the frame with the next partition."""

    def __init__(self, files: PartitionFiles, slots: Slots, frames: HostFrames) -> None:
        """``frames``: with the one in flight, if anything is ever loaded."""
        self._files, self._slots, self._layout = files, slots, files.layout
        self._frames = frames
        self.rows: Tensor = frames.rows
        """[frames * frame_rows, width] float32."""
        self._pending: Future[None] | None = None

    def frame(self, number: int) -> Tensor:
        """Rows of frame ``number``: [frame_rows, width]."""
        size = self._layout.frame_rows
        return self.rows[number * size : (number + 1) * size]

    def partition(self, partition: int, frame: int) -> Tensor:
        """Rows of ``partition`` in ``frame``."""
        return self.frame(frame)[: self._layout.num_rows(partition)]

    def first_row(self, frame: int) -> int:
        """First row of ``frame`` in ``rows``."""
        return frame * self._layout.frame_rows

    def fill(self, step: Step) -> None:
        """Reads the partitions of ``step`` into their frames; blocks."""
        for partition, frame in step.frames.items():
            self._move(frame, FrameMoves(None, self._slots.read(partition)))

    def write_new(self, partition: int, initialise: Callable[[Tensor], None] | None) -> None:
        """Writes ``partition`` for the first time, with the rows that ``initialise`` fills; None:
        another rank does. Uses the first frame; blocks."""
        write = self._slots.write(partition)
        if initialise is not None:
            initialise(self.partition(partition, 0))
            self._move(0, FrameMoves(write, None))

    def start(self, step: Step) -> None:
        """Begins the moves of ``step``: returns at once.

        Precondition: the moves of the step before have ended. After a checkpoint in the middle of
        ``step``, all that it writes has been written: call ``restart``.
        """
        reads = None if step.loaded is None else self._slots.read(step.loaded)
        own: SlotAccess | None = None
        for partition in step.all_written:  # of every rank, so that all plan the same slots
            write = self._slots.write(partition)
            own = write if partition == step.written else own
            reads = write if partition == step.loaded else reads
        self._begin(step, FrameMoves(own, reads))

    def restart(self, step: Step) -> None:
        """``start`` for a run that continues in the middle of ``step``, from a checkpoint."""
        reads = None if step.loaded is None else self._slots.read(step.loaded)
        self._begin(step, FrameMoves(None, reads))

    def _begin(self, step: Step, moves: FrameMoves) -> None:
        assert self._pending is None, "the moves of the step before have not been awaited"
        if not any(moves):
            return
        frame, trained = self.frame(step.spare), self._frames.mark()
        self._pending = in_thread(lambda: self._frames.move(self._files, frame, moves, trained))

    def finish(self) -> None:
        """Returns when the moves of the step have ended; raises their error, and TimeoutError
        if their thread is stuck in a system call for longer than their time-outs."""
        pending, self._pending = self._pending, None
        if pending is not None:
            result_of(pending, self._files.timeout_secs)

    def write_back(self, step: Step) -> None:
        """Writes the partitions of ``step`` to their slots, after its moves; blocks. Every rank
        calls it at the same point."""
        self.finish()
        for state in step.residents:
            for partition in state:
                write = self._slots.write(partition)
                if partition in step.frames:
                    self._move(step.frames[partition], FrameMoves(write, None))

    def _move(self, frame: int, moves: FrameMoves) -> None:
        self._frames.move(self._files, self.frame(frame), moves, self._frames.mark())
