"""A batch on its way through the pipeline."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from lsm.cache.memory import WINDOW_ID_BYTES
from lsm.features.row_source import Announced, PendingRows, Rows


@dataclass
class Prepared:
    """A batch on its way through the pipeline: first a sample, finally with its rows."""

    iteration: int
    sample: Any
    """A Sample, packed while it waits in the window."""
    stats: dict[str, float]
    """``sample_secs``; once complete also COUNTERS, SPANS and READ_AHEAD of lsm.core.counters."""
    announced: Announced[Rows] = field(init=False, repr=False)
    rows: PendingRows[Rows] = field(init=False, repr=False)
    completed: Future[None] | None = field(default=None, repr=False)
    """Done once ``x`` is set; None if the consumer waits for the rows itself."""
    x: Rows = field(init=False, repr=False)
    """Rows of the sample's ids."""

    @property
    def window_bytes(self) -> int:
        """Memory in a window, with a planner's metadata of its nodes."""
        return self.sample.num_bytes + WINDOW_ID_BYTES * len(self.sample.ids)
