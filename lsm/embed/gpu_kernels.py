"""Native kernels of a GPU, or their host twins, which tests call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lsm import native
from lsm.embed.options import EmbedOptions, LossName, ModelName


@dataclass(frozen=True)
class EdgeBatch:
    """Edges with both sides corrupted, and their tables. ``ends``: [2, b] int64, heads and tails;
    ``relation_rows``: [2, b] int64, of the side with tails missing and of the other side;
    ``inverse``: the other side's relations are inverted. ``kept``: dropout factors of queries [2,
    b, dim]."""

    options: EmbedOptions
    entities: Tensor
    relations: Tensor | None
    ends: Tensor
    relation_rows: Tensor | None
    inverse: bool
    kept: Tensor | None = None


def form_queries(edges: EdgeBatch, queries: Tensor, positives: Tensor) -> None:
    """Writes queries [2, b, dim] and the scores of edges [2, b]."""
    native.form_queries_on(**_batch(edges), queries=queries, positives=positives, **_place(queries))


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
        **_place(of_ends),
    )


def losses(
    loss: LossName,
    margin: float,
    shift: float,
    negatives: Tensor,
    missing: Tensor,
    scores: Tensor,
    positives: Tensor,
    out: Tensor,
) -> None:
    """Writes the losses of edges to ``out`` [c], after adding ``shift`` to all scores. Overwrites
    ``scores`` [c, k] and ``positives`` [c] with their gradients. ``negatives``: ids [chunks, k]
    int32; the c / chunks edges of a chunk share a row. The id ``missing`` [c] of an edge is left
    out."""
    chunk = max(1, -(-len(scores) // len(negatives)))
    native.losses_on(
        getattr(native.EdgeLoss, loss),
        margin,
        shift,
        chunk,
        negatives,
        missing,
        scores,
        positives,
        out,
        **_place(scores),
    )


def distances(model: ModelName, queries: Tensor, entities: Tensor, out: Tensor) -> None:
    """Writes the transe_l1 or rotate scores [g, c, k] of queries [g, c, dim] against entities [g,
    k, dim]."""
    native.distances_on(getattr(native.EdgeModel, model), queries, entities, out, **_place(out))


def distance_gradients(
    model: ModelName,
    queries: Tensor,
    entities: Tensor,
    of_scores: Tensor,
    of_queries: Tensor,
    of_entities: Tensor,
    add: bool,
) -> None:
    """Writes the gradients of queries, given those of :func:`distances`. Writes or adds those of
    entities."""
    native.distance_gradients_on(
        getattr(native.EdgeModel, model),
        queries,
        entities,
        of_scores,
        of_queries,
        of_entities,
        add,
        **_place(of_scores),
    )


def update_rows(options: EmbedOptions, rows: Tensor, ids: Tensor, grads: Tensor) -> None:
    """``lsm.embed.adagrad.update_rows``."""
    order = _sorted(ids)
    partial = _partial(ids, grads)
    native.update_rows_on(rows, *order, grads, partial, options.lr, options.eps, **_place(rows))


def sum_rows(ids: Tensor, grads: Tensor, num_rows: int) -> Tensor:
    """[num_rows, dim]: for each row, the sum of the gradients [m, dim] that have the row's id."""
    out = grads.new_zeros(num_rows, grads.shape[1])
    native.sum_rows_on(*_sorted(ids), grads, _partial(ids, grads), out, **_place(out))
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
    return {
        "model": getattr(native.EdgeModel, edges.options.model),
        "inverse": edges.inverse,
        "entities": edges.entities,
        "relations": edges.relations,
        "ends": edges.ends,
        "relation_rows": edges.relation_rows,
        "kept": edges.kept,
    }


def _place(tensor: Tensor) -> dict[str, Any]:
    """The device number, and torch's current stream on it."""
    if tensor.device.type == "cpu":
        return {"device": native.TWIN, "stream": 0}
    stream = torch.cuda.current_stream(tensor.device).cuda_stream
    return {"device": tensor.device.index, "stream": stream}
