"""The edges that a filtered ranking leaves out, by query."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lsm.embed.options import EmbedOptions
from lsm.embed.sides import Side, sides_of


class KnownEdges:
    """The entities that complete a query to an edge of the graph. Holds 32 bytes per edge."""

    def __init__(self, options: EmbedOptions, splits: Sequence[Tensor], relation_rows: int) -> None:
        """``splits``: edges of training, validation and test, each [n, 3] int64, or [n, 2] where
        the model has no relations; ``relation_rows``: rows of the table of relations."""
        edges = torch.cat([split.cpu() for split in splits])
        self._num_relations = max(1, relation_rows)
        self._by_side = [self._sorted(side) for side in sides_of(options, edges, relation_rows)]

    def pairs(self, side: Side, is_head: bool) -> tuple[Tensor, Tensor]:
        """Numbers of the queries of ``side`` [p], ascending, and the entities [p] that complete
        them. ``is_head``: heads are missing."""
        keys, entities = self._by_side[is_head]
        wanted = self._key(side)
        first = torch.searchsorted(keys, wanted)
        counts = torch.searchsorted(keys, wanted, right=True) - first
        queries = torch.repeat_interleave(counts)
        before = torch.cumsum(counts, 0) - counts
        places = torch.arange(len(queries)) - before[queries] + first[queries]
        return queries, entities[places]

    def _sorted(self, side: Side) -> tuple[Tensor, Tensor]:
        keys, order = self._key(side).sort(stable=True)
        return keys, side.missing[order]

    def _key(self, side: Side) -> Tensor:
        given = side.given.cpu()
        if side.relations is None:
            return given
        return given * self._num_relations + side.relations.cpu()
