"""The edges of one type in a store: in-edges by destination, and values of edges."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from lsm.data import format as layout
from lsm.data.arrays import load_array
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType

if TYPE_CHECKING:
    from lsm.data.graph_store import GraphStore


class EdgeData:
    """The edges of one type.

    Files are read when they are asked for: into memory with ``in_memory``, else they are mapped.
    Edges are in order of their destination. Those of one destination are in order of time, if they
    or else their sources have times, then in the order of the source of the store. Edge k of this
    order has ``e_id`` k; values of edges have it too.
    """

    def __init__(self, store: GraphStore, edge_type: EdgeType, folder: str, num_edges: int) -> None:
        """Use ``GraphStore.edges``.

        Args:
            store: The store.
            edge_type: (source, relation, destination).
            folder: "NAME/", the place of its files.
            num_edges: The number of edges.
        """
        source, _, destination = edge_type
        self.edge_type = edge_type
        self.num_edges = num_edges
        self.num_sources = store.node_space.counts[source]
        self.num_destinations = store.node_space.counts[destination]
        self._store = store.path
        self._files = store.meta.files
        self._folder = folder

    def __repr__(self) -> str:
        return f"EdgeData({self.edge_type!r}, num_edges={self.num_edges})"

    @property
    def has_weights(self) -> bool:
        """True if each edge has a weight."""
        return self._folder + layout.WEIGHTS in self._files

    @property
    def has_times(self) -> bool:
        """True if each edge has a time."""
        return self._folder + layout.EDGE_TIMES in self._files

    @property
    def has_attr(self) -> bool:
        """True if each edge has attributes."""
        return self._folder + layout.EDGE_ATTR in self._files

    @property
    def has_order(self) -> bool:
        """True if the store keeps the edges' places in its source."""
        return self._folder + layout.ORDER in self._files

    @property
    def values(self) -> list[str]:
        """The values that edges have, in words."""
        has = {"weights": self.has_weights, "times": self.has_times, "attributes": self.has_attr}
        return [name for name, is_there in has.items() if is_there]

    @property
    def indptr_path(self) -> Path:
        """The file of the first edge of each destination."""
        return self._path("indptr.npy", "structure")

    def topology(self, in_memory: bool = False) -> Topology:
        """The in-edges by destination, memory-mapped (copy on write) unless ``in_memory``.

        A reader of mapped memory must call ``native.check_mapped`` afterwards, as the sampler does:
        a page that cannot be read is zeros until then. Raises OSError, ValueError for a damaged
        file.
        """
        kind = layout.index_dtype(self.num_sources)
        indices = self._path("indices.npy", "structure")
        return Topology(
            load_array(self.indptr_path, "int64", (self.num_destinations + 1,), in_memory),
            load_array(indices, kind, (self.num_edges,), in_memory),
        )

    def weights(self, in_memory: bool = False) -> torch.Tensor:
        """Weight of each edge, [E] float32, at least 0. Raises ValueError without them."""
        path = self._path(layout.WEIGHTS, "weights")
        return load_array(path, "float32", (self.num_edges,), in_memory)

    def times(self, in_memory: bool = False) -> torch.Tensor:
        """Time of each edge, [E] int64, in the unit of the source. Raises ValueError without
        them."""
        path = self._path(layout.EDGE_TIMES, "times")
        return load_array(path, "int64", (self.num_edges,), in_memory)

    def attr(self, in_memory: bool = False) -> torch.Tensor:
        """Attributes of each edge, [E, dim] or [E]. Raises ValueError without them."""
        path = self._path(layout.EDGE_ATTR, "attributes")
        return load_array(path, None, (self.num_edges, ...), in_memory)

    def order(self, in_memory: bool = False) -> torch.Tensor:
        """Place in the source of each edge, [E] int64. Raises ValueError if it is not kept."""
        path = self._path(layout.ORDER, "order of the source")
        return load_array(path, "int64", (self.num_edges,), in_memory)

    def ends(self, in_memory: bool = False) -> torch.Tensor:
        """Sources and destinations of all edges, [2, E] int64, in the order of the store."""
        topology = self.topology(in_memory)
        destinations = torch.repeat_interleave(topology.indptr.diff())
        return torch.stack((topology.indices.long(), destinations))

    def in_order(self, values: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """``values`` of all edges in the order of their source; as given if that order is not kept.

        ``dim`` is the one of ``values`` that counts edges: [num_edges, ...], or [..., num_edges].
        """
        if not self.has_order:
            return values
        return torch.empty_like(values).index_copy_(dim, self.order(), values)

    def _path(self, name: str, noun: str) -> Path:
        file = self._folder + name
        if file not in self._files:
            raise ValueError(
                f"{self._store}: edges of type {self.edge_type} have no {noun}; add them to the "
                "source and make the store again"
            )
        return self._store / file
