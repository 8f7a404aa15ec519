"""Penalties of embeddings. An embedding is penalised for every edge of a batch that uses it."""

from __future__ import annotations

import torch
from torch import Tensor

from lsm.embed.options import EmbedOptions


def add_penalty(
    options: EmbedOptions, embeddings: Tensor, grad: Tensor, times: int
) -> float | Tensor:
    """Returns ``times`` the penalty of ``embeddings`` [n, dim], as a number or a float64 tensor of
    one, and adds its gradient to ``grad``.

    n3 is the nuclear 3-norm of Lacroix et al. (2018). l3 differs from it in complex models only.
    """
    penalised = options.penalised
    if penalised == "none":
        return 0.0
    weight = times * options.regularizer_weight
    if penalised == "moduli":
        real, imaginary = embeddings.chunk(2, -1)
        modulus = real.hypot(imaginary)
        factors = torch.cat((modulus, modulus), -1)  # repeat() takes four times as long
    else:
        factors = modulus = embeddings.abs()
    # The gradient of |x|^3 is 3 |x| x.
    grad.add_(factors.mul(embeddings), alpha=3 * weight)
    return weight * torch.pow(modulus, 3).sum().double()
