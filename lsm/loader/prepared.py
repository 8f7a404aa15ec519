"""A batch on its way through the pipeline: its sample, then its rows."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from lsm.cache.memory import WINDOW_ID_BYTES
from lsm.features.row_source import Announced, PendingRows, Rows


class Sample(Protocol):
    """The sample of an iteration, before its rows."""

    @property
    def ids(self) -> torch.Tensor:
        """Nodes whose rows are requested: [n] int64."""

    @property
    def repeats(self) -> bool:
        """True if an id may be there several times."""

    @property
    def num_bytes(self) -> int:
        """Memory that the sample takes."""

    def pack(self) -> Sample:
        """The sample in less memory, while it waits in the window."""

    def unpack(self, device: torch.device) -> Sample:
        """The sample as it was before pack(), with its tensors on ``device``."""


@dataclass(frozen=True)
class IdsAlone:
    """A Sample of nodes without a graph."""

    ids: torch.Tensor
    num_bytes: int = 0
    repeats: bool = False

    def pack(self) -> IdsAlone:
        """As Sample.pack()."""
        return self

    def unpack(self, device: torch.device) -> IdsAlone:
        """As Sample.unpack()."""
        return self


@dataclass
class Prepared:
    """A batch on its way through the pipeline: first a sample, finally with its rows."""

    iteration: int
    seeds: Any
    """The seeds of the sample."""
    sample: Any
    """A Sample, packed while it waits in the window."""
    stats: dict[str, float]
    """``sample_secs``; once complete also COUNTERS, SPANS and READ_AHEAD of lsm.core.counters."""
    announced: Announced[Rows] = field(init=False, repr=False)
    rows: PendingRows[Rows] = field(init=False, repr=False)
    x: Rows = field(init=False, repr=False)
    """Rows of the sample's ids."""

    @property
    def window_bytes(self) -> int:
        """Memory in a window, with a planner's metadata of its nodes."""
        return self.sample.num_bytes + WINDOW_ID_BYTES * self.sample.ids.numel()


class Window:
    """The announced batches whose rows are not requested yet, oldest first.

    Args:
        iterations: Most of them.
        max_bytes: Most memory of them, but for one; None: no bound.
    """

    def __init__(self, iterations: int, max_bytes: int | None) -> None:
        self._iterations, self._max_bytes = iterations, max_bytes
        self._batches: deque[tuple[Prepared, int]] = deque()  # with their bytes
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def has_room(self) -> bool:
        """True if one more batch, of the size of the last, fits."""
        if len(self) >= self._iterations:
            return False
        if not self._batches or self._max_bytes is None:
            return True
        return self._bytes + self._batches[-1][1] <= self._max_bytes

    def append(self, prepared: Prepared) -> None:
        """Adds the next batch."""
        num_bytes = prepared.window_bytes
        self._batches.append((prepared, num_bytes))
        self._bytes += num_bytes

    def take(self) -> Prepared:
        """Removes the oldest batch. Returns it."""
        prepared, num_bytes = self._batches.popleft()
        self._bytes -= num_bytes
        return prepared
