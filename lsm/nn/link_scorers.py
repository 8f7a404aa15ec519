"""Scores of links from the rows of their ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

_CHUNK_BYTES = 64 << 20


class Scorer(nn.Module, ABC):
    """A number for a source and a destination; higher is likelier."""

    name: ClassVar[str]
    """Its name in links.scorer."""

    @abstractmethod
    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        """Scores [...] of rows [..., d] that belong together."""

    @abstractmethod
    def matrix(self, source: Tensor, destination: Tensor) -> Tensor:
        """Scores [n, k] of each of ``source`` [n, d] with each of ``destination`` [k, d]."""


class Dot(Scorer):
    """The product of both rows; the same in both directions."""

    name = "dot"

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        return (source * destination).sum(-1)

    def matrix(self, source: Tensor, destination: Tensor) -> Tensor:
        """As Scorer.matrix()."""
        return source @ destination.t()


class DistMult(Scorer):
    """The product of both rows, weighted by column; the same in both directions."""

    name = "distmult"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        return (source * self.weight * destination).sum(-1)

    def matrix(self, source: Tensor, destination: Tensor) -> Tensor:
        """As Scorer.matrix()."""
        return (source * self.weight) @ destination.t()


class MLP(Scorer):
    """A hidden layer over both rows, which tells source and destination apart."""

    name = "mlp"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.source = nn.Linear(width, width)
        self.destination = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, 1)

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        hidden = self.source(source) + self.destination(destination)
        return self.output(functional.relu(hidden)).squeeze(-1)

    def matrix(self, source: Tensor, destination: Tensor) -> Tensor:
        """As Scorer.matrix(), a few sources at a time."""
        ours, theirs = self.source(source), self.destination(destination)
        size = max(1, _CHUNK_BYTES // max(1, 4 * theirs.numel()))
        parts = [functional.relu(part[:, None] + theirs) for part in ours.split(size)]
        return torch.cat([self.output(part).squeeze(-1) for part in parts])


_SCORERS: Mapping[str, Callable[[int], Scorer]] = {each.name: each for each in (Dot, DistMult, MLP)}


def build_scorer(name: str, width: int) -> Scorer:
    """The scorer of rows of ``width`` that ``links.scorer`` names."""
    return _SCORERS[name](width)
