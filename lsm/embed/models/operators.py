"""Operators: each combines an entity and a relation into a query, to be scored by a comparator.

A new operator is a class with :meth:`Operator.compose`. It trains with gradients of autograd, on
any device; with a functor of its name in ``kernels/embed/models_functors.h`` also in the kernels of
a GPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from lsm import native
from lsm.embed.models.kernels import on_host, takes

Pair = tuple[Tensor, Tensor]
"""Gradients of entities and relations, or of two factors."""


class Operator(ABC):
    """Queries of entities and relations, [n, dim] each."""

    functor: ClassVar[native.Operator | None] = None
    """The functor of the same formula; None: there is none."""
    has_relations: ClassVar[bool] = True
    is_complex: ClassVar[bool] = False
    """True if rows are complex numbers: first all real parts, then all imaginary parts."""

    @abstractmethod
    def compose(self, entity: Tensor, relation: Tensor, inverse: bool) -> Tensor:
        """Queries of heads and relations, to score against tails. With ``inverse``: queries of
        tails and relations, to score against heads. Leaves its arguments as they are."""

    def backward(self, grad: Tensor, entity: Tensor, relation: Tensor, inverse: bool) -> Pair:
        """Gradients of entities and relations, given those of the queries."""
        with torch.enable_grad():
            leaves = entity.detach().requires_grad_(), relation.detach().requires_grad_()
            queries = self.compose(leaves[0], leaves[1], inverse)
        of_entity, of_relation = torch.autograd.grad(queries, leaves, grad)
        return of_entity, of_relation


class Identity(Operator):
    """The entity itself."""

    functor = native.Operator.IDENTITY
    has_relations = False

    def compose(self, entity: Tensor, relation: Tensor, inverse: bool) -> Tensor:
        return entity


class ElementProduct(Operator):
    """Entity times relation, float by float."""

    functor = native.Operator.ELEMENT_PRODUCT

    def compose(self, entity: Tensor, relation: Tensor, inverse: bool) -> Tensor:
        return entity * relation

    def backward(self, grad: Tensor, entity: Tensor, relation: Tensor, inverse: bool) -> Pair:
        return grad * relation, grad * entity


class Translation(Operator):
    """Entity plus relation."""

    functor = native.Operator.TRANSLATION

    def compose(self, entity: Tensor, relation: Tensor, inverse: bool) -> Tensor:
        return entity - relation if inverse else entity + relation

    def backward(self, grad: Tensor, entity: Tensor, relation: Tensor, inverse: bool) -> Pair:
        return grad, -grad if inverse else grad.clone()


class ComplexProduct(Operator):
    """Entity times relation, as complex numbers; with ``inverse``, times its conjugate."""

    functor = native.Operator.COMPLEX_PRODUCT
    is_complex = True

    def compose(self, entity: Tensor, relation: Tensor, inverse: bool) -> Tensor:
        return _product(entity, relation, conjugate=inverse)

    def backward(self, grad: Tensor, entity: Tensor, relation: Tensor, inverse: bool) -> Pair:
        return _product_backward(grad, entity, relation, inverse)


class Rotation(Operator):
    """The entity, rotated by the relation.

    The relation's complex numbers are divided by their moduli, where RotatE (Sun et al., 2019)
    stores phases. A relation therefore has as many floats as an entity.
    """

    functor = native.Operator.ROTATION
    is_complex = True

    def compose(self, entity: Tensor, relation: Tensor, inverse: bool) -> Tensor:
        unit, _ = _normalised(relation)
        return _product(entity, unit, conjugate=inverse)

    def backward(self, grad: Tensor, entity: Tensor, relation: Tensor, inverse: bool) -> Pair:
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
    """Complex a * b, or a * conj(b), of rows: real parts, then imaginary parts."""
    if takes(a):
        out = torch.empty_like(a)
        on_host(native.complex_product, a, b, out, conjugate)
        return out
    (a_re, a_im), (b_re, b_im) = a.chunk(2, -1), b.chunk(2, -1)
    if conjugate:
        return torch.cat((a_re * b_re + a_im * b_im, a_im * b_re - a_re * b_im), -1)
    return torch.cat((a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re), -1)


def _product_backward(grad: Tensor, a: Tensor, b: Tensor, conjugate: bool) -> Pair:
    """Gradients of a and b, given that of :func:`_product`."""
    if takes(a):
        of_a, of_b = torch.empty_like(a), torch.empty_like(b)
        on_host(native.complex_product_backward, grad, a, b, of_a, of_b, conjugate)
        return of_a, of_b
    of_a = _product(grad, b, conjugate=not conjugate)
    of_b = _product(a, grad, conjugate=True) if conjugate else _product(grad, a, conjugate=True)
    return of_a, of_b
