"""The two sides of edges, of which one is corrupted while the other forms queries."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from lsm.embed.options import EmbedOptions


class Side(NamedTuple):
    """Edges with one side corrupted. ``given``: rows [b] of the other side, which form queries with
    rows ``relations`` [b] of the table of relations; ``missing``: rows [b] of the corrupted side;
    ``inverse``: how :func:`lsm.embed.composition.compose` combines them."""

    given: Tensor
    relations: Tensor | None
    missing: Tensor
    inverse: bool


def sides_of(options: EmbedOptions, edges: Tensor, relation_rows: int) -> tuple[Side, Side]:
    """``edges`` with tails and with heads corrupted. ``edges``: [b, 3] int64, or [b, 2] where the
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
