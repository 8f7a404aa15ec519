"""Ranks of the targets of edges by embeddings, which are read block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from lsm.embed.options import EmbedOptions
from lsm.embed.sides import sides_of
from lsm.links.known_edges import KnownEdges, joined_pairs
from lsm.links.ranking import Protocol, RankCounter, Ranking

TIE = 1e-6
"""Scores of float32 that differ by less, relative to the terms that were added, are ties."""


Blocks = Callable[[], Iterator[tuple[int, Tensor]]]
"""Reads the rows of entities, block by block from the first one on: number of the first entity of a
block and rows [n, at least dim] float32."""


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
    without relations ignores them, those of known edges too. Calls ``blocks`` up to three times;
    memory holds one block, and the embeddings of the edges' own entities and of a sample. Raises
    FloatingPointError if an edge has no finite score, ValueError for an entity without a row.
    """
    protocol, dim, model = protocol or Protocol(), options.dim, options.edge_model
    num_entities = sum(len(rows) for _, rows in blocks()) if protocol.candidates != "all" else 0
    sample = protocol.draw(num_entities, degrees)
    needed, places = torch.unique(
        torch.cat((edges[:, 0], edges[:, -1], sample)), return_inverse=True
    )
    embeddings = _gather(blocks, needed, dim)
    heads, tails, sampled = places.split([len(edges), len(edges), len(sample)])
    relation_rows = 0 if relations is None else len(relations)
    table = None if relations is None else relations[:, :dim]
    ranks = []
    for is_head, side in enumerate(sides_of(options, edges, relation_rows)):
        entities, targets = (tails, heads) if is_head else (heads, tails)
        queries = model.compose(embeddings[entities], side.relations_in(table), side.inverse)
        left_out = (torch.arange(len(edges)), side.targets)
        if known is not None:
            left_out = joined_pairs(left_out, known[is_head].pairs(side.keys(relation_rows)))
        scores = model.comparator.of_pairs(queries, embeddings[targets])
        tolerance = TIE * model.comparator.magnitude(queries, embeddings[targets])
        counter = RankCounter(scores, tolerance, left_out)
        candidates: Iterable[tuple[Tensor, Tensor]] = [(sample, embeddings[sampled])]
        if protocol.candidates == "all":
            candidates = _numbered(blocks, dim)
        num_candidates = 0
        for ids, rows in candidates:
            num_candidates += len(ids)
            for chunk in counter.chunks(len(ids)):
                scores = torch.empty(chunk.stop - chunk.start, len(ids))
                model.comparator.of_all(queries[chunk], rows, scores)
                counter.add(chunk, ids, scores)
        ranks.append(counter.ranks())
    text = protocol.text(num_candidates, is_filtered=known is not None)
    return Ranking.of(torch.cat(ranks), text)


def _numbered(blocks: Blocks, dim: int) -> Iterator[tuple[Tensor, Tensor]]:
    for first, rows in blocks():
        yield torch.arange(first, first + len(rows)), rows[:, :dim]


def _gather(blocks: Blocks, ids: Tensor, dim: int) -> Tensor:
    """Embeddings [m, dim] of ``ids`` [m], ascending."""
    gathered = torch.empty(len(ids), dim)
    num_found = 0
    for first, rows in blocks():
        start, stop = torch.searchsorted(ids, torch.tensor([first, first + len(rows)])).tolist()
        gathered[start:stop] = rows[ids[start:stop] - first, :dim]
        num_found += stop - start
    if num_found != len(ids):
        raise ValueError(f"edges: {len(ids) - num_found} of {len(ids)} entities have no embedding")
    return gathered
