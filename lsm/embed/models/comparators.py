"""Comparators: each scores queries against entities. Higher is likelier.

A new comparator is a class with :meth:`Comparator.of_pairs`. It trains with gradients of autograd,
on any device; a functor of its name in ``kernels/embed/models_functors.h`` makes it faster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from lsm import native
from lsm.embed.models.kernels import ScoredRows, on_host, place, takes

BLOCK_BYTES = 8 << 20


class Comparator(ABC):
    """Scores of query rows [c, dim] against entity rows."""

    functor: ClassVar[native.Comparator | None] = None
    """The functor of the same formula; None: there is none."""
    is_complex: ClassVar[bool] = False
    """True if rows are complex numbers: first all real parts, then all imaginary parts."""
    is_distance: ClassVar[bool] = True
    """True if scores are negative distances, which do not grow with the embeddings."""
    is_fused: ClassVar[bool] = False
    """True if ``lsm.embed.gradients.fused_softmax`` computes it."""

    @abstractmethod
    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        """[c]: of each query with the entity [c, dim] of the same row. Rows may broadcast, as
        [c, 1, dim] with [k, dim], unless a subclass has its own :meth:`of_all`."""

    def of_pairs_backward(self, grad: Tensor, rows: ScoredRows) -> None:
        """Adds to the gradients of queries and entities [c, dim], given those of
        :meth:`of_pairs`."""
        by_queries, by_entities = self._pulls(grad, rows.queries, rows.entities)
        rows.of_queries.add_(by_queries)
        rows.of_entities.add_(by_entities)

    def of_all(self, queries: Tensor, entities: Tensor, out: Tensor) -> None:
        """Writes to ``out`` [c, k]: of each query with each of the entities [k, dim]. With kernels
        for a GPU also of several chunks at once: queries [g, c, dim], entities [g, k, dim], scores
        [g, c, k]."""
        for rows in _blocks(queries, entities):
            out[rows] = self.of_pairs(queries[rows, None], entities)

    def save(self, scores: Tensor) -> Tensor | None:
        """The part of the scores that the backward pass needs; call before the loss overwrites
        them."""
        return None

    def of_all_backward(
        self, grad: Tensor, saved: Tensor | None, rows: ScoredRows, add: bool
    ) -> None:
        """Writes the gradients of queries, given those of :meth:`of_all`; writes those of entities,
        or adds them. May overwrite ``grad``. ``saved``: by :meth:`save`."""
        queries, entities, of_queries, of_entities = rows
        if not add:
            of_entities.zero_()
        for block in _blocks(queries, entities):
            by_queries, by_entities = self._pulls(grad[block], queries[block, None], entities)
            of_queries[block] = by_queries[:, 0]
            of_entities += by_entities

    def magnitude(self, queries: Tensor, entities: Tensor) -> Tensor:
        """[c]: a bound of the terms that a score of rows [c, dim] sums; rounding grows with it."""
        return queries.norm(dim=1) + entities.norm(dim=1)

    def _pulls(self, grad: Tensor, queries: Tensor, entities: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of queries and entities, each of its shape, given those of the scores of
        pairs."""
        with torch.enable_grad():
            leaves = queries.detach().requires_grad_(), entities.detach().requires_grad_()
            scores = self.of_pairs(*leaves)
        by_queries, by_entities = torch.autograd.grad(scores, leaves, grad)
        return by_queries, by_entities


class Dot(Comparator):
    """Inner products: three matrix products with the backward pass."""

    functor = native.Comparator.DOT
    is_distance = False
    is_fused = True

    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        return torch.linalg.vecdot(queries, entities)

    def of_pairs_backward(self, grad: Tensor, rows: ScoredRows) -> None:
        rows.of_queries.addcmul_(rows.entities, grad[:, None])
        rows.of_entities.addcmul_(rows.queries, grad[:, None])

    def of_all(self, queries: Tensor, entities: Tensor, out: Tensor) -> None:
        _multiply(out, queries, entities.mT)

    def of_all_backward(
        self, grad: Tensor, saved: Tensor | None, rows: ScoredRows, add: bool
    ) -> None:
        _multiply(rows.of_entities, grad.mT, rows.queries, add)
        _multiply(rows.of_queries, grad, rows.entities)

    def magnitude(self, queries: Tensor, entities: Tensor) -> Tensor:
        return queries.norm(dim=1) * entities.norm(dim=1)


class Euclidean(Comparator):
    """Negative Euclidean distances, by matrix products: |q|^2 + |e|^2 - 2 q e. float32 loses the
    distance of two rows nearer than a thousandth of their length."""

    functor = native.Comparator.EUCLIDEAN
    is_fused = True

    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        return -torch.linalg.vector_norm(queries - entities, dim=-1)

    def of_pairs_backward(self, grad: Tensor, rows: ScoredRows) -> None:
        difference = rows.queries - rows.entities
        distance = torch.linalg.vector_norm(difference, dim=-1)
        difference *= _quotient(grad, distance)[:, None]
        rows.of_queries.sub_(difference)
        rows.of_entities.add_(difference)

    def of_all(self, queries: Tensor, entities: Tensor, out: Tensor) -> None:
        squares = entities.square().sum(-1)[..., None, :]
        torch.add(squares, queries.square().sum(-1, keepdim=True), out=out)
        _multiply(out, queries, entities.mT, add=True, factor=-2)
        out.clamp_(min=0).sqrt_().neg_()

    def save(self, scores: Tensor) -> Tensor | None:
        """Distances."""
        return -scores

    def of_all_backward(
        self, grad: Tensor, saved: Tensor | None, rows: ScoredRows, add: bool
    ) -> None:
        assert saved is not None
        queries, entities, of_queries, of_entities = rows
        ratio = _quotient(grad, saved)
        _multiply(of_entities, ratio.mT, queries, add)
        of_entities.addcmul_(entities, ratio.sum(-2)[..., None], value=-1)
        _multiply(of_queries, ratio, entities)
        of_queries.addcmul_(queries, ratio.sum(-1, keepdim=True), value=-1)


class _Elementwise(Comparator):
    """Negative distances that no matrix product computes, in kernels for host and GPU. Torch
    computes rows of other types."""

    functor: ClassVar[native.Comparator]

    @abstractmethod
    def pull(self, grad: Tensor, queries: Tensor, entities: Tensor) -> Tensor:
        """Gradients of entities, given those of pairs; their negation is that of queries."""

    def of_pairs_backward(self, grad: Tensor, rows: ScoredRows) -> None:
        pull = self.pull(grad, rows.queries, rows.entities)
        rows.of_queries.sub_(pull)
        rows.of_entities.add_(pull)

    def of_all(self, queries: Tensor, entities: Tensor, out: Tensor) -> None:
        if queries.ndim == 3:
            transposed = entities.mT.contiguous()  # lanes read neighboring floats
            native.distances_on(self.functor, queries, transposed, out, **place(out))
        elif takes(queries):
            on_host(native.distance_scores, self.functor, queries, entities.contiguous(), out)
        else:
            super().of_all(queries, entities, out)

    def of_all_backward(
        self, grad: Tensor, saved: Tensor | None, rows: ScoredRows, add: bool
    ) -> None:
        queries, entities, of_queries, of_entities = rows
        if queries.ndim == 3:
            native.distance_gradients_on(
                *(self.functor, queries, entities, grad, of_queries, of_entities, add),
                **place(grad),
            )
        elif takes(queries):
            out = torch.empty_like(of_entities) if add else of_entities
            on_host(
                native.distance_scores_backward,
                *(self.functor, grad, queries, entities, of_queries, out),
            )
            if add:
                of_entities.add_(out)
        else:
            super().of_all_backward(grad, saved, rows, add)

    def _pulls(self, grad: Tensor, queries: Tensor, entities: Tensor) -> tuple[Tensor, Tensor]:
        pull = self.pull(grad, queries, entities)
        return -pull.sum(1, keepdim=True), pull.sum(0)


class Manhattan(_Elementwise):
    """Negative sums of absolute differences."""

    functor = native.Comparator.MANHATTAN

    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        return -(queries - entities).abs_().sum(-1)

    def pull(self, grad: Tensor, queries: Tensor, entities: Tensor) -> Tensor:
        return (queries - entities).sign_() * grad[..., None]


class Modulus(_Elementwise):
    """Negative sums of the moduli of complex differences."""

    functor = native.Comparator.MODULUS
    is_complex = True

    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        real, imaginary = (queries - entities).chunk(2, -1)
        return -real.hypot(imaginary).sum(-1)

    def pull(self, grad: Tensor, queries: Tensor, entities: Tensor) -> Tensor:
        real, imaginary = (queries - entities).chunk(2, -1)
        factor = _quotient(grad[..., None], real.hypot(imaginary))
        return torch.cat((real * factor, imaginary * factor), -1)


def _multiply(out: Tensor, a: Tensor, b: Tensor, add: bool = False, factor: float = 1) -> None:
    """Writes factor * a @ b to ``out``, or adds it; of matrices, or of a batch of them."""
    product = torch.addmm if out.ndim == 2 else torch.baddbmm
    product(out, a, b, beta=int(add), alpha=factor, out=out)


def _quotient(grad: Tensor, distance: Tensor) -> Tensor:
    """grad / distance, and 0 where the distance is 0: a subgradient."""
    return torch.where(distance > 0, grad / distance, 0)


def _blocks(queries: Tensor, entities: Tensor) -> Iterator[slice]:
    """Rows of queries whose differences from all entities take BLOCK_BYTES."""
    size = max(1, BLOCK_BYTES // max(1, entities.nbytes))
    for first in range(0, len(queries), size):
        yield slice(first, first + size)
