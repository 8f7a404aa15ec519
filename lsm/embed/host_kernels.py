"""Native kernels of the host, for tensors that they take.

They get NumPy views: those cross into native code in 1 us, tensors of torch in 10 us.
"""

from __future__ import annotations

import functools
import os

import torch
from torch import Tensor

from lsm import native


def takes(tensor: Tensor) -> bool:
    """Whether these functions take ``tensor``: float32 in host memory. Others go through torch."""
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


def softmax_loss(positives: Tensor, negatives: Tensor) -> float:
    """The summed cross-entropy of scores [c] and [c, k], which their gradients replace."""
    return native.softmax_loss(positives.numpy(), negatives.numpy(), _pool())


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
    kind: native.Distance, grad: Tensor, queries: Tensor, entities: Tensor, of_entities: Tensor
) -> Tensor:
    """Gradients of queries, given those of the scores; writes those of entities."""
    of_queries = torch.empty_like(queries)
    native.distance_scores_backward(
        kind,
        grad.numpy(),
        queries.numpy(),
        entities.numpy(),
        of_queries.numpy(),
        of_entities.numpy(),
        _pool(),
    )
    return of_queries


def add_rows(table: Tensor, ids: Tensor, rows: Tensor) -> None:
    """table[ids[i]] += rows[i]."""
    native.add_rows(table.numpy(), ids.numpy(), rows.numpy())


def update_rows(rows: Tensor, ids: Tensor, grads: Tensor, lr: float, eps: float) -> None:
    """Adagrad, for the rows [n, width] of ``ids`` [m] with gradients [m, dim]."""
    native.update_rows(rows.numpy(), ids.numpy(), grads.numpy(), lr, eps, _pool())


def find_pairs(ids: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """All rows [p] and columns [p] with ids[column] == wanted[row]."""
    rows, columns = torch.from_numpy(native.find_pairs(ids.numpy(), wanted.numpy()))
    return rows, columns


def _pool() -> native.ThreadPool:
    """This process's threads, as many as torch has."""
    return _pool_of(torch.get_num_threads(), os.getpid())


@functools.cache
def _pool_of(num_threads: int, _process: int) -> native.ThreadPool:
    return native.ThreadPool(num_threads)
