"""The edges of a graph by their queries; a filtered ranking leaves their targets out."""

from __future__ import annotations

import torch
from torch import Tensor

from lsm.links.pairs import pairs_in_sorted


def query_keys(given: Tensor, relations: Tensor | None, num_relations: int) -> Tensor:
    """[q] int64: a number for each query, of its entity ``given`` [q] and its relation [q]; None:
    edges have no relations. Equal queries have equal numbers."""
    if relations is None:
        return given
    return given * max(1, num_relations) + relations


class KnownEdges:
    """The targets that complete a query to an edge of the graph. Holds 16 bytes per edge."""

    def __init__(self, keys: Tensor, targets: Tensor) -> None:
        """``keys``: [n] int64, the query of each edge, by :func:`query_keys`; ``targets``: [n]
        int64, the entity on its other side."""
        self._keys, order = keys.sort(stable=True)
        self._targets = targets[order]

    def pairs(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers of the queries ``keys`` [q], ascending, and the targets that complete them: [p]
        int64 each."""
        queries, places = pairs_in_sorted(self._keys, keys)
        return queries, self._targets[places]


def joined_pairs(
    first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Both lists of queries and targets as one, queries ascending."""
    queries, order = torch.cat((first[0], second[0])).sort()
    return queries, torch.cat((first[1], second[1]))[order]
