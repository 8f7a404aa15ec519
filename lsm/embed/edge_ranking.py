"""Ranks of the targets of edges by embeddings, which are read block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from lsm.embed.options import EmbedOptions
from lsm.embed.sides import Side, sides_of
from lsm.links.known_edges import KnownEdges, joined_pairs
from lsm.links.ranking import Protocol, RankCounter, Ranking

TIE = 1e-6
"""Scores of float32 that differ by less, relative to the terms that were added, are ties."""


class Blocks:
    """Rows of entities, block by block: number of the first entity and rows [n, at least dim]
    float32. Every iteration starts from the first block."""

    def __init__(self, iterate: Callable[[], Iterator[tuple[int, Tensor]]]) -> None:
        self._iterate = iterate

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        return self._iterate()


def rank_edges(
    options: EmbedOptions,
    blocks: Blocks,
    relations: Tensor | None,
    edges: Tensor,
    known: tuple[KnownEdges, KnownEdges] | None = None,
    protocol: Protocol | None = None,
    degrees: Tensor | None = None,
) -> Ranking:
    """Ranks the tails and the heads of ``edges`` [n, 3] int64 ([n, 2] without relations).

    ``relations``: rows [relation rows, at least dim]. ``known``: other edges, which do not count
    (filtered), by :func:`lsm.embed.sides.known_edges`; None: every entity counts. ``degrees``:
    [entities], for Protocol degree. A rank is the mean over the orders of equal scores. A model
    without relations ignores them, those of known edges too. ``blocks`` are read up to three times;
    memory holds one block, and the embeddings of the edges' own entities and of a sample. Raises
    FloatingPointError if an edge has no finite score, ValueError for an entity without a row.
    """
    protocol = protocol or Protocol()
    num_entities = sum(len(rows) for _, rows in blocks) if protocol.candidates != "all" else 0
    sample = protocol.draw(num_entities, degrees)
    needed, places = torch.unique(
        torch.cat((edges[:, 0], edges[:, -1], sample)), return_inverse=True
    )
    embeddings = _gather(blocks, needed, options.dim)
    heads, tails, sampled = places.split([len(edges), len(edges), len(sample)])
    relation_rows = 0 if relations is None else len(relations)
    num_candidates = 0
    ranks = []
    for is_head, side in enumerate(sides_of(options, edges, relation_rows)):
        entities, targets = (tails, heads) if is_head else (heads, tails)
        queries = options.edge_model.compose(
            embeddings[entities], _relations_of(options, side, relations), side.inverse
        )
        left_out = (torch.arange(len(edges)), side.targets)
        if known is not None:
            left_out = joined_pairs(left_out, known[is_head].pairs(side.keys(relation_rows)))
        ranker = _Ranker(options, queries, embeddings[targets], left_out)
        candidates: Iterator[tuple[Tensor, Tensor]]
        if protocol.candidates == "all":
            candidates = _numbered(blocks, options.dim)
        else:
            candidates = iter([(sample, embeddings[sampled])])
        num_candidates = sum(ranker.add(ids, rows) for ids, rows in candidates)
        ranks.append(ranker.ranks())
    text = protocol.text(num_candidates, is_filtered=known is not None)
    return Ranking.of(torch.cat(ranks), text)


class _Ranker:
    """Ranks of targets [q, dim] by their scores with queries [q, dim]."""

    def __init__(
        self,
        options: EmbedOptions,
        queries: Tensor,
        targets: Tensor,
        left_out: tuple[Tensor, Tensor],
    ) -> None:
        self._queries = queries
        self._comparator = options.edge_model.comparator
        tolerance = TIE * self._comparator.magnitude(queries, targets)
        scores = self._comparator.of_pairs(queries, targets)
        self._counter = RankCounter(scores, tolerance, left_out)
        self.ranks = self._counter.ranks

    def add(self, ids: Tensor, rows: Tensor) -> int:
        """Counts the entities ``ids`` [k] with embeddings ``rows`` [k, dim]; returns k."""
        for chunk in self._counter.chunks(len(ids)):
            scores = torch.empty(chunk.stop - chunk.start, len(ids))
            self._comparator.of_all(self._queries[chunk], rows, scores)
            self._counter.add(chunk, ids, scores)
        return len(ids)


def _relations_of(options: EmbedOptions, side: Side, relations: Tensor | None) -> Tensor | None:
    if side.relations is None:
        return None
    assert relations is not None
    return relations[side.relations, : options.dim]


def _numbered(blocks: Blocks, dim: int) -> Iterator[tuple[Tensor, Tensor]]:
    for first, rows in blocks:
        yield torch.arange(first, first + len(rows)), rows[:, :dim]


def _gather(blocks: Blocks, ids: Tensor, dim: int) -> Tensor:
    """Embeddings [m, dim] of ``ids`` [m], ascending."""
    gathered = torch.empty(len(ids), dim)
    num_found = 0
    for first, rows in blocks:
        start, stop = torch.searchsorted(ids, torch.tensor([first, first + len(rows)])).tolist()
        gathered[start:stop] = rows[ids[start:stop] - first, :dim]
        num_found += stop - start
    if num_found != len(ids):
        raise ValueError(f"edges: {len(ids) - num_found} of {len(ids)} entities have no embedding")
    return gathered
