"""Native kernels of a GPU, or their host twins, which tests call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lsm import native
from lsm.embed.gradients.own_partition import OwnPartition
from lsm.embed.models.kernels import place
from lsm.embed.options import EmbedOptions, LossName


@dataclass(frozen=True)
class EdgeBatch:
    """Edges with both sides as targets, and their tables. ``ends``: [2, b] int64, heads and tails;
    ``relation_rows``: [2, b] int64, of the side with tails as targets and of the other side;
    ``inverse``: the other side inverts its relations. ``dropout``: factors of queries [2, b,
    dim]."""

    options: EmbedOptions
    entities: Tensor
    relations: Tensor | None
    ends: Tensor
    relation_rows: Tensor | None
    inverse: bool
    dropout: Tensor | None = None


def form_queries(edges: EdgeBatch, queries: Tensor, positives: Tensor) -> None:
    """Writes queries [2, b, dim] and the scores of edges [2, b]."""
    native.form_queries_on(**_batch(edges), queries=queries, positives=positives, **place(queries))


def edge_gradients(
    edges: EdgeBatch,
    of_queries: Tensor,
    of_positives: Tensor,
    of_ends: Tensor,
    of_relations: Tensor | None,
    losses: Tensor,
) -> None:
    """Writes the gradients of heads and tails [2b, dim], and those of the relations of both sides
    [2b, dim]. Given: the gradients of queries by negatives, and those of the edges' scores. Adds
    penalties to both results and to ``losses`` [2, b]."""
    options = edges.options
    native.edge_gradients_on(
        **_batch(edges),
        of_queries=of_queries,
        of_positives=of_positives,
        of_ends=of_ends,
        of_relations=of_relations,
        losses=losses,
        penalty=getattr(native.Penalty, options.penalised),
        weight=options.regularizer_weight,
        **place(of_ends),
    )


def losses(
    loss: LossName,
    margin: float,
    shift: float,
    negatives: Tensor,
    targets: Tensor,
    firsts: Tensor | None,
    own: OwnPartition | None,
    scores: Tensor,
    positives: Tensor,
    out: Tensor,
) -> None:
    """Writes the losses of edges to ``out`` [c], after adding ``shift`` to all scores. Overwrites
    ``scores`` [c, k] and ``positives`` [c] with their gradients. ``negatives``: ids [chunks, k]
    int32; the c / chunks edges of a chunk share a row. The id ``targets`` [c] of an edge is left
    out. ``own``: shifts scores of the softmax; ``firsts`` [c]: first rows of the partitions of
    queries."""
    chunk = max(1, -(-len(scores) // len(negatives)))
    native.losses_on(
        getattr(native.EdgeLoss, loss),
        margin,
        shift,
        chunk,
        negatives,
        targets,
        firsts,
        own.rows if own else 0,
        own.shift if own else 0.0,
        scores,
        positives,
        out,
        **place(scores),
    )


def update_rows(options: EmbedOptions, rows: Tensor, ids: Tensor, grads: Tensor) -> None:
    """``lsm.embed.adagrad.update_rows``."""
    order = _sorted(ids)
    partial = _partial(ids, grads)
    native.update_rows_on(rows, *order, grads, partial, options.lr, options.eps, **place(rows))


def sum_rows(ids: Tensor, grads: Tensor, num_rows: int) -> Tensor:
    """[num_rows, dim]: for each row, the sum of the gradients [m, dim] that have the row's id."""
    out = grads.new_zeros(num_rows, grads.shape[1])
    native.sum_rows_on(*_sorted(ids), grads, _partial(ids, grads), out, **place(out))
    return out


def _sorted(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted ids as int32 (half the radix passes), and the permutation. Equal ids keep their
    order."""
    ordered, places = ids.int().sort(stable=True)
    return ordered, places


def _partial(ids: Tensor, grads: Tensor) -> Tensor:
    num_windows = -(-len(ids) // native.SUM_WINDOW)
    return grads.new_empty(2 * num_windows, grads.shape[1])


def _batch(edges: EdgeBatch) -> dict[str, Any]:
    model = edges.options.edge_model
    return {
        "operator": model.operator.functor,
        "comparator": model.comparator.functor,
        "inverse": edges.inverse,
        "entities": edges.entities,
        "relations": edges.relations,
        "ends": edges.ends,
        "relation_rows": edges.relation_rows,
        "dropout": edges.dropout,
    }
