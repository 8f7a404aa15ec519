"""Decides how far to read ahead: the dynamic access accumulator of GIDS (section 3.2).

The decisions are plain arithmetic: no disk, no thread.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True)
class AccessModel:
    """The IOPS of drives under overlapping accesses (GIDS, equations 2 and 3).

    Accesses that start together take Ts = accesses / peak plus ``overhead_secs`` (Ti + Tt: before
    the first row arrives and after the last access has ended), in which a drive delivers next to
    nothing. peak_iops: of one drive. num_drives: drives that share the accesses evenly; they scale
    the accesses, not the times.
    """

    peak_iops: float
    overhead_secs: float
    num_drives: int = 1

    def accesses(self, share: float) -> float:
        """The number of accesses that must overlap to reach ``share`` (0 <= share < 1) of the peak:
        N = IOPS x (Ti + Ts + Tt), solved for N."""
        if not 0 <= share < 1:
            raise ValueError(f"share: expected 0 <= share < 1, got {share}")
        return share / (1 - share) * self.peak_iops * self.overhead_secs * self.num_drives

    def share(self, accesses: float) -> float:
        """The share of the peak that ``accesses`` overlapping accesses reach: the inverse of
        accesses()."""
        idle = self.peak_iops * self.overhead_secs * self.num_drives
        return accesses / (accesses + idle) if accesses else 0.0

    def iops(self, accesses: float) -> float:
        """Reads per second of all drives with ``accesses`` of them overlapping."""
        return self.share(accesses) * self.peak_iops * self.num_drives


class Decision(enum.Enum):
    """START: the reads of one more iteration start now. Otherwise: the event to wait for."""

    START = "start"
    WAIT_FOR_TRAINING = "wait for training"
    WAIT_FOR_DRIVE = "wait for drive"


@dataclass(frozen=True)
class InFlight:
    """Iterations whose reads have started and whose rows training has not taken."""

    iterations: int
    ready: int
    """Iterations among them whose rows have all arrived."""
    row_bytes: int
    """Staging memory that their rows take."""
    reads: int
    """Reads of theirs that the drive has outstanding."""


@dataclass(frozen=True)
class ReadAhead:
    """Bounds on how far reads run ahead of training.

    iterations: always in flight. Further ones, up to ``max_iterations``, start while the drive has
    fewer than ``accesses`` reads outstanding. GIDS counts requested rows and raises its threshold
    by the rows that memory serves. Here reads are counted behind all tiers and after coalescing, so
    the threshold stays. A long read counts as one although it keeps the drive busy for longer; the
    error is towards too many reads.

    merges: further iterations start whatever is outstanding, because reading iterations together
    takes much less disk time than reading them one by one.

    Once half of the iterations in flight are ready (but at least ``iterations``), the drive waits
    for training. Nothing is added then: it would only take memory.
    """

    iterations: int = 4
    max_iterations: int = 4
    accesses: float = 0.0
    merges: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.iterations <= self.max_iterations:
            raise ValueError(
                f"iterations: expected 1 to max_iterations ({self.max_iterations}), "
                f"got {self.iterations}"
            )

    @classmethod
    def fixed(cls, iterations: int) -> ReadAhead:
        """Exactly ``iterations``, as far as staging memory holds their rows."""
        return cls(iterations, iterations)

    def decide(self, flight: InFlight, next_bytes: int, staging_bytes: int) -> Decision:
        """Decides about an iteration whose rows take ``next_bytes``, with ``staging_bytes`` for all
        rows in flight. With none in flight it always starts one, else nothing would ever move."""
        if flight.iterations == 0:
            return Decision.START
        if flight.row_bytes + next_bytes > staging_bytes:
            return Decision.WAIT_FOR_TRAINING
        if flight.iterations < self.iterations:
            return Decision.START
        enough_ready = max(self.iterations, flight.iterations // 2)
        if flight.iterations >= self.max_iterations or flight.ready >= enough_ready:
            return Decision.WAIT_FOR_TRAINING
        if self.merges or flight.reads < self.accesses:
            return Decision.START
        return Decision.WAIT_FOR_DRIVE


def company(in_flight: int) -> int:
    """Iterations to read together: half of those in flight, so that one half is read while the
    other is collected."""
    return max(1, in_flight // 2)
