"""Loss of a batch of edges, and its gradients by hand."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lsm.embed.composition import compose, compose_backward
from lsm.embed.losses import loss_and_gradient
from lsm.embed.negatives import Candidates, NegativeDraws, all_rows, mask
from lsm.embed.options import EmbedOptions
from lsm.embed.regularizer import add_penalty
from lsm.embed.scores import scores_of
from lsm.embed.sides import Side, sides_of


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


def gradients_of(
    options: EmbedOptions,
    tables: Tables,
    edges: Tensor,
    candidates: Candidates,
    generator: torch.Generator,
) -> Gradients:
    """The loss of ``edges`` and its gradients, both sides corrupted. ``edges``: [b, 3] int64, or
    [b, 2] without relations. ``candidates``: ranges of rows that may be negatives. Raises
    ValueError for edges of another shape, and without a candidate."""
    num_rows = 0 if tables.relations is None else len(tables.relations)
    batch = _Batch(options, tables, candidates, generator)
    for side in sides_of(options, edges, num_rows):
        for first in range(0, len(edges), options.chunk):
            batch.add_chunk(side, slice(first, first + options.chunk))
    return batch.gradients()


class _Batch:
    """Adds up the gradients of chunks."""

    def __init__(
        self,
        options: EmbedOptions,
        tables: Tables,
        candidates: Candidates,
        generator: torch.Generator,
    ) -> None:
        self._options, self._tables, self._generator = options, tables, generator
        self._scores = scores_of(options.model)
        self._has_distances = options.model in ("transe_l1", "transe_l2", "rotate")
        entities, relations = tables
        self._loss = torch.zeros((), dtype=torch.float64, device=entities.device)
        # A rank without edges has no gradients of entities; relations are reduced all the same.
        self._ids = [torch.empty(0, dtype=torch.int64, device=entities.device)]
        self._grads = [entities.new_empty(0, options.dim)]
        self._relation_grads = None if relations is None else torch.zeros_like(relations)
        self._draws: NegativeDraws | None = None
        if options.num_negatives == "all":
            self._all = all_rows(candidates, entities.device)
            self._all_embeddings = entities.index_select(0, self._all)
            self._all_grads = torch.zeros_like(self._all_embeddings)
        else:
            self._draws = NegativeDraws(candidates, options.num_negatives, options.degree_fraction)

    def add_chunk(self, side: Side, edges: slice) -> None:
        options, scores = self._options, self._scores
        given, missing = side.given[edges], side.missing[edges]
        source = self._tables.entities.index_select(0, given)
        target = self._tables.entities.index_select(0, missing)
        relation_ids = None if side.relations is None else side.relations[edges]
        relation = self._relation(relation_ids)

        query = compose(options.model, source, relation, side.inverse)
        kept = self._dropout(query)
        if kept is not None:
            query = query * kept
        negatives, entities = self._negatives(side.missing)
        of_positive, of_negatives = self._loss_gradient(query, target, missing, negatives, entities)

        of_query, of_entities = scores.of_all_backward(of_negatives, query, entities)
        of_query_too, of_target = scores.of_pairs_backward(of_positive, query, target)
        of_query += of_query_too
        if kept is not None:
            of_query *= kept
        of_source, of_relation = compose_backward(
            options.model, of_query, source, relation, side.inverse
        )
        self._add_entities(given, source, of_source)
        self._add_entities(missing, target, of_target)
        self._add_negatives(negatives, of_entities)
        self._add_relations(relation_ids, relation, of_relation)

    def gradients(self) -> Gradients:
        if self._draws is None:
            self._ids.append(self._all)
            self._grads.append(self._all_grads)
        if not self._ids:  # no edges: other ranks have some
            entities = self._tables.entities
            self._ids = [torch.empty(0, dtype=torch.int64, device=entities.device)]
            self._grads = [entities.new_empty(0, entities.shape[1])]
        ids, grads = torch.cat(self._ids), torch.cat(self._grads)
        return Gradients(float(self._loss), ids, grads, self._relation_grads)

    def _loss_gradient(
        self, query: Tensor, target: Tensor, missing: Tensor, negatives: Tensor, entities: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients by the scores of positives [c] and negatives [c, k]."""
        positive_scores = self._scores.of_pairs(query, target)
        negative_scores = self._scores.of_all(query, entities)
        mask(negative_scores, negatives, torch.arange(len(missing), device=missing.device), missing)
        if self._options.loss == "logistic" and self._has_distances:
            positive_scores += self._options.margin
            negative_scores += self._options.margin
        loss, of_positive = loss_and_gradient(
            self._options.loss, positive_scores, negative_scores, self._options.margin
        )
        self._loss += loss
        return of_positive, negative_scores

    def _relation(self, ids: Tensor | None) -> Tensor | None:
        if ids is None or self._tables.relations is None:
            return None
        return self._tables.relations.index_select(0, ids)

    def _negatives(self, ends: Tensor) -> tuple[Tensor, Tensor]:
        if self._draws is None:
            return self._all, self._all_embeddings
        ids = self._draws.draw(ends, self._generator)
        return ids, self._tables.entities.index_select(0, ids)

    def _dropout(self, query: Tensor) -> Tensor | None:
        """Factors of a query's floats: 0, or 1 / (1 - dropout)."""
        share = self._options.dropout
        if share == 0:
            return None
        kept = torch.empty_like(query).bernoulli_(1 - share, generator=self._generator)
        return kept.div_(1 - share)

    def _add_entities(self, ids: Tensor, embeddings: Tensor, grads: Tensor) -> None:
        self._loss += add_penalty(self._options, embeddings, grads)
        self._ids.append(ids)
        self._grads.append(grads)

    def _add_negatives(self, ids: Tensor, grads: Tensor) -> None:
        if self._draws is None:
            self._all_grads += grads
        else:
            self._ids.append(ids)
            self._grads.append(grads)

    def _add_relations(
        self, ids: Tensor | None, embeddings: Tensor | None, grads: Tensor | None
    ) -> None:
        if ids is None or embeddings is None or grads is None or self._relation_grads is None:
            return
        self._loss += add_penalty(self._options, embeddings, grads)
        self._relation_grads.index_add_(0, ids, grads)
