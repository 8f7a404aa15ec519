"""Scores of queries against entities, and their gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor

from lsm import native
from lsm.embed import gpu_kernels, host_kernels
from lsm.embed.options import ModelName

BLOCK_BYTES = 8 << 20


class Scores(Protocol):
    """Scores of query rows [c, dim] against entity rows. Higher is likelier."""

    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        """[c]: of each query with the entity [c, dim] of the same row."""
        ...

    def of_pairs_backward(
        self,
        grad: Tensor,
        queries: Tensor,
        entities: Tensor,
        of_queries: Tensor,
        of_entities: Tensor,
    ) -> None:
        """Adds to the gradients of queries and entities [c, dim], given those of
        :meth:`of_pairs`."""
        ...

    def of_all(self, queries: Tensor, entities: Tensor, out: Tensor) -> None:
        """Writes to ``out`` [c, k]: of each query with each of the entities [k, dim]. A GPU takes
        several chunks at once: queries [g, c, dim], entities [g, k, dim], scores [g, c, k]."""
        ...

    def keep(self, scores: Tensor) -> Tensor | None:
        """Saves what the backward pass needs of the scores; call before the loss overwrites
        them."""
        ...

    def of_all_backward(
        self,
        grad: Tensor,
        kept: Tensor | None,
        queries: Tensor,
        entities: Tensor,
        of_queries: Tensor,
        of_entities: Tensor,
        add: bool,
    ) -> None:
        """Writes the gradients of queries, given those of :meth:`of_all`; writes those of entities,
        or adds them. May overwrite ``grad``. ``kept``: by :meth:`keep`."""
        ...


class DotScores:
    """Inner products: three matrix products with the backward pass."""

    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        return torch.linalg.vecdot(queries, entities)

    def of_pairs_backward(
        self,
        grad: Tensor,
        queries: Tensor,
        entities: Tensor,
        of_queries: Tensor,
        of_entities: Tensor,
    ) -> None:
        of_queries.addcmul_(entities, grad[:, None])
        of_entities.addcmul_(queries, grad[:, None])

    def of_all(self, queries: Tensor, entities: Tensor, out: Tensor) -> None:
        _multiply(out, queries, entities.mT)

    def keep(self, scores: Tensor) -> Tensor | None:
        return None

    def of_all_backward(
        self,
        grad: Tensor,
        kept: Tensor | None,
        queries: Tensor,
        entities: Tensor,
        of_queries: Tensor,
        of_entities: Tensor,
        add: bool,
    ) -> None:
        _multiply(of_entities, grad.mT, queries, add)
        _multiply(of_queries, grad, entities)


class EuclideanScores:
    """Negative Euclidean distances, by matrix products: |q|^2 + |e|^2 - 2 q e. float32 loses the
    distance of two rows nearer than a thousandth of their length."""

    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        return -torch.linalg.vector_norm(queries - entities, dim=-1)

    def of_pairs_backward(
        self,
        grad: Tensor,
        queries: Tensor,
        entities: Tensor,
        of_queries: Tensor,
        of_entities: Tensor,
    ) -> None:
        difference = queries - entities
        distance = torch.linalg.vector_norm(difference, dim=-1)
        difference *= _quotient(grad, distance)[:, None]
        of_queries -= difference
        of_entities += difference

    def of_all(self, queries: Tensor, entities: Tensor, out: Tensor) -> None:
        squares = entities.square().sum(-1)[..., None, :]
        torch.add(squares, queries.square().sum(-1, keepdim=True), out=out)
        _multiply(out, queries, entities.mT, add=True, factor=-2)
        out.clamp_(min=0).sqrt_().neg_()

    def keep(self, scores: Tensor) -> Tensor | None:
        """Distances."""
        return -scores

    def of_all_backward(
        self,
        grad: Tensor,
        kept: Tensor | None,
        queries: Tensor,
        entities: Tensor,
        of_queries: Tensor,
        of_entities: Tensor,
        add: bool,
    ) -> None:
        assert kept is not None
        ratio = _quotient(grad, kept)
        _multiply(of_entities, ratio.mT, queries, add)
        of_entities.addcmul_(entities, ratio.sum(-2)[..., None], value=-1)
        _multiply(of_queries, ratio, entities)
        of_queries.addcmul_(queries, ratio.sum(-1, keepdim=True), value=-1)


class _ElementScores(ABC):
    """Negative distances that no matrix product computes. Chunks go to a GPU's kernels."""

    model: ModelName
    kind: native.Distance

    @abstractmethod
    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        """As in Scores, also of rows that broadcast."""

    @abstractmethod
    def pull(self, grad: Tensor, queries: Tensor, entities: Tensor) -> Tensor:
        """Gradients of entities, given those of pairs; their negation is that of queries."""

    def of_pairs_backward(
        self,
        grad: Tensor,
        queries: Tensor,
        entities: Tensor,
        of_queries: Tensor,
        of_entities: Tensor,
    ) -> None:
        pull = self.pull(grad, queries, entities)
        of_queries -= pull
        of_entities += pull

    def of_all(self, queries: Tensor, entities: Tensor, out: Tensor) -> None:
        if queries.ndim == 3:
            gpu_kernels.distances(self.model, queries, entities, out)
            return
        if host_kernels.takes(queries):
            host_kernels.distance_scores(self.kind, queries, entities, out)
            return
        for rows in _blocks(queries, entities):
            out[rows] = self.of_pairs(queries[rows, None], entities)

    def keep(self, scores: Tensor) -> Tensor | None:
        return None

    def of_all_backward(
        self,
        grad: Tensor,
        kept: Tensor | None,
        queries: Tensor,
        entities: Tensor,
        of_queries: Tensor,
        of_entities: Tensor,
        add: bool,
    ) -> None:
        if queries.ndim == 3:
            gpu_kernels.distance_gradients(
                self.model, queries, entities, grad, of_queries, of_entities, add
            )
            return
        if host_kernels.takes(queries):
            out = torch.empty_like(of_entities) if add else of_entities
            host_kernels.distance_scores_backward(
                self.kind, grad, queries, entities, of_queries, out
            )
            if add:
                of_entities += out
            return
        if not add:
            of_entities.zero_()
        for rows in _blocks(queries, entities):
            pull = self.pull(grad[rows], queries[rows, None], entities)
            of_queries[rows] = -pull.sum(1)
            of_entities += pull.sum(0)


class ManhattanScores(_ElementScores):
    """Negative sums of absolute differences."""

    model = "transe_l1"
    kind = native.Distance.MANHATTAN

    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        return -(queries - entities).abs_().sum(-1)

    def pull(self, grad: Tensor, queries: Tensor, entities: Tensor) -> Tensor:
        return (queries - entities).sign_() * grad[..., None]


class ModulusScores(_ElementScores):
    """Negative sums of the moduli of complex differences."""

    model = "rotate"
    kind = native.Distance.MODULUS

    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        real, imaginary = (queries - entities).chunk(2, -1)
        return -real.hypot(imaginary).sum(-1)

    def pull(self, grad: Tensor, queries: Tensor, entities: Tensor) -> Tensor:
        real, imaginary = (queries - entities).chunk(2, -1)
        factor = _quotient(grad[..., None], real.hypot(imaginary))
        return torch.cat((real * factor, imaginary * factor), -1)


def scores_of(model: ModelName) -> Scores:
    """The scoring of the model, for queries of ``lsm.embed.composition``."""
    if model == "transe_l2":
        return EuclideanScores()
    if model == "transe_l1":
        return ManhattanScores()
    return ModulusScores() if model == "rotate" else DotScores()


def _multiply(out: Tensor, a: Tensor, b: Tensor, add: bool = False, factor: float = 1) -> None:
    """Writes factor * a @ b to ``out``, or adds it; of matrices, or of a batch of them."""
    product = torch.addmm if out.ndim == 2 else torch.baddbmm
    product(out, a, b, beta=int(add), alpha=factor, out=out)


def _quotient(grad: Tensor, distance: Tensor) -> Tensor:
    """grad / distance, and 0 where the distance is 0: a subgradient."""
    return torch.where(distance > 0, grad / distance, 0)


def _blocks(queries: Tensor, entities: Tensor) -> list[slice]:
    """Rows of queries whose differences from all entities take BLOCK_BYTES."""
    size = max(1, BLOCK_BYTES // max(1, entities.nbytes))
    return [slice(first, first + size) for first in range(0, len(queries), size)]
