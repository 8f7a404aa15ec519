"""Embeddings in training: their optimizer, and their sparse gradients over ranks.

DDP takes dense gradients only, so the tables are kept from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.train.row_adam import RowAdam
from lsm.train.sparse_rows import merged, of_rows


class EmbeddingOptimizer:
    """SparseAdam for the tables of embeddings, next to the optimizer of all other weights.

    SparseAdam changes only the rows of a batch, and knows no weight decay.

    Args:
        others: The optimizer of the other weights.
        tables: The tables, all of one width.
        lr: Learning rate of the tables.
        world: The ranks. Before a step each has gradients of its own.
        group: Of all ranks, for tensors on the device of the tables; None: that of the host.
    """

    def __init__(
        self,
        others: torch.optim.Optimizer,
        tables: Sequence[Tensor],
        lr: float,
        world: World,
        group: ProcessGroup | None = None,
    ) -> None:
        self._others, self._tables, self._world = others, list(tables), world
        self._group = group
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
        average_sparse_gradients(self._tables, self._world, self._group)
        self._others.step()
        self._sparse.step()

    def state_dict(self) -> dict[str, Any]:
        """The states of both optimizers."""
        return {"others": self._others.state_dict(), "embeddings": self._sparse.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads a state_dict()."""
        self._others.load_state_dict(state["others"])
        self._sparse.load_state_dict(state["embeddings"])


def average_sparse_gradients(
    tables: Sequence[Tensor], world: World, group: ProcessGroup | None = None
) -> None:
    """Replaces the sparse gradients of ``tables`` by their means over ranks, the same bits on every
    rank: rows are summed in the order of ranks. A collective.

    A table that no rank has a gradient of keeps none. Ranks exchange the numbers of rows on the
    host, which knows them, and the rows over ``group``, so that no GPU is waited for.
    """
    if world.size == 1:
        return
    own = [_places(table) for table in tables]
    counts_of = collectives.gather_counts([len(ids) for ids, _ in own], world)
    ids_of, rows_of = (
        collectives.gather_counted(torch.cat(parts), [sum(each) for each in counts_of], group)
        for parts in zip(*own, strict=True)
    )
    for number, table in enumerate(tables):
        ids, rows = _of_table(ids_of, counts_of, number), _of_table(rows_of, counts_of, number)
        table.grad = None
        if len(ids):
            sums = merged(of_rows(ids, rows, table))
            table.grad = of_rows(sums._indices()[0], sums._values() / world.size, table)


def _places(table: Tensor) -> tuple[Tensor, Tensor]:
    """This rank's gradient of ``table`` as (ids [n], rows [n, width]), at most one for each of its
    rows."""
    if table.grad is None:
        empty = torch.empty(0, dtype=torch.int64, device=table.device)
        return empty, table.new_empty(0, table.size(1))
    gradient = merged(table.grad)
    return gradient._indices()[0], gradient._values()


def _of_table(everyone: Sequence[Tensor], counts_of: Sequence[list[int]], number: int) -> Tensor:
    """The part of one table, by the ``counts`` of all tables of each rank, in order of ranks."""
    return torch.cat(
        [each.split(counts)[number] for each, counts in zip(everyone, counts_of, strict=True)]
    )
