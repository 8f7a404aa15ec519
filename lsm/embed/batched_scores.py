"""Scores of chunks of queries against the negatives of each chunk, by batched matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lsm.embed import gpu_kernels
from lsm.embed.options import ModelName


@dataclass
class KeptScores:
    """``scores`` [g, c, k], which a loss replaces by their gradient; ``distances``: [g, c, k] if
    the way back needs them."""

    scores: Tensor
    distances: Tensor | None = None


class BatchedScores(Protocol):
    """Scores of queries [g, c, dim] against entities [g, k, dim]. Higher is likelier."""

    def of_all(self, queries: Tensor, entities: Tensor) -> KeptScores: ...

    def of_all_backward(
        self,
        kept: KeptScores,
        queries: Tensor,
        entities: Tensor,
        of_queries: Tensor,
        of_entities: Tensor,
        add: bool,
    ) -> None:
        """Writes the gradients of queries, and those of entities or adds to them."""
        ...


class DotScores:
    """Inner products."""

    def of_all(self, queries: Tensor, entities: Tensor) -> KeptScores:
        return KeptScores(torch.bmm(queries, entities.mT))

    def of_all_backward(
        self,
        kept: KeptScores,
        queries: Tensor,
        entities: Tensor,
        of_queries: Tensor,
        of_entities: Tensor,
        add: bool,
    ) -> None:
        torch.bmm(kept.scores, entities, out=of_queries)
        _add_product(of_entities, kept.scores.mT, queries, add)


class EuclideanScores:
    """Negative Euclidean distances: |q|^2 + |e|^2 - 2 q e, as in ``lsm.embed.scores``."""

    def of_all(self, queries: Tensor, entities: Tensor) -> KeptScores:
        squares = entities.square().sum(2)[:, None] + queries.square().sum(2, keepdim=True)
        distances = squares.baddbmm_(queries, entities.mT, alpha=-2).clamp_(min=0).sqrt_()
        return KeptScores(-distances, distances)

    def of_all_backward(
        self,
        kept: KeptScores,
        queries: Tensor,
        entities: Tensor,
        of_queries: Tensor,
        of_entities: Tensor,
        add: bool,
    ) -> None:
        assert kept.distances is not None
        ratio = torch.where(kept.distances > 0, kept.scores / kept.distances, 0)
        _add_product(of_entities, ratio.mT, queries, add)
        of_entities.addcmul_(entities, ratio.sum(1)[..., None], value=-1)
        torch.bmm(ratio, entities, out=of_queries)
        of_queries.addcmul_(queries, ratio.sum(2)[..., None], value=-1)


class ElementScores:
    """Distances that no matrix product computes: transe_l1, rotate."""

    def __init__(self, model: ModelName) -> None:
        self._model = model

    def of_all(self, queries: Tensor, entities: Tensor) -> KeptScores:
        out = queries.new_empty(*queries.shape[:2], entities.shape[1])
        gpu_kernels.distances(self._model, queries, entities, out)
        return KeptScores(out)

    def of_all_backward(
        self,
        kept: KeptScores,
        queries: Tensor,
        entities: Tensor,
        of_queries: Tensor,
        of_entities: Tensor,
        add: bool,
    ) -> None:
        gpu_kernels.distance_gradients(
            self._model, queries, entities, kept.scores, of_queries, of_entities, add
        )


def batched_scores(model: ModelName) -> BatchedScores:
    """As ``lsm.embed.scores.scores_of``."""
    if model == "transe_l2":
        return EuclideanScores()
    return ElementScores(model) if model in ("transe_l1", "rotate") else DotScores()


def _add_product(out: Tensor, a: Tensor, b: Tensor, add: bool) -> None:
    """Writes a @ b to ``out``, or adds it."""
    if add:
        out.baddbmm_(a, b)
    else:
        torch.bmm(a, b, out=out)
