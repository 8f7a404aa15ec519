"""Stores: a directory that holds a graph, its features and its labels; or triples."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.data.graph_store import GraphStore, Topology
    from lsm.data.triple_store import Buckets, TripleStore

__all__ = ["Buckets", "GraphStore", "Topology", "TripleStore"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "Buckets": "triple_store",
        "GraphStore": "graph_store",
        "Topology": "graph_store",
        "TripleStore": "triple_store",
    },
)
