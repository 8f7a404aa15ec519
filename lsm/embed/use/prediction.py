"""Scores of edges, and the best targets of queries, by the embeddings of a run.

Evaluation ranks by the same scores. Here they are computed in float64 and rounded to float32, so
that equal rows get equal scores in any block.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from lsm.data.format import SPLITS
from lsm.data.triples.store import TripleStore
from lsm.embed.options import EmbedOptions
from lsm.embed.run import EmbeddingRun
from lsm.embed.sides import Side, known_edges, sides_of
from lsm.embed.use.highest import highest_of_blocks

QUERIES_AT_ONCE = 1 << 16
"""Queries answered in one pass over the embeddings."""
EDGES_AT_ONCE = 1 << 14


def predict(
    run: EmbeddingRun,
    entities: Tensor,
    relations: Tensor | None,
    k: int,
    *,
    is_head: bool,
    known_of: TripleStore | None = None,
) -> tuple[Tensor, Tensor]:
    """The answers of :func:`best_targets` to queries of ``entities`` [q] int64 and ``relations``
    [q] int64 (None for a model without). ``is_head``: targets are heads, else tails. ``known_of``:
    a store; answers leave out its edges. Raises RuntimeError if an embedding of a query is not
    finite."""
    options, table = run.config.embed, run.relations()
    relation_rows = 0 if table is None else len(table)
    answers = []
    for first in range(0, max(1, len(entities)), QUERIES_AT_ONCE):
        chunk = slice(first, first + QUERIES_AT_ONCE)
        ends = [entities[chunk], entities[chunk]]  # the target's column is not used
        columns = ends if relations is None else [ends[0], relations[chunk], ends[1]]
        side = sides_of(options, torch.stack(columns, dim=1), relation_rows)[is_head]
        queries = _composed(options, side, _rows(run, side.entities), table)
        if not torch.isfinite(queries).all():
            raise RuntimeError(f"{run.path}: an embedding asked for holds NaN or inf")
        known = None
        if known_of is not None:
            known = _known_targets(options, known_of, side, relation_rows, is_head=is_head)
        answers.append(best_targets(options, run.blocks(), queries, k, known))
    return torch.cat([ids for ids, _ in answers]), torch.cat([best for _, best in answers])


def score(run: EmbeddingRun, edges: Tensor, *, is_head: bool) -> Tensor:
    """Scores [n] float32 of ``edges`` [n, 3] int64 ([n, 2] or [n, 3] for a model without
    relations), with tails as targets or, with ``is_head``, heads. NaN for an edge whose embeddings
    hold NaN."""
    options, table = run.config.embed, run.relations()
    scores = torch.empty(len(edges))
    for first in range(0, len(edges), EDGES_AT_ONCE):
        some = edges[first : first + EDGES_AT_ONCE]
        side = sides_of(options, some, 0 if table is None else len(table))[is_head]
        rows = _rows(run, torch.cat((side.entities, side.targets)))
        queries = _composed(options, side, rows[: len(some)], table)
        pairs = options.edge_model.comparator.of_pairs(queries, rows[len(some) :].double())
        scores[first : first + len(some)] = pairs.float()
    return scores


def _rows(run: EmbeddingRun, ids: Tensor) -> Tensor:
    """Embeddings [n, dim] of ``ids`` [n], each read once."""
    unique, places = ids.unique(return_inverse=True)
    return run.rows(unique.tolist())[places]


def _composed(
    options: EmbedOptions, side: Side, entities: Tensor, relations: Tensor | None
) -> Tensor:
    """The queries of a side, [q, dim] float64. ``entities``: embeddings [q, dim] of its entities;
    ``relations``: [relation rows, dim]."""
    relation = side.relations_in(relations)
    relation = None if relation is None else relation.double()
    return options.edge_model.compose(entities.double(), relation, side.inverse)


def best_targets(
    options: EmbedOptions,
    blocks: Iterable[tuple[int, Tensor]],
    queries: Tensor,
    k: int,
    known: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """The best targets of ``queries`` [q, dim] float64: ids [q, k] int64 and scores [q, k] float32,
    best first, lower ids first among equals. If fewer are left, -1 and -inf follow.

    ``blocks``: first id and embeddings [n, dim] float32, by ascending id; read once. ``known``:
    numbers of queries [p], ascending, and entities [p]. Answers leave out these pairs, and entities
    whose embeddings hold NaN. Memory: that of :func:`lsm.embed.use.highest.highest_of_blocks`.
    """
    comparator = options.edge_model.comparator

    def scores_of(chunk: slice, first: int, rows: Tensor) -> Tensor:
        exact = torch.empty((chunk.stop - chunk.start, len(rows)), dtype=torch.float64)
        comparator.of_all(queries[chunk], rows, exact)
        scores = exact.float().nan_to_num_(-torch.inf, torch.inf, -torch.inf)
        if known is not None:
            _leave_out(scores, known, chunk, first)
        return scores

    ids, best = highest_of_blocks(blocks, len(queries), k, scores_of)
    return ids.masked_fill_(best == -torch.inf, -1), best


def _known_targets(
    options: EmbedOptions, store: TripleStore, side: Side, relation_rows: int, *, is_head: bool
) -> tuple[Tensor, Tensor]:
    """Numbers of the queries of ``side`` [p], ascending, and entities [p] that complete them to an
    edge of any split. Reads all edges, a chunk at a time."""
    keys = side.keys(relation_rows)
    asked = (keys[:0], keys) if is_head else (keys, keys[:0])
    chunks = map(torch.from_numpy, store.checked_chunks(*SPLITS))
    return known_edges(options, chunks, relation_rows, asked)[is_head].pairs(keys)


def _leave_out(scores: Tensor, known: tuple[Tensor, Tensor], chunk: slice, first: int) -> None:
    """Sets the scores of known pairs to -inf. ``scores``: [queries of chunk, n], of entities from
    ``first`` on."""
    bounds = torch.tensor([chunk.start, chunk.stop])
    start, stop = torch.searchsorted(known[0], bounds).tolist()
    rows, columns = known[0][start:stop] - chunk.start, known[1][start:stop] - first
    here = (columns >= 0) & (columns < scores.shape[1])
    scores[rows[here], columns[here]] = -torch.inf
