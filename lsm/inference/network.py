"""A model as the stages of an inference: maps of rows, then layers over blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from lsm.graph.types import EdgeType
from lsm.inference.blocks import Block
from lsm.inference.streamed import Streamed, TypedStreamed

Model = nn.Module | Sequence[Callable[..., Any]]
"""A model whose layers can be computed one by one; or a list of layers, each called with rows
[n, width] and edge_index [2, e], or with dicts of them by type."""


def as_it_is(rows: Tensor) -> Tensor:
    """``rows``."""
    return rows


@dataclass(frozen=True)
class BlockLayer:
    """One layer for the nodes of one type."""

    node_type: str
    edge_types: tuple[EdgeType, ...]
    """Types of the edges that it aggregates over."""
    width: int
    """Width of its rows."""
    compute: Callable[[Block], Tensor]
    """Rows [num_dst, width] float32 of the destinations of a block with the rows before it."""
    streamed: Streamed | None = None
    """The convolution as rows that stream by; None: it has no such form."""
    after: Callable[[Tensor], Tensor] = as_it_is
    """The map of the rows of ``streamed`` to those of the layer."""
    typed: TypedStreamed | None = None
    """The layer of a graph with types as rows that stream by; None: it has no such form."""
    input_width: int = 0
    """Width of the rows that ``compute`` makes of ids, of types without rows; 0: none."""

    @property
    def source_types(self) -> list[str]:
        """The types of nodes whose rows it takes."""
        return list(dict.fromkeys([self.node_type, *(each[0] for each in self.edge_types)]))


@dataclass(frozen=True)
class Network:
    """A model on a store.

    inputs: the maps of features, or of ids where there are none, to rows, by type; empty: features
    are the rows. layers: in their order, each by node type. head: the map of the last layer's rows
    to scores; None: they are the scores. num_scores: width of scores; 0: there are none, and the
    last layer's rows are the embeddings.
    """

    node_type: str
    inputs: Mapping[str, BlockLayer]
    layers: Sequence[Mapping[str, BlockLayer]]
    head: Callable[[Tensor], Tensor] | None
    num_scores: int

    @property
    def embedding_level(self) -> int:
        """The layers whose rows are the embeddings: the last before the scores."""
        return len(self.layers) - (self.head is None and self.num_scores > 0)

    @property
    def widths(self) -> dict[str, int]:
        """Of the rows of embeddings and of scores, those that it has."""
        level, found = self.embedding_level, {}
        if self.num_scores:
            found["scores"] = self.num_scores
        if level:
            found["embeddings"] = self.layers[level - 1][self.node_type].width
        return found
