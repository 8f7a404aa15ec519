"""The loss of a batch of edges and its gradients, derived by hand."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lsm import native
from lsm.embed.gradients.losses import replace_by_gradients
from lsm.embed.gradients.own_partition import OwnPartition
from lsm.embed.gradients.regularizer import add_penalty
from lsm.embed.models.kernels import ScoredRows, on_host, takes, views
from lsm.embed.options import EmbedOptions
from lsm.embed.sides import Side, sides_of
from lsm.links.negatives import Candidates, NegativeDraws, all_rows
from lsm.links.pairs import mask_equal

SCORE_BYTES = 1 << 20
LEAST_BLOCK = 128
"""Minimum number of edges scored at once; more if their scores fit in SCORE_BYTES. Matrix products
of fewer rows are slow."""


class Tables(NamedTuple):
    """Embeddings of entities [n, dim] and relations [relation rows, dim], without optimiser
    state."""

    entities: Tensor
    relations: Tensor | None


class Gradients(NamedTuple):
    """Gradients of the loss of a batch, and the loss itself, a sum, as a number or a float64 tensor
    of one. ``grads`` [m, dim] belong to the rows ``ids`` [m], which may repeat; ``relations``
    [relation rows, dim] to all relations."""

    loss: float | Tensor
    ids: Tensor
    grads: Tensor
    relations: Tensor | None


class Workspace:
    """Memory for the embeddings, gradients and scores of a batch, reused by the next batch. Without
    it, the C library returns blocks of this size to the system on every free."""

    def __init__(self) -> None:
        self._blocks: dict[str, Tensor] = {}

    def allocate(self, name: str, num_rows: int, num_columns: int, like: Tensor) -> Tensor:
        """Uninitialised memory: [num_rows, num_columns] of the dtype and device of ``like``. The
        next call for ``name`` returns the same memory."""
        size = num_rows * num_columns
        block = self._blocks.get(name)
        if block is None or block.numel() < size:
            block = self._blocks[name] = like.new_empty(size)
        return block.as_strided((num_rows, num_columns), (num_columns, 1))


def gradients_of(
    options: EmbedOptions,
    tables: Tables,
    edges: Tensor,
    candidates: Candidates,
    generator: torch.Generator,
    workspace: Workspace,
    own: OwnPartition | None = None,
) -> Gradients:
    """The loss of ``edges`` and its gradients, with both sides corrupted. ``edges``: [b, 3] int64,
    or [b, 2] without relations. ``candidates``: ranges of rows that may be negatives. ``own``:
    shifts scores. The gradients lie in ``workspace``. Raises ValueError for edges of another shape,
    or without a candidate."""
    num_relation_rows = 0 if tables.relations is None else len(tables.relations)
    sides = sides_of(options, edges, num_relation_rows)
    chunks = [
        slice(first, min(first + options.chunk, len(edges)))
        for first in range(0, len(edges), options.chunk)
    ]
    if options.num_negatives == "all":
        negatives = [all_rows(candidates, edges.device)]
        end = 2 * len(edges) + len(negatives[0])
        places = [slice(2 * len(edges), end)] * (2 * len(chunks))
    else:
        draws = NegativeDraws(candidates, options.num_negatives, options.degree_fraction)
        negatives = [draws.draw(side.targets, generator) for side in sides for _ in chunks]
        firsts = range(2 * len(edges), 2 * len(edges) + sum(map(len, negatives)), draws.count)
        places = [slice(first, first + draws.count) for first in firsts]
    ids = torch.cat((sides[0].entities, sides[0].targets, *negatives))
    batch = _Batch(options, tables, generator, ids, len(edges), workspace, own)
    for number, chunk in enumerate(chunks):
        batch.add_chunk(chunk, sides, (places[number], places[len(chunks) + number]))
    return batch.gradients()


class _Rows(NamedTuple):
    """Embeddings and gradients [k, dim] of the entities ``ids`` [k], and the frames [k] that they
    are in, if scores depend on them."""

    ids: Tensor
    embeddings: Tensor
    grads: Tensor
    frames: Tensor


class _SideRows(NamedTuple):
    """One side of a chunk: the rows of ``Side``, the embeddings of its relations, and negatives."""

    inverse: bool
    entities: _Rows
    relation: Tensor | None
    targets: _Rows
    negatives: _Rows
    add: bool
    """True to add to the gradients of ``entities`` and ``targets``, False to overwrite them."""


class _Batch:
    """Adds up the gradients of chunks. ``ids``: heads [b], tails [b], then negatives."""

    def __init__(
        self,
        options: EmbedOptions,
        tables: Tables,
        generator: torch.Generator,
        ids: Tensor,
        num_edges: int,
        workspace: Workspace,
        own: OwnPartition | None,
    ) -> None:
        self._own, self._frames = own, ids[:0] if own is None else own.frames(ids)
        self._ids, self._num_edges = ids, num_edges
        self._options, self._generator, self._workspace = options, generator, workspace
        self._model = options.edge_model
        self._tables = tables
        self._in_one_pass = (
            self._model.takes("host") and options.dropout == 0 and takes(tables.entities)
        )
        self._loss: float | Tensor = 0.0
        self._grads = workspace.allocate("gradients", len(ids), options.dim, tables.entities)
        # Each of the other gradients is written by one chunk only.
        self._all_negatives = None
        if options.num_negatives == "all":
            self._all_negatives = self._rows("negatives", slice(2 * num_edges, len(ids)))
            self._all_negatives.grads.zero_()
        self._relation_grads = (
            None if tables.relations is None else torch.zeros_like(tables.relations)
        )

    def add_chunk(
        self, chunk: slice, sides: tuple[Side, Side], negatives: tuple[slice, slice]
    ) -> None:
        """Adds both sides of the edges ``chunk``. Their embeddings and gradients stay in a core's
        cache meanwhile. ``negatives``: positions in ``ids`` of the negatives of each side."""
        heads = self._rows("heads", chunk)
        tails = self._rows(
            "tails", slice(chunk.start + self._num_edges, chunk.stop + self._num_edges)
        )
        self._add_side(sides[0], chunk, heads, tails, negatives[0], add=False)
        self._add_side(sides[1], chunk, tails, heads, negatives[1], add=True)
        for rows in (heads, tails):  # each side uses both once
            self._loss += add_penalty(self._options, rows.embeddings, rows.grads, times=2)

    def gradients(self) -> Gradients:
        return Gradients(self._loss, self._ids, self._grads, self._relation_grads)

    def _rows(self, name: str, places: slice) -> _Rows:
        """Embeddings and gradients of the ids at ``places``; valid until the next call for
        ``name``."""
        ids = self._ids[places]
        table = self._tables.entities
        gathered = self._gathered(name, table, ids)
        return _Rows(ids, gathered, self._grads[places], self._frames[places])

    def _gathered(self, name: str, table: Tensor, ids: Tensor) -> Tensor:
        """The rows ``ids`` of ``table``; valid until the next call for ``name``."""
        out = self._workspace.allocate(name, ids.numel(), self._options.dim, table)
        if takes(table):
            on_host(native.gather_embeddings, table, ids, out)
        else:
            torch.index_select(table, 0, ids, out=out)
        return out

    def _add_side(
        self,
        side: Side,
        chunk: slice,
        entities: _Rows,
        targets: _Rows,
        negatives: slice,
        add: bool,
    ) -> None:
        """``add``: as in _SideRows."""
        relations, relation = self._tables.relations, None
        if relations is not None and side.relations is not None:
            relation = self._gathered("relations", relations, side.relations[chunk])
        others = self._all_negatives or self._rows("negatives", negatives)
        rows = _SideRows(side.inverse, entities, relation, targets, others, add)
        grads = self._by_kernels(rows) if self._in_one_pass else self._by_steps(rows)
        if relation is not None and side.relations is not None and grads is not None:
            self._add_relations(side.relations[chunk], relation, grads)

    def _by_kernels(self, rows: _SideRows) -> Tensor:
        """The gradients of relations, by native kernels, which overwrite with them the gradients of
        queries."""
        entities, targets, operator = rows.entities, rows.targets, self._model.operator.functor
        assert operator is not None
        edges = views(
            operator, rows.inverse, entities.embeddings, rows.relation, targets.embeddings
        )
        query = self._workspace.allocate(
            "queries", len(entities.ids), self._options.dim, entities.embeddings
        )
        positives = query.new_empty(query.shape[0])
        on_host(native.make_queries, *edges, query, positives)
        of_query = self._contrast(query, positives, rows)
        on_host(
            *(native.query_gradients, *edges, query, positives, of_query),
            *(entities.grads, targets.grads, rows.add),
        )
        return of_query

    def _by_steps(self, rows: _SideRows) -> Tensor | None:
        """The gradients of relations, by torch, through the steps of the model."""
        model, entities, targets = self._model, rows.entities, rows.targets
        if not rows.add:
            entities.grads.zero_()
            targets.grads.zero_()
        query = model.compose(entities.embeddings, rows.relation, rows.inverse)
        dropout = self._dropout(query)
        if dropout is not None:
            query = query * dropout
        positives = model.comparator.of_pairs(query, targets.embeddings)
        positives += self._options.score_shift
        of_query = self._contrast(query, positives, rows)
        scored = ScoredRows(query, targets.embeddings, of_query, targets.grads)
        model.comparator.of_pairs_backward(positives, scored)
        if dropout is not None:
            of_query *= dropout
        of_entities, of_relation = model.compose_backward(
            of_query, entities.embeddings, rows.relation, rows.inverse
        )
        entities.grads.add_(of_entities)
        return of_relation

    def _add_relations(self, ids: Tensor, relation: Tensor, grads: Tensor) -> None:
        assert self._relation_grads is not None
        self._loss += add_penalty(self._options, relation, grads, times=1)
        if takes(grads):  # index_add_ takes a microsecond per row
            native.add_rows(self._relation_grads.numpy(), ids.numpy(), grads.numpy())
        else:
            self._relation_grads.index_add_(0, ids, grads)

    def _contrast(self, query: Tensor, positives: Tensor, rows: _SideRows) -> Tensor:
        """The gradient of queries [c, dim]. Adds the gradients of negatives and the loss.
        ``positives`` [c]: scores, overwritten by their gradient.

        Edges are processed in blocks. The scores of a block stay in a core's cache from the product
        that makes them to those that use their gradient.
        """
        options, comparator = self._options, self._model.comparator
        negatives, targets = rows.negatives, rows.targets.ids
        entities = negatives.embeddings
        of_query = self._workspace.allocate("of_queries", len(query), options.dim, query)
        num_edges, num_negatives = query.shape[0], entities.shape[0]
        size = max(LEAST_BLOCK, SCORE_BYTES // (entities.element_size() * num_negatives))
        all_scores = self._workspace.allocate("scores", min(size, num_edges), num_negatives, query)
        shifts, frames = None, rows.entities.frames
        if self._own is not None:
            positives += self._own.of_pairs(frames, rows.targets.frames)
            shifts = self._own.of_all(frames, negatives.frames, query)
        for first in range(0, num_edges, size):
            block = slice(first, min(first + size, num_edges))
            queries, of_all = query[block], all_scores[: block.stop - first]
            comparator.of_all(queries, entities, of_all)
            saved = comparator.save(of_all)
            if options.score_shift:
                of_all += options.score_shift
            if shifts is not None:
                of_all += shifts[frames[block]]
            mask_equal(of_all, negatives.ids, targets[block])
            self._loss += replace_by_gradients(
                options.loss, positives[block], of_all, options.margin
            )
            add = self._all_negatives is not None or first > 0
            scored = ScoredRows(queries, entities, of_query[block], negatives.grads)
            comparator.of_all_backward(of_all, saved, scored, add)
        return of_query

    def _dropout(self, query: Tensor) -> Tensor | None:
        """Dropout factors of a query's floats: 0, or 1 / (1 - dropout)."""
        share = self._options.dropout
        if share == 0:
            return None
        dropout = torch.empty_like(query).bernoulli_(1 - share, generator=self._generator)
        return dropout.div_(1 - share)
