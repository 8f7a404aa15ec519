"""Native kernels of the host, for the tensors that they accept.

They receive NumPy views, which enter native code in 1 us; tensors of torch take 10 us.
"""

from __future__ import annotations

import functools
import os
from typing import NamedTuple

import torch
from torch import Tensor

from lsm import native


def takes(tensor: Tensor) -> bool:
    """True if these functions accept ``tensor``: float32 in host memory. Others go through
    torch."""
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


def softmax_loss(positives: Tensor, negatives: Tensor) -> float:
    """The summed cross-entropy of scores [c] and [c, k]. Overwrites the scores with their
    gradients."""
    return native.softmax_loss(positives.numpy(), negatives.numpy(), _pool())


QUERIES: dict[str, native.Query] = {
    "dot": native.Query.ENTITY,
    "distmult": native.Query.ELEMENT_PRODUCT,
    "complex": native.Query.COMPLEX_PRODUCT,
}
"""Models that need one pass for queries and one for gradients."""


class EdgeRows(NamedTuple):
    """Rows [c, dim] of edges. ``entities`` and ``relations`` (None for dot) form queries, which are
    scored against ``targets``. ``inverse``: as in :class:`lsm.embed.sides.Side`."""

    model: str
    inverse: bool
    entities: Tensor
    relations: Tensor | None
    targets: Tensor


def make_queries(edges: EdgeRows, queries: Tensor, scores: Tensor) -> None:
    """Writes queries [c, dim] and their scores [c] against the targets."""
    native.make_queries(
        QUERIES[edges.model],
        edges.inverse,
        edges.entities.numpy(),
        None if edges.relations is None else edges.relations.numpy(),
        edges.targets.numpy(),
        queries.numpy(),
        scores.numpy(),
        _pool(),
    )


def query_gradients(
    edges: EdgeRows,
    queries: Tensor,
    of_scores: Tensor,
    of_queries: Tensor,
    of_entities: Tensor,
    of_targets: Tensor,
    add: bool,
) -> None:
    """Writes or adds the gradients of entities and targets [c, dim], given the gradients of scores
    and the other gradients of queries. Overwrites the latter with the gradients of relations."""
    native.query_gradients(
        QUERIES[edges.model],
        edges.inverse,
        edges.entities.numpy(),
        None if edges.relations is None else edges.relations.numpy(),
        edges.targets.numpy(),
        queries.numpy(),
        of_scores.numpy(),
        of_queries.numpy(),
        of_entities.numpy(),
        of_targets.numpy(),
        add,
        _pool(),
    )


def complex_product(a: Tensor, b: Tensor, conjugate: bool) -> Tensor:
    """a * b, or a * conj(b), of rows of complex numbers: real parts, then imaginary parts."""
    out = torch.empty_like(a)
    native.complex_product(a.numpy(), b.numpy(), out.numpy(), conjugate, _pool())
    return out


def complex_product_backward(
    grad: Tensor, a: Tensor, b: Tensor, conjugate: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of a and b, given that of their product."""
    of_a, of_b = torch.empty_like(a), torch.empty_like(b)
    native.complex_product_backward(
        grad.numpy(), a.numpy(), b.numpy(), of_a.numpy(), of_b.numpy(), conjugate, _pool()
    )
    return of_a, of_b


def distance_scores(kind: native.Distance, queries: Tensor, entities: Tensor, out: Tensor) -> None:
    """Writes negative distances [c, k] of queries [c, dim] to entities [k, dim]."""
    entities = entities.contiguous()
    native.distance_scores(kind, queries.numpy(), entities.numpy(), out.numpy(), _pool())


def distance_scores_backward(
    kind: native.Distance,
    grad: Tensor,
    queries: Tensor,
    entities: Tensor,
    of_queries: Tensor,
    of_entities: Tensor,
) -> None:
    """Writes the gradients of queries and entities, given those of the scores."""
    native.distance_scores_backward(
        kind,
        grad.numpy(),
        queries.numpy(),
        entities.numpy(),
        of_queries.numpy(),
        of_entities.numpy(),
        _pool(),
    )


def take_rows(table: Tensor, ids: Tensor, out: Tensor) -> None:
    """Writes the rows ``ids`` [m] of ``table`` [n, dim] to ``out``. The rows of ``table`` may be
    strided."""
    native.take_rows(table.numpy(), ids.numpy(), out.numpy(), _pool())


def add_rows(table: Tensor, ids: Tensor, rows: Tensor) -> None:
    """table[ids[i]] += rows[i]."""
    native.add_rows(table.numpy(), ids.numpy(), rows.numpy())


def update_rows(rows: Tensor, ids: Tensor, grads: Tensor, lr: float, eps: float) -> None:
    """Adagrad, for the rows [n, width] of ``ids`` [m] with gradients [m, dim]."""
    native.update_rows(rows.numpy(), ids.numpy(), grads.numpy(), lr, eps, _pool())


def _pool() -> native.ThreadPool:
    """The thread pool of this process, with as many threads as torch has."""
    return _pool_of(torch.get_num_threads(), os.getpid())


@functools.cache
def _pool_of(num_threads: int, _process: int) -> native.ThreadPool:
    return native.ThreadPool(num_threads)
