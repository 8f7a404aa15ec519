"""Loss of a batch of edges, and its gradients by hand."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lsm.embed import host_kernels
from lsm.embed.composition import compose, compose_backward
from lsm.embed.losses import loss_and_gradient
from lsm.embed.negatives import Candidates, NegativeDraws, all_rows, equal_pairs
from lsm.embed.options import DISTANCE_MODELS, EmbedOptions
from lsm.embed.regularizer import add_penalty
from lsm.embed.scores import scores_of
from lsm.embed.sides import Side, sides_of

SCORE_BYTES = 1 << 20
LEAST_BLOCK = 128
"""Edges whose scores are made at once: as many as have scores of SCORE_BYTES, but at least these,
for matrix products of fewer rows are slow."""


class Tables(NamedTuple):
    """Embeddings of entities [n, dim] and relations [relation rows, dim], without state."""

    entities: Tensor
    relations: Tensor | None


class Gradients(NamedTuple):
    """Of the loss of a batch, and its sum. ``grads`` [m, dim] are of the rows ``ids`` [m], which
    repeat; ``relations`` [relation rows, dim] are of all relations."""

    loss: float
    ids: Tensor
    grads: Tensor
    relations: Tensor | None


class Workspace:
    """Memory for the embeddings, gradients and scores of a batch, kept between batches: the C
    library returns blocks of this size to the system when they are freed."""

    def __init__(self) -> None:
        self._blocks: dict[str, Tensor] = {}

    def take(self, name: str, num_rows: int, num_columns: int, like: Tensor) -> Tensor:
        """[num_rows, num_columns] of the dtype and device of ``like``, with any values. The next
        call for ``name`` returns the same memory."""
        size = num_rows * num_columns
        block = self._blocks.get(name)
        if block is None or len(block) < size:
            block = self._blocks[name] = like.new_empty(size)
        return block[:size].view(num_rows, num_columns)


def gradients_of(
    options: EmbedOptions,
    tables: Tables,
    edges: Tensor,
    candidates: Candidates,
    generator: torch.Generator,
    workspace: Workspace,
) -> Gradients:
    """The loss of ``edges`` and its gradients, both sides corrupted. ``edges``: [b, 3] int64, or
    [b, 2] without relations. ``candidates``: ranges of rows that may be negatives. The gradients
    are in ``workspace``. Raises ValueError for edges of another shape, and without a candidate."""
    num_relation_rows = 0 if tables.relations is None else len(tables.relations)
    sides = sides_of(options, edges, num_relation_rows)
    chunks = [
        slice(first, min(first + options.chunk, len(edges)))
        for first in range(0, len(edges), options.chunk)
    ]
    heads, tails = sides[0].given, sides[0].missing
    if options.num_negatives == "all":
        negatives = [all_rows(candidates, edges.device)]
        end = 2 * len(edges) + len(negatives[0])
        places = [slice(2 * len(edges), end)] * (2 * len(chunks))
    else:
        draws = NegativeDraws(candidates, options.num_negatives, options.degree_fraction)
        negatives = [draws.draw(side.missing, generator) for side in sides for _ in chunks]
        firsts = range(2 * len(edges), 2 * len(edges) + sum(map(len, negatives)), draws.count)
        places = [slice(first, first + draws.count) for first in firsts]
    ids = torch.cat((heads, tails, *negatives))
    batch = _Batch(options, tables, generator, ids, len(edges), workspace)
    for number, side in enumerate(sides):
        for chunk in chunks:
            batch.add_chunk(side, chunk, number == 1, places.pop(0))
    return batch.gradients()


class _Batch:
    """Adds up the gradients of chunks. ``ids``: heads [b], tails [b], negatives."""

    def __init__(
        self,
        options: EmbedOptions,
        tables: Tables,
        generator: torch.Generator,
        ids: Tensor,
        num_edges: int,
        workspace: Workspace,
    ) -> None:
        self._ids, self._num_edges = ids, num_edges
        self._options, self._generator, self._workspace = options, generator, workspace
        self._scores = scores_of(options.model)
        # Distances are negative scores: without a margin, no edge would be likelier than not.
        has_margin = options.loss == "logistic" and options.model in DISTANCE_MODELS
        self._margin = options.margin if has_margin else 0.0
        self._relations = tables.relations
        self._loss = torch.zeros((), dtype=torch.float64, device=ids.device)
        self._embeddings = workspace.take("embeddings", len(ids), options.dim, tables.entities)
        torch.index_select(tables.entities, 0, ids, out=self._embeddings)
        self._grads = workspace.take("gradients", len(ids), options.dim, tables.entities)
        # The others are written by one chunk each.
        self._shared = options.num_negatives == "all"
        self._grads[: len(ids) if self._shared else 2 * num_edges].zero_()
        self._relation_grads = (
            None if tables.relations is None else torch.zeros_like(tables.relations)
        )

    def add_chunk(self, side: Side, chunk: slice, is_head: bool, negatives: slice) -> None:
        """``chunk``: edges; ``negatives``: places in ``ids`` of the negatives."""
        options = self._options
        heads, tails = chunk, slice(chunk.start + self._num_edges, chunk.stop + self._num_edges)
        given, missing = (tails, heads) if is_head else (heads, tails)
        source, target = self._embeddings[given], self._embeddings[missing]
        relation_ids = None if side.relations is None else side.relations[chunk]
        relation = None
        if self._relations is not None and relation_ids is not None:
            relation = self._relations.index_select(0, relation_ids)

        query = compose(options.model, source, relation, side.inverse)
        kept = self._dropout(query)
        if kept is not None:
            query = query * kept
        of_query = self._contrast(query, target, missing, negatives)
        if kept is not None:
            of_query *= kept
        of_source, of_relation = compose_backward(
            options.model, of_query, source, relation, side.inverse
        )
        self._grads[given].add_(of_source)
        self._add_relations(relation_ids, relation, of_relation)

    def gradients(self) -> Gradients:
        """The sums, with the penalties of heads and tails, which each side has once."""
        ends = slice(0, 2 * self._num_edges)
        self._loss += add_penalty(self._options, self._embeddings[ends], self._grads[ends], times=2)
        return Gradients(float(self._loss), self._ids, self._grads, self._relation_grads)

    def _add_relations(
        self, ids: Tensor | None, relation: Tensor | None, grads: Tensor | None
    ) -> None:
        if ids is None or relation is None or grads is None or self._relation_grads is None:
            return
        self._loss += add_penalty(self._options, relation, grads, times=1)
        if host_kernels.takes(grads):  # index_add_ takes a microsecond per row
            host_kernels.add_rows(self._relation_grads, ids, grads)
        else:
            self._relation_grads.index_add_(0, ids, grads)

    def _contrast(self, query: Tensor, target: Tensor, missing: slice, negatives: slice) -> Tensor:
        """The gradient of queries [c, dim]; adds those of targets and negatives, and the loss.

        Edges take turns in blocks, whose scores stay in a core's cache from the product that makes
        them to those that use their gradient.
        """
        scores, margin = self._scores, self._margin
        entities, of_entities = self._embeddings[negatives], self._grads[negatives]
        positives = scores.of_pairs(query, target).add_(margin)
        rows, columns = equal_pairs(self._ids[negatives], self._ids[missing])
        of_query = torch.empty_like(query)
        size = max(LEAST_BLOCK, SCORE_BYTES // (entities.element_size() * len(entities)))
        for first in range(0, len(query), size):
            block = slice(first, min(first + size, len(query)))
            block_scores = self._workspace.take(
                "scores", block.stop - block.start, len(entities), query
            )
            scores.of_all(query[block], entities, block_scores)
            if margin:
                block_scores += margin
            if len(rows):
                inside = (rows >= block.start) & (rows < block.stop)
                block_scores[rows[inside] - block.start, columns[inside]] = -torch.inf
            loss, positives[block] = loss_and_gradient(
                self._options.loss, positives[block], block_scores, self._options.margin
            )
            self._loss += loss
            of_query[block] = scores.of_all_backward(
                block_scores, query[block], entities, of_entities, self._shared or first > 0
            )
        scores.of_pairs_backward(positives, query, target, of_query, self._grads[missing])
        return of_query

    def _dropout(self, query: Tensor) -> Tensor | None:
        """Factors of a query's floats: 0, or 1 / (1 - dropout)."""
        share = self._options.dropout
        if share == 0:
            return None
        kept = torch.empty_like(query).bernoulli_(1 - share, generator=self._generator)
        return kept.div_(1 - share)
