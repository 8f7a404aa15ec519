"""The models of edges. A new one is an entry of MODELS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from lsm import native
from lsm.embed.models.comparators import Comparator, Dot, Euclidean, Manhattan, Modulus
from lsm.embed.models.operators import (
    ComplexProduct,
    ElementProduct,
    Identity,
    Operator,
    Rotation,
    Translation,
)

Kernels = Literal["host", "gpu", "fused"]
"""host: queries and gradients of a chunk in one pass each; gpu: of a whole batch; fused: scores of
negatives that are never stored."""


@dataclass(frozen=True)
class EdgeModel:
    """Scores an edge: the operator makes a query of one entity and the relation, the comparator
    scores it against the other entity. ``summary``: the score in words, for the documentation."""

    operator: Operator
    comparator: Comparator
    summary: str

    @property
    def is_complex(self) -> bool:
        """True if an embedding is of complex numbers."""
        return self.operator.is_complex or self.comparator.is_complex

    def takes(self, kernels: Kernels) -> bool:
        """True if the native ``kernels`` compute this model. Torch computes every model, on any
        device."""
        operator, comparator = self.operator.functor, self.comparator.functor
        if operator is None or comparator is None:
            return False
        if kernels == "host":
            return native.has_host_kernels(operator, comparator)
        is_fused = kernels == "gpu" or self.comparator.is_fused
        return is_fused and native.has_gpu_kernels(operator, comparator)

    def compose(self, entity: Tensor, relation: Tensor | None, inverse: bool) -> Tensor:
        """Queries [n, dim], by :meth:`Operator.compose`. ``relation``: None for a model without."""
        return entity if relation is None else self.operator.compose(entity, relation, inverse)

    def compose_backward(
        self, grad: Tensor, entity: Tensor, relation: Tensor | None, inverse: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Gradients of entities and relations, given those of the queries."""
        if relation is None:
            return grad, None
        return self.operator.backward(grad, entity, relation, inverse)


_TRILINEAR = "trilinear products"
_TRANSLATED = "distance of head plus relation to tail"

MODELS: dict[str, EdgeModel] = {
    "dot": EdgeModel(Identity(), Dot(), "product of head and tail, without relations"),
    "distmult": EdgeModel(ElementProduct(), Dot(), _TRILINEAR),
    "complex": EdgeModel(ComplexProduct(), Dot(), _TRILINEAR),
    "transe_l1": EdgeModel(Translation(), Manhattan(), _TRANSLATED),
    "transe_l2": EdgeModel(Translation(), Euclidean(), _TRANSLATED),
    "rotate": EdgeModel(
        Rotation(),
        Modulus(),
        "distance of the head, rotated by the relation, to the tail, summed over complex "
        "coordinates",
    ),
}


def default_model(num_relations: int) -> str:
    """Name of the model that suits a graph with so many relations."""
    return "complex" if num_relations else "dot"


def summaries() -> str:
    """All models in words, those of the same summary together."""
    names: dict[str, list[str]] = {}
    for name, model in MODELS.items():
        names.setdefault(model.summary, []).append(name)
    return "; ".join(f"{', '.join(named)}: {summary}" for summary, named in names.items())


def models_for(kernels: Kernels) -> list[str]:
    """Names of the models that the ``kernels`` compute."""
    return [name for name, model in MODELS.items() if model.takes(kernels)]
