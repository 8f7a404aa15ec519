"""Stores: a directory that holds a graph, its features and its labels (DESIGN section 8)."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.data.graph_store import GraphStore, Topology

__all__ = ["GraphStore", "Topology"]

__getattr__ = lazily(__name__, {"GraphStore": "graph_store", "Topology": "graph_store"})
