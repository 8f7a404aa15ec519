"""PyG's GraphStore over the topology of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import EdgeAttr
from torch_geometric.data import GraphStore as PygGraphStore
from torch_geometric.data.graph_store import EdgeLayout

from lsm import native
from lsm.core import host_memory
from lsm.data.graph_store import GraphStore as Store
from lsm.data.opened import opened
from lsm.graph.types import EDGE
from lsm.pyg.read_only import refuse


class GraphStore(PygGraphStore):
    """The edges of a store, as PyG's loaders take them: one CSC of in-edges for each edge type.

    It serves loaders with ``lsm.pyg.Sampler``, which ask it for the types of edges alone. PyG's own
    sampler takes whole arrays of int64, 8 bytes an edge, and they have to fit in memory.

    Args:
        store: A GraphStore of lsm, or its path.

    Raises:
        FileNotFoundError: There is no store at ``store``.
    """

    def __init__(self, store: Store | str | Path) -> None:
        super().__init__()
        self.store: Store = opened(store)
        """The store."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store!r})"

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """The edge types with their sizes, in CSC; a graph without types has the type None."""
        return [
            EdgeAttr(
                each if self.store.is_typed else None,
                EdgeLayout.CSC,
                size=(edges.num_sources, edges.num_destinations),
            )
            for each in self.store.edge_types
            for edges in [self.store.edges(each)]
        ]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        """Sources [E] and bounds by destination [N + 1], int64; None: not stored."""
        edge_type = EDGE if edge_attr.edge_type is None else tuple(edge_attr.edge_type)
        is_known = edge_type in self.store.edge_types
        if not is_known or edge_attr.layout != EdgeLayout.CSC:
            return None
        edges = self.store.edges(edge_type)
        topology = edges.topology()
        if topology.indices.dtype != torch.int64:
            host_memory.require(
                f"{self.store.path}: the sources of {edge_type} as int64",
                8 * edges.num_edges,
                "sample with lsm.pyg.Sampler, which maps the stored ones",
            )
        sources = topology.indices.long()
        native.check_mapped(topology.indices)
        return sources, topology.indptr

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        return refuse(self.store, f"edges of type {edge_attr.edge_type}")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        return refuse(self.store, f"edges of type {edge_attr.edge_type}")
