"""Native kernels of operators and comparators, on host and GPU."""

from __future__ import annotations

import functools
import os
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lsm import native


class ScoredRows(NamedTuple):
    """Rows of queries and entities, and the rows that take their gradients."""

    queries: Tensor
    entities: Tensor
    of_queries: Tensor
    of_entities: Tensor


def complex_product(a: Tensor, b: Tensor, conjugate: bool) -> Tensor:
    """a * b, or a * conj(b), of rows of complex numbers: real parts, then imaginary parts."""
    out = torch.empty_like(a)
    native.complex_product(a.numpy(), b.numpy(), out.numpy(), conjugate, pool())
    return out


def complex_product_backward(
    grad: Tensor, a: Tensor, b: Tensor, conjugate: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of a and b, given that of their product."""
    of_a, of_b = torch.empty_like(a), torch.empty_like(b)
    native.complex_product_backward(
        grad.numpy(), a.numpy(), b.numpy(), of_a.numpy(), of_b.numpy(), conjugate, pool()
    )
    return of_a, of_b


def distances(
    comparator: native.Comparator, queries: Tensor, entities: Tensor, out: Tensor
) -> None:
    """Writes negative distances [c, k] of queries [c, dim] to entities [k, dim]."""
    entities = entities.contiguous()
    native.distance_scores(comparator, queries.numpy(), entities.numpy(), out.numpy(), pool())


def distances_backward(comparator: native.Comparator, grad: Tensor, rows: ScoredRows) -> None:
    """Writes the gradients of queries and entities, given those of the scores."""
    native.distance_scores_backward(
        comparator,
        grad.numpy(),
        rows.queries.numpy(),
        rows.entities.numpy(),
        rows.of_queries.numpy(),
        rows.of_entities.numpy(),
        pool(),
    )


def distances_of_chunks(
    comparator: native.Comparator, queries: Tensor, entities: Tensor, out: Tensor
) -> None:
    """Writes negative distances [g, c, k] of queries [g, c, dim] to entities [g, k, dim], on a GPU
    or its twin."""
    transposed = entities.mT.contiguous()  # lanes read neighboring floats
    native.distances_on(comparator, queries, transposed, out, **place(out))


def distances_of_chunks_backward(
    comparator: native.Comparator, grad: Tensor, rows: ScoredRows, add: bool
) -> None:
    """Writes the gradients of queries, given those of the scores. Writes or adds those of
    entities."""
    native.distance_gradients_on(
        comparator,
        rows.queries,
        rows.entities,
        grad,
        rows.of_queries,
        rows.of_entities,
        add,
        **place(grad),
    )


def place(tensor: Tensor) -> dict[str, Any]:
    """The device number, and torch's current stream on it; the twin's for a tensor of the host."""
    if tensor.device.type == "cpu":
        return {"device": native.TWIN, "stream": 0}
    stream = torch.cuda.current_stream(tensor.device).cuda_stream
    return {"device": tensor.device.index, "stream": stream}


def takes(tensor: Tensor) -> bool:
    """True if kernels of the host accept ``tensor``: float32 in host memory. Others go through
    torch."""
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


def pool() -> native.ThreadPool:
    """The thread pool of this process, with as many threads as torch has."""
    return _pool_of(torch.get_num_threads(), os.getpid())


@functools.cache
def _pool_of(num_threads: int, _process: int) -> native.ThreadPool:
    return native.ThreadPool(num_threads)
