"""Embeddings whose gradients are sparse: a step changes only the rows of its batch."""

from __future__ import annotations

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
