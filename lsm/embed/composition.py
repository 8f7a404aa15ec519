"""Combines an entity and a relation into a query, which the model scores against entities."""

from __future__ import annotations

import torch
from torch import Tensor

from lsm.embed import host_kernels
from lsm.embed.options import ModelName


def compose(model: ModelName, entity: Tensor, relation: Tensor | None, inverse: bool) -> Tensor:
    """Queries [n, dim] of heads and relations, to score against tails. With ``inverse``: queries of
    tails and relations, to score against heads. ``relation``: [n, dim]; None for dot.

    rotate divides the relation's complex numbers by their moduli, where RotatE stores phases. A
    relation of rotate therefore has as many floats as an entity.
    """
    if relation is None or model == "dot":
        return entity
    if model == "distmult":
        return entity * relation
    if model in ("transe_l1", "transe_l2"):
        return entity - relation if inverse else entity + relation
    if model == "rotate":
        relation, _ = _normalised(relation)
    return _product(entity, relation, conjugate=inverse)


def compose_backward(
    model: ModelName, grad: Tensor, entity: Tensor, relation: Tensor | None, inverse: bool
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the entities and relations of :func:`compose`, given those of the queries."""
    if relation is None or model == "dot":
        return grad, None
    if model == "distmult":
        return grad * relation, grad * entity
    if model in ("transe_l1", "transe_l2"):
        return grad, -grad if inverse else grad.clone()
    if model == "complex":
        return _product_backward(grad, entity, relation, inverse)
    unit, modulus = _normalised(relation)
    of_entity, of_unit = _product_backward(grad, entity, unit, inverse)
    # Only the component of the gradient orthogonal to the relation turns it.
    real, imaginary = (unit * of_unit).chunk(2, -1)
    along = (real + imaginary).repeat(1, 2)
    return of_entity, (of_unit - unit * along) / modulus


def _normalised(relation: Tensor) -> tuple[Tensor, Tensor]:
    """Complex numbers scaled to modulus 1, and the moduli, repeated for both halves."""
    real, imaginary = relation.chunk(2, -1)
    tiny = torch.finfo(relation.dtype).tiny
    modulus = real.hypot(imaginary).clamp_(min=tiny).repeat(1, 2)
    return relation / modulus, modulus


def _product(a: Tensor, b: Tensor, conjugate: bool) -> Tensor:
    """Complex a * b, or a * conj(b)."""
    if host_kernels.takes(a):
        return host_kernels.complex_product(a, b, conjugate)
    (a_re, a_im), (b_re, b_im) = a.chunk(2, -1), b.chunk(2, -1)
    if conjugate:
        return torch.cat((a_re * b_re + a_im * b_im, a_im * b_re - a_re * b_im), -1)
    return torch.cat((a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re), -1)


def _product_backward(grad: Tensor, a: Tensor, b: Tensor, conjugate: bool) -> tuple[Tensor, Tensor]:
    """Gradients of a and b, given that of :func:`_product`."""
    if host_kernels.takes(a):
        return host_kernels.complex_product_backward(grad, a, b, conjugate)
    of_a = _product(grad, b, conjugate=not conjugate)
    of_b = _product(a, grad, conjugate=True) if conjugate else _product(grad, a, conjugate=True)
    return of_a, of_b
