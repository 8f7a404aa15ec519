"""Embeddings whose gradients are sparse: a step changes only the rows of its batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def sparse_parameters(model: nn.Module) -> dict[str, Tensor]:
    """The tables of ``model`` with sparse gradients, by their names."""
    return {
        f"{name}.weight".removeprefix("."): module.weight
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and module.sparse
    }


def dense_parameters(model: nn.Module) -> list[nn.Parameter]:
    """All other parameters, in the order of ``model.parameters()``."""
    tables = {id(table) for table in sparse_parameters(model).values()}
    return [each for each in model.parameters() if id(each) not in tables]


def no_outputs(model: nn.Module, width: int) -> Tensor:
    """The output [0, width] of a batch without seeds. It depends on every parameter with dense
    gradients, as DDP expects of each rank."""
    nothing = torch.stack([parameter.sum() for parameter in dense_parameters(model)]).sum() * 0.0
    return nothing.expand(0, width)
