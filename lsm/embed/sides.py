"""The two sides of edges: one is the target, the other forms the query with the relation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from lsm.embed.options import EmbedOptions
from lsm.links.known_edges import KnownEdges, query_keys
from lsm.links.pairs import in_sorted

_NONE = torch.empty(0, dtype=torch.int64)


class Side(NamedTuple):
    """Edges with one side as the target. Rows ``entities`` [b] of the other side form queries with
    rows ``relations`` [b] of the table of relations; ``targets``: rows [b] of the target side;
    ``inverse``: how an operator combines entities and relations."""

    entities: Tensor
    relations: Tensor | None
    targets: Tensor
    inverse: bool

    def relations_in(self, table: Tensor | None) -> Tensor | None:
        """The rows ``relations`` of their ``table``: [b, width]; None for a model without."""
        if self.relations is None:
            return None
        assert table is not None
        return table[self.relations]

    def keys(self, relation_rows: int) -> Tensor:
        """[b] int64: numbers of the queries. ``relation_rows``: rows of the table of relations."""
        return query_keys(self.entities, self.relations, relation_rows)


def sides_of(options: EmbedOptions, edges: Tensor, relation_rows: int) -> tuple[Side, Side]:
    """``edges`` with tails and with heads as targets. ``edges``: [b, 3] int64, or [b, 2] where the
    model has no relations; ``relation_rows``: rows of the table of relations. Raises ValueError for
    edges of another shape."""
    columns = (3,) if options.has_relations else (2, 3)
    if edges.ndim != 2 or edges.shape[1] not in columns:
        expected = "[b, 3]: head, relation, tail" if options.has_relations else "[b, 2] or [b, 3]"
        raise ValueError(f"edges: expected {expected}, got {list(edges.shape)}")
    heads, tails = edges[:, 0].contiguous(), edges[:, -1].contiguous()
    if not options.has_relations:
        return Side(heads, None, tails, False), Side(tails, None, heads, True)
    relations = edges[:, 1].contiguous()
    if not options.reciprocal:
        return Side(heads, relations, tails, False), Side(tails, relations, heads, True)
    return (
        Side(heads, relations, tails, False),
        Side(tails, relations + relation_rows // 2, heads, False),
    )


def known_edges(
    options: EmbedOptions,
    chunks: Iterable[Tensor],
    relation_rows: int,
    keys: tuple[Tensor, Tensor],
) -> tuple[KnownEdges, KnownEdges]:
    """The edges in ``chunks`` that complete queries for tails, and those for heads. ``keys``: the
    numbers of both, [q] each, by Side.keys(); other arguments as of :func:`sides_of`. Holds 16
    bytes per edge that completes one, next to a chunk."""
    wanted = [each.unique() for each in keys]
    found: list[list[tuple[Tensor, Tensor]]] = [[(_NONE, _NONE)], [(_NONE, _NONE)]]
    for edges in chunks:
        sides = sides_of(options, edges, relation_rows)
        for side, queries, of_side in zip(sides, wanted, found, strict=True):
            numbers = side.keys(relation_rows)
            is_asked = in_sorted(queries, numbers)
            of_side.append((numbers[is_asked], side.targets[is_asked]))
    tails, heads = (
        KnownEdges(torch.cat([key for key, _ in each]), torch.cat([target for _, target in each]))
        for each in found
    )
    return tails, heads
