"""Native kernels of the host, for the tensors that ``models.kernels.takes`` accepts.

They receive NumPy views, which enter native code in 1 us; tensors of torch take 10 us.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from lsm import native
from lsm.embed.models.kernels import pool


def softmax_loss(positives: Tensor, negatives: Tensor) -> float:
    """The summed cross-entropy of scores [c] and [c, k]. Overwrites the scores with their
    gradients."""
    return native.softmax_loss(positives.numpy(), negatives.numpy(), pool())


class EdgeRows(NamedTuple):
    """Rows [c, dim] of edges. ``entities`` and ``relations`` (None for the identity) form queries,
    which inner products score against ``targets``. ``inverse``: as in
    :class:`lsm.embed.sides.Side`."""

    operator: native.Operator
    inverse: bool
    entities: Tensor
    relations: Tensor | None
    targets: Tensor

    def arguments(
        self,
    ) -> tuple[native.Operator, bool, np.ndarray, np.ndarray | None, np.ndarray]:
        """The fields, as native code takes them."""
        relations = None if self.relations is None else self.relations.numpy()
        entities, targets = self.entities.numpy(), self.targets.numpy()
        return self.operator, self.inverse, entities, relations, targets


def make_queries(edges: EdgeRows, queries: Tensor, scores: Tensor) -> None:
    """Writes queries [c, dim] and their scores [c] against the targets."""
    native.make_queries(*edges.arguments(), queries.numpy(), scores.numpy(), pool())


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
        *edges.arguments(),
        queries.numpy(),
        of_scores.numpy(),
        of_queries.numpy(),
        of_entities.numpy(),
        of_targets.numpy(),
        add,
        pool(),
    )


def gather_rows(table: Tensor, ids: Tensor, out: Tensor) -> None:
    """Writes the rows ``ids`` [m] of ``table`` [n, dim] to ``out``. The rows of ``table`` may be
    strided."""
    native.gather_embeddings(table.numpy(), ids.numpy(), out.numpy(), pool())


def add_rows(table: Tensor, ids: Tensor, rows: Tensor) -> None:
    """table[ids[i]] += rows[i]."""
    native.add_rows(table.numpy(), ids.numpy(), rows.numpy())


def update_rows(rows: Tensor, ids: Tensor, grads: Tensor, lr: float, eps: float) -> None:
    """Adagrad, for the rows [n, width] of ``ids`` [m] with gradients [m, dim]."""
    native.update_rows(rows.numpy(), ids.numpy(), grads.numpy(), lr, eps, pool())
