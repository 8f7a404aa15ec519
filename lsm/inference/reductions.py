"""Reductions of the rows of sources that stream by, in their order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lsm import native

_LEAST_TOTAL = 1e-16  # of attention weights; PyG's softmax adds as much


@dataclass(frozen=True)
class StreamedBatch:
    """Rows z of sources that stream by: those of batch ``number`` of the ``edges``, which
    ``threads`` reduce."""

    edges: native.IntervalEdges
    threads: native.ThreadPool
    number: int
    rows: Tensor


class Reduction(ABC):
    """The way in which a destination reduces the rows z of its sources, which come in their order.

    takes_own: it needs the destinations' rows s.
    """

    takes_own = False

    @abstractmethod
    def width(self, width: int) -> int:
        """Of a destination's reduced row, from the width of z."""

    @abstractmethod
    def start(self, count: int, width: int) -> Tensor:
        """The rows [count, width(width)] float32 of destinations without sources."""

    @abstractmethod
    def add(self, batch: StreamedBatch, own: Tensor | None, reduced: Tensor) -> None:
        """Adds the rows z of a batch of sources to the ``reduced`` rows of the destinations, whose
        rows s are ``own``."""


@dataclass(frozen=True)
class ElementWise(Reduction):
    """Sums or maxima."""

    name: Literal["sum", "max"]

    def width(self, width: int) -> int:
        return width

    def start(self, count: int, width: int) -> Tensor:
        return torch.full((count, width), 0.0 if self.name == "sum" else -torch.inf)

    def add(self, batch: StreamedBatch, own: Tensor | None, reduced: Tensor) -> None:
        kind = getattr(native.Reduction, self.name)
        batch.edges.reduce(batch.threads, batch.number, batch.rows, kind, reduced)


@dataclass(frozen=True)
class Attention(Reduction):
    """Means weighted by a softmax of scores, with the highest score and the total weight so far.

    slope: of the leaky ReLU of scores. weights: [heads * channels] float32 of GATv2's scores; empty
    for GAT's, which are sums of numbers at the end of z and at the start of s.
    """

    heads: int
    slope: float
    weights: Tensor
    takes_own = True

    def num_values(self, width: int) -> int:
        """Values of a row z of ``width``."""
        return width if len(self.weights) else width - self.heads

    def width(self, width: int) -> int:
        return self.num_values(width) + 2 * self.heads

    def start(self, count: int, width: int) -> Tensor:
        rows, num_values = torch.zeros(count, self.width(width)), self.num_values(width)
        rows[:, num_values : num_values + self.heads] = -torch.inf
        return rows

    def add(self, batch: StreamedBatch, own: Tensor | None, reduced: Tensor) -> None:
        assert own is not None, "takes_own"
        weights = self.weights
        batch.edges.attend(
            batch.threads, batch.number, batch.rows, own, self.heads, self.slope, weights, reduced
        )

    def means(self, reduced: Tensor) -> Tensor:
        """The weighted means of ``reduced`` rows, by head: [n, heads, channels]."""
        num_values = reduced.size(1) - 2 * self.heads
        totals = reduced[:, num_values + self.heads :] + _LEAST_TOTAL
        sums = reduced[:, :num_values].view(len(reduced), self.heads, -1)
        return sums / totals.unsqueeze(2)
