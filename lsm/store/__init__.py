"""The store: a directory that holds a graph, its features and its labels (DESIGN section 8)."""

from lsm.store.graph_store import GraphStore, Topology

__all__ = ["GraphStore", "Topology"]
