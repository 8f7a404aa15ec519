"""SparseAdam that never asks a GPU how many rows it changes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lsm.train.sparse_rows import Rows, summed


class RowAdam(torch.optim.SparseAdam):
    """torch's SparseAdam, with its state and its steps, for tables [n, width].

    torch coalesces a gradient, whose size then depends on the ids, so that the host waits for a
    GPU in each step. Here a gradient keeps its size: rows of the same id are summed in one place,
    and the places that are left over change nothing.

    Source: Kingma and Ba, "Adam", 2015; the lazy variant of torch.optim.SparseAdam.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step. Raises RuntimeError if a gradient is dense. ``closure`` is not supported."""
        assert closure is None, "embeddings have no closure"
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._change(table, table.grad, group)

    def _change(self, table: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        if not gradient.is_sparse:
            raise RuntimeError("the gradient of a table of embeddings is dense")
        state = self.state[table]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(table)
            state["exp_avg_sq"] = torch.zeros_like(table)
        state["step"] += 1
        rows = summed(gradient)
        if len(rows.ids) == 0:
            return
        first, second = group["betas"]
        mean = self._moment(state["exp_avg"], rows, rows.values, 1 - first)
        square = self._moment(state["exp_avg_sq"], rows, rows.values.pow(2), 1 - second)
        corrected = math.sqrt(1 - second ** state["step"]) / (1 - first ** state["step"])
        change = -(float(group["lr"]) * corrected) * mean.div_(square.sqrt_().add_(group["eps"]))
        table.index_add_(0, rows.ids, change.masked_fill_(rows.is_unused, 0.0))

    @staticmethod
    def _moment(moments: Tensor, rows: Rows, values: Tensor, share: float) -> Tensor:
        """Moves the moments of ``rows`` by a share towards ``values``; returns them."""
        old = moments[rows.ids]
        change = values.sub(old).mul_(share).masked_fill_(rows.is_unused, 0.0)
        moments.index_add_(0, rows.ids, change)
        return change.add_(old)
