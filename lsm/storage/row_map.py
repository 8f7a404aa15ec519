"""The row of a node: the one place where ids of nodes become rows of files."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lsm.data.feature_files import FeatureFiles
from lsm.data.graph_store import GraphStore


@dataclass(frozen=True)
class RowMap:
    """The rows of one file set, by node id.

    Nodes ``first`` to ``first + num_nodes - 1`` have rows: node ``first + i`` row ``table[i]``, or
    row i without a table. Several nodes may have one row.

    table: [num_nodes] int64.
    """

    num_nodes: int
    first: int = 0
    table: torch.Tensor | None = None

    @classmethod
    def of(cls, store: GraphStore | FeatureFiles) -> RowMap:
        """The rows of a store's nodes: its ids. Files that belong to no graph have a node per
        row."""
        return cls(store.num_rows if isinstance(store, FeatureFiles) else store.num_nodes)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """The row of each of ``ids`` ([n] int64): [n] int64.

        Raises ValueError for a node without a row. Where ids are rows already, they are returned
        unread: the engine, which reads each of them anyway, refuses those out of range.
        """
        if self.first == 0 and self.table is None:
            return ids
        rows = ids - self.first
        bad = ((rows < 0) | (rows >= self.num_nodes)).nonzero().view(-1)
        if len(bad):
            end = self.first + self.num_nodes
            raise ValueError(
                f"ids: expected ids in [{self.first}, {end}), got {int(ids[bad[0]])} at position "
                f"{int(bad[0])}"
            )
        return rows if self.table is None else self.table[rows]
