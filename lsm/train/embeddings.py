"""Embeddings in training: their optimizer, and their sparse gradients over ranks.

DDP takes dense gradients only, so the tables are kept from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.train.row_adam import RowAdam


class EmbeddingOptimizer:
    """SparseAdam for the tables of embeddings, beside the optimizer of all other weights.

    SparseAdam changes only the rows of a batch, and knows no weight decay.

    Args:
        others: The optimizer of the other weights.
        tables: The tables, all of one width.
        lr: Learning rate of the tables.
        world: The ranks. Before a step each has gradients of its own.
    """

    def __init__(
        self,
        others: torch.optim.Optimizer,
        tables: Sequence[Tensor],
        lr: float,
        world: World,
    ) -> None:
        self._others, self._tables, self._world = others, list(tables), world
        self._sparse = RowAdam(self._tables, lr=lr)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of both optimizers."""
        return [*self._others.param_groups, *self._sparse.param_groups]

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        self._others.zero_grad()
        self._sparse.zero_grad()

    def step(self) -> None:
        """Averages the tables' gradients over ranks, then changes all weights. A collective."""
        average_sparse_gradients(self._tables, self._world)
        self._others.step()
        self._sparse.step()

    def state_dict(self) -> dict[str, Any]:
        """The states of both optimizers."""
        return {"others": self._others.state_dict(), "embeddings": self._sparse.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads a state_dict()."""
        self._others.load_state_dict(state["others"])
        self._sparse.load_state_dict(state["embeddings"])


def average_sparse_gradients(tables: Sequence[Tensor], world: World) -> None:
    """Replaces the sparse gradients of ``tables`` by their means over ranks, the same bits on every
    rank: rows are summed in the order of ranks. A collective.

    A table that no rank has a gradient of keeps none. Gradients travel through the host.
    """
    if world.size == 1:
        return
    bounds = [0, *accumulate(len(table) for table in tables)]
    ids, rows = _gradients(tables, bounds)
    ids_of, rows_of = collectives.gather_rows(ids, world), collectives.gather_rows(rows, world)
    every_id, places = torch.unique(torch.cat(ids_of), return_inverse=True)
    sums = rows.new_zeros(len(every_id), rows.size(1))
    for own, gathered in zip(places.split([len(each) for each in ids_of]), rows_of, strict=True):
        sums.index_add_(0, own, gathered)  # the ids of one rank are distinct
    sums /= world.size
    cuts = torch.searchsorted(every_id, torch.tensor(bounds)).tolist()
    for table, first, (begin, end) in zip(tables, bounds[:-1], pairwise(cuts), strict=True):
        table.grad = None
        if begin < end:
            table.grad = torch.sparse_coo_tensor(
                (every_id[begin:end] - first).unsqueeze(0),
                sums[begin:end],
                table.shape,
                is_coalesced=True,
                check_invariants=False,
            ).to(table.device)


def _gradients(tables: Sequence[Tensor], bounds: Sequence[int]) -> tuple[Tensor, Tensor]:
    """This rank's gradients of all tables as (ids [n], rows [n, width]) on the host. The ids of a
    table begin at its bound."""
    ids, rows = [torch.empty(0, dtype=torch.int64)], [torch.empty(0, tables[0].size(1))]
    for table, first in zip(tables, bounds[:-1], strict=True):
        if table.grad is not None:
            own = table.grad.coalesce().cpu()
            ids.append(own.indices()[0] + first)
            rows.append(own.values())
    return torch.cat(ids), torch.cat(rows)
