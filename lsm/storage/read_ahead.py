"""How many storage accesses to keep outstanding, and so how many iterations to read ahead.

The dynamic access accumulator of GIDS (section 3.2): nothing here touches a disk or a thread.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True)
class AccessModel:
    """What overlapping accesses make of a device (GIDS, equations 2 and 3).

    Accesses that are started together take ``overhead_secs`` (Ti + Tt: until the first row is
    there, and after the last access has ended) in which the device delivers next to nothing, and in
    between Ts = accesses / peak. peak_iops: of one device. num_devices: how many share the accesses
    evenly; more scale the accesses, not the times.
    """

    peak_iops: float
    overhead_secs: float
    num_devices: int = 1

    def accesses(self, share: float) -> float:
        """How many must overlap to reach ``share`` (0 <= share < 1) of the peak: what N = IOPS x
        (Ti + Ts + Tt) is once Ts is put in and it is solved for N."""
        if not 0 <= share < 1:
            raise ValueError(f"share: expected 0 <= share < 1, got {share}")
        return share / (1 - share) * self.peak_iops * self.overhead_secs * self.num_devices

    def share(self, accesses: float) -> float:
        """The share of the peak that ``accesses`` overlapping accesses reach; its inverse."""
        idle = self.peak_iops * self.overhead_secs * self.num_devices
        return accesses / (accesses + idle) if accesses else 0.0

    def iops(self, accesses: float) -> float:
        """Reads per second of all devices with ``accesses`` of them overlapping."""
        return self.share(accesses) * self.peak_iops * self.num_devices


class Decision(enum.Enum):
    """Whether the reads of one more iteration are started now, or what must happen first."""

    START = "start"
    WAIT_FOR_TRAINING = "wait for training"
    WAIT_FOR_DEVICE = "wait for device"


@dataclass(frozen=True)
class InFlight:
    """The iterations whose reads were started and whose rows training has not taken."""

    iterations: int
    ready: int
    """Those of them whose rows have all arrived."""
    row_bytes: int
    """Staging memory that their rows take."""
    reads: int
    """Reads of any of them that the device has and has not finished."""


@dataclass(frozen=True)
class ReadAhead:
    """Bounds on how far reads run ahead of training.

    iterations: so many are in flight whatever the device does; further ones are added, up to
    ``max_iterations``, while the device has fewer than ``accesses`` reads outstanding. GIDS counts
    the rows that are asked for and raises its threshold by what memory absorbs; here reads are
    counted as the device gets them, behind all tiers and merged, so the threshold stays. A long
    read counts as one although it keeps the device busy for longer: that errs towards too many.

    merges: iterations read together need so much less of the device than one by one that further
    ones are added whatever is outstanding.

    When half of those in flight are ready (but at least ``iterations``), it is the device that
    waits for training, and nothing is added, for it would only take memory.
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
        """Always ``iterations``, if their rows find room."""
        return cls(iterations, iterations)

    def decide(self, flight: InFlight, next_bytes: int, staging_bytes: int) -> Decision:
        """Whether to start an iteration whose rows take ``next_bytes``, within ``staging_bytes`` of
        rows in flight. One is always started where there is none, or nothing would ever move."""
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
        return Decision.WAIT_FOR_DEVICE


def company(in_flight: int) -> int:
    """How many iterations to read together with ``in_flight`` of them in flight: half, so that one
    half is read while the other gathers."""
    return max(1, in_flight // 2)
