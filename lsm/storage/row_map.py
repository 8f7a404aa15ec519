"""The row of a node: the one place where ids of nodes become rows of files."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lsm import native
from lsm.data.feature_files import FeatureFiles
from lsm.data.graph_store import GraphStore

_NO_TABLE = torch.empty(0, dtype=torch.int64)


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
        """The rows of a store's nodes: its ids, unless its features are elsewhere. Files without a
        table have a node per row."""
        files = store if isinstance(store, FeatureFiles) else store.feature_files
        num_nodes = files.num_rows if files.table is None else len(files.table)
        return cls(num_nodes, table=files.table)

    @property
    def end(self) -> int:
        """The first id after those with rows."""
        return self.first + self.num_nodes

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """The row of each of ``ids`` ([n] int64): [n] int64.

        Raises ValueError for a node without a row. Where ids are rows already, they are returned
        unread: the engine, which reads each of them anyway, refuses those out of range.
        """
        if self.first == 0 and self.table is None:
            return ids
        rows = torch.empty_like(ids)
        table = _NO_TABLE if self.table is None else self.table
        native.find_rows(ids, self.first, self.num_nodes, table, rows)
        return rows
