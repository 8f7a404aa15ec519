"""Rows of embeddings with their optimiser state: initial values and updates."""

from __future__ import annotations

import torch
from torch import Tensor

from lsm import native
from lsm.embed.models.kernels import on_host
from lsm.embed.options import EmbedOptions


def initial_rows(options: EmbedOptions, count: int, seed: int) -> Tensor:
    """[count, width] float32, as :func:`initialise` fills them."""
    rows = torch.empty(count, options.width)
    initialise(options, rows, seed)
    return rows


def initialise(options: EmbedOptions, rows: Tensor, seed: int) -> None:
    """Fills rows [n, width] of float32: embeddings from a normal distribution, state 0. The host
    draws for every device, so all devices start alike. Rows in host memory need no second copy."""
    if rows.device.type != "cpu":
        rows.copy_(initial_rows(options, len(rows), seed))
        return
    generator = torch.Generator().manual_seed(seed)
    rows.zero_()
    rows[:, : options.dim].normal_(std=options.init_scale, generator=generator)


def update_rows(options: EmbedOptions, rows: Tensor, ids: Tensor, grads: Tensor) -> None:
    """Applies gradients [m, dim] to the rows [n, width] of ``ids`` [m], in place, by Adagrad (Duchi
    et al., 2011). Sums the gradients of one row first, in their order in ``ids``."""
    on_host(native.update_rows, rows, ids, grads, options.lr, options.eps)
