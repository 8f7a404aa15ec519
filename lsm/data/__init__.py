"""Stores: a directory that holds a graph, its features and its labels; or triples."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.data.edge_data import EdgeData
    from lsm.data.graph_store import GraphStore
    from lsm.data.links.splits import LinkSplits
    from lsm.data.node_data import NodeData
    from lsm.data.triples.convert import convert_triples
    from lsm.data.triples.store import Buckets, TripleStore
    from lsm.data.triples.synth import synthesize_triples

__all__ = [
    "Buckets",
    "EdgeData",
    "GraphStore",
    "LinkSplits",
    "NodeData",
    "TripleStore",
    "convert_triples",
    "synthesize_triples",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "Buckets": "triples.store",
        "EdgeData": "edge_data",
        "GraphStore": "graph_store",
        "LinkSplits": "links.splits",
        "NodeData": "node_data",
        "TripleStore": "triples.store",
        "convert_triples": "triples.convert",
        "synthesize_triples": "triples.synth",
    },
)
