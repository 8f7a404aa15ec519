"""Scores of queries against entities, and their gradients."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from lsm.embed.options import ModelName

BLOCK_BYTES = 8 << 20


class Scores(Protocol):
    """Scores of query rows [c, dim] against entity rows. Higher is likelier."""

    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        """[c]: of each query with the entity [c, dim] of the same row."""
        ...

    def of_pairs_backward(
        self, grad: Tensor, queries: Tensor, entities: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of queries and entities, given those of :meth:`of_pairs`."""
        ...

    def of_all(self, queries: Tensor, entities: Tensor) -> Tensor:
        """[c, k]: of each query with each of the entities [k, dim]."""
        ...

    def of_all_backward(
        self, grad: Tensor, queries: Tensor, entities: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of queries and entities, given those of :meth:`of_all`."""
        ...


class DotScores:
    """Inner products, in two matrix products of the backward pass."""

    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        return torch.linalg.vecdot(queries, entities)

    def of_pairs_backward(
        self, grad: Tensor, queries: Tensor, entities: Tensor
    ) -> tuple[Tensor, Tensor]:
        return grad[:, None] * entities, grad[:, None] * queries

    def of_all(self, queries: Tensor, entities: Tensor) -> Tensor:
        return queries @ entities.T

    def of_all_backward(
        self, grad: Tensor, queries: Tensor, entities: Tensor
    ) -> tuple[Tensor, Tensor]:
        return grad @ entities, grad.T @ queries


class EuclideanScores:
    """Negative Euclidean distances, by matrix products: |q|^2 + |e|^2 - 2 q e. float32 loses the
    distance of two rows nearer than a thousandth of their length; such pairs get no gradient."""

    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        return -torch.linalg.vector_norm(queries - entities, dim=-1)

    def of_pairs_backward(
        self, grad: Tensor, queries: Tensor, entities: Tensor
    ) -> tuple[Tensor, Tensor]:
        difference = queries - entities
        distance = torch.linalg.vector_norm(difference, dim=-1)
        of_entities = difference * _quotient(grad, distance)[:, None]
        return -of_entities, of_entities

    def of_all(self, queries: Tensor, entities: Tensor) -> Tensor:
        return _distances(queries, entities).neg_()

    def of_all_backward(
        self, grad: Tensor, queries: Tensor, entities: Tensor
    ) -> tuple[Tensor, Tensor]:
        ratio = _quotient(grad, _distances(queries, entities))
        of_queries = (ratio @ entities).addcmul_(queries, ratio.sum(1, keepdim=True), value=-1)
        of_entities = (ratio.T @ queries).addcmul_(entities, ratio.sum(0)[:, None], value=-1)
        return of_queries, of_entities


class ManhattanScores:
    """Negative sums of absolute differences. No matrix product computes them."""

    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        return -(queries - entities).abs_().sum(-1)

    def of_pairs_backward(
        self, grad: Tensor, queries: Tensor, entities: Tensor
    ) -> tuple[Tensor, Tensor]:
        of_entities = (queries - entities).sign_() * grad[..., None]
        return -of_entities, of_entities

    def of_all(self, queries: Tensor, entities: Tensor) -> Tensor:
        return torch.cdist(queries, entities, p=1).neg_()

    def of_all_backward(
        self, grad: Tensor, queries: Tensor, entities: Tensor
    ) -> tuple[Tensor, Tensor]:
        return _backward_in_blocks(self, grad, queries, entities)


class ModulusScores:
    """Negative sums of the moduli of complex differences. No matrix product computes them."""

    def of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        real, imaginary = (queries - entities).chunk(2, -1)
        return -real.hypot(imaginary).sum(-1)

    def of_pairs_backward(
        self, grad: Tensor, queries: Tensor, entities: Tensor
    ) -> tuple[Tensor, Tensor]:
        difference = queries - entities
        real, imaginary = difference.chunk(2, -1)
        factor = _quotient(grad[..., None], real.hypot(imaginary))
        of_entities = torch.cat((real * factor, imaginary * factor), -1)
        return -of_entities, of_entities

    def of_all(self, queries: Tensor, entities: Tensor) -> Tensor:
        out = queries.new_empty(len(queries), len(entities))
        for rows in _blocks(queries, entities):
            out[rows] = self.of_pairs(queries[rows, None], entities)
        return out

    def of_all_backward(
        self, grad: Tensor, queries: Tensor, entities: Tensor
    ) -> tuple[Tensor, Tensor]:
        return _backward_in_blocks(self, grad, queries, entities)


def scores_of(model: ModelName) -> Scores:
    """How the model scores the queries of ``lsm.embed.composition``."""
    if model == "transe_l2":
        return EuclideanScores()
    if model == "transe_l1":
        return ManhattanScores()
    return ModulusScores() if model == "rotate" else DotScores()


def _distances(queries: Tensor, entities: Tensor) -> Tensor:
    squares = entities.square().sum(1) + queries.square().sum(1, keepdim=True)
    # Differences of squares below their rounding error count as equal rows.
    squares.addmm_(queries, entities.T, alpha=-2)
    return squares.clamp_(min=0).sqrt_()


def _quotient(grad: Tensor, distance: Tensor) -> Tensor:
    """grad / distance, 0 where the distance is 0: a subgradient."""
    return torch.where(distance > 0, grad / distance, 0)


def _blocks(queries: Tensor, entities: Tensor) -> list[slice]:
    """Rows of queries whose differences from all entities take BLOCK_BYTES."""
    size = max(1, BLOCK_BYTES // max(1, entities.nbytes))
    return [slice(first, first + size) for first in range(0, len(queries), size)]


def _backward_in_blocks(
    scores: Scores, grad: Tensor, queries: Tensor, entities: Tensor
) -> tuple[Tensor, Tensor]:
    of_queries, of_entities = torch.empty_like(queries), torch.zeros_like(entities)
    for rows in _blocks(queries, entities):
        of_query, of_entity = scores.of_pairs_backward(grad[rows], queries[rows, None], entities)
        of_queries[rows] = of_query.sum(1)
        of_entities += of_entity.sum(0)
    return of_queries, of_entities
