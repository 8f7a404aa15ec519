"""The sample of an iteration: the nodes whose rows it takes, and all else for its batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch


class Sample(Protocol):
    """A sampled iteration, before its rows."""

    @property
    def ids(self) -> torch.Tensor:
        """Nodes whose rows are requested: [n] int64, no repeats."""

    @property
    def num_bytes(self) -> int:
        """Memory that the sample takes."""

    def pack(self) -> Sample:
        """The sample in less memory, while it waits in the window."""

    def unpack(self) -> Sample:
        """The sample as it was before pack()."""


@dataclass(frozen=True)
class IdsAlone:
    """A Sample of nodes without a graph."""

    ids: torch.Tensor
    num_bytes: int = 0

    def pack(self) -> IdsAlone:
        """As Sample.pack()."""
        return self

    def unpack(self) -> IdsAlone:
        """As Sample.unpack()."""
        return self
