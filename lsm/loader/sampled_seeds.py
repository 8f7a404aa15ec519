"""The seeds of an iteration with their sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class SampledSeeds:
    """The Sample of a Loader: the seeds of an iteration, and their sample."""

    seeds: Any
    graph: Any

    @property
    def ids(self) -> torch.Tensor:
        """As Sample.ids."""
        return self.graph.ids

    @property
    def repeats(self) -> bool:
        """As Sample.repeats."""
        return self.graph.repeats

    @property
    def num_bytes(self) -> int:
        """As Sample.num_bytes, without the seeds."""
        return self.graph.num_bytes

    def pack(self) -> SampledSeeds:
        """As Sample.pack()."""
        return SampledSeeds(self.seeds, self.graph.pack())

    def unpack(self) -> SampledSeeds:
        """As Sample.unpack()."""
        return SampledSeeds(self.seeds, self.graph.unpack())
