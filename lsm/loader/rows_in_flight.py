"""The rows that were requested ahead of training: bounds on their number and their memory."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from lsm.features.row_source import PendingRows, Rows, RowSource
from lsm.storage.read_ahead import Decision, InFlight, ReadAhead

POLL_SECS = 0.05
"""Interval at which a blocked thread checks that the pipeline is open."""
# Interval at which outstanding reads are counted while more may start.
_DRIVE_POLL_SECS = 0.002


@dataclass(frozen=True)
class RunAhead:
    """Bounds on the work that a pipeline does ahead of its consumer."""

    read_ahead: ReadAhead
    """Iterations whose rows are requested ahead."""
    staging_bytes: int
    """Most memory of rows that are requested ahead."""
    num_threads: int = 1
    """Threads that sample."""
    timeout_secs: float = 120.0
    """Longest wait for a sample, or for rows, in seconds."""
    window_bytes: int | None = None
    """Memory of the window's requests and of a planner's metadata; None: no bound."""


class ClosedError(Exception):
    """The consumer has closed the pipeline; its threads end quietly."""


class RowsInFlight:
    """Rows of iterations that training has not taken, oldest first.

    rows: their source. policy: bounds on them.
    """

    def __init__(self, rows: RowSource, policy: RunAhead) -> None:
        self._rows = rows
        self._policy = policy
        self._in_flight: deque[PendingRows[Rows]] = deque()
        self._arriving: list[PendingRows[Rows]] = []  # those not seen to have arrived
        self._num_completed = 0  # of those in flight
        self._room = threading.Condition()
        self._closed = threading.Event()

    @property
    def is_closed(self) -> bool:
        """True after close()."""
        return self._closed.is_set()

    def close(self) -> None:
        """Ends all waits."""
        self._closed.set()
        with self._room:
            self._room.notify_all()

    def check_open(self) -> None:
        """Raises ClosedError after close()."""
        if self.is_closed:
            raise ClosedError

    def __len__(self) -> int:
        return len(self._in_flight)

    @property
    def row_bytes(self) -> int:
        """Memory that the rows take now."""
        return sum(rows.num_bytes for rows in self._in_flight)

    def add(self, rows: PendingRows[Rows]) -> tuple[int, int]:
        """Adds the rows of the next iteration. Returns the values of READ_AHEAD."""
        with self._room:
            self._in_flight.append(rows)
            self._arriving.append(rows)
            return len(self._in_flight), self._rows.reads.outstanding_reads

    def take(self) -> None:
        """Removes the oldest rows, which training has taken."""
        with self._room:
            taken = self._in_flight.popleft()
            if self._arriving and self._arriving[0] is taken:
                del self._arriving[0]  # it would hold memory
            self._num_completed -= self._rows.completed_ahead > 0
            self._room.notify_all()

    def await_completion(self) -> None:
        """Blocks until one more of the rows may be completed before training takes them."""
        with self._room:
            while self._num_completed >= self._rows.completed_ahead:
                self.check_open()
                self._room.wait(POLL_SECS)
            self._num_completed += 1

    def await_room(self, num_bytes: int) -> None:
        """Blocks until the reads of an iteration whose rows take ``num_bytes`` may start."""
        read_ahead, staging_bytes = self._policy.read_ahead, self._policy.staging_bytes
        with self._room:
            while True:
                self.check_open()
                decision = read_ahead.decide(self._flight(), num_bytes, staging_bytes)
                if decision is Decision.START:
                    return
                # Training notifies when it takes rows; the drive does not notify when it runs
                # short.
                accesses = read_ahead.accesses
                waits = accesses > 0 and self._rows.reads.keep_busy(accesses)
                for_drive = waits or decision is Decision.WAIT_FOR_DRIVE
                self._room.wait(_DRIVE_POLL_SECS if for_drive else POLL_SECS)

    def _flight(self) -> InFlight:
        self._arriving = [rows for rows in self._arriving if not rows.arrived]
        return InFlight(
            iterations=len(self._in_flight),
            ready=len(self._in_flight) - len(self._arriving),
            row_bytes=self.row_bytes,
            reads=self._rows.reads.outstanding_reads,
        )
