"""The structure of a graph in memory: its edges, and its types of nodes and edges."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.graph.topology import Topology
    from lsm.graph.types import EdgeTypes, NodeSpace, TypedMap

__all__ = ["EdgeTypes", "NodeSpace", "Topology", "TypedMap"]

__getattr__, __dir__ = lazily(
    __name__,
    {"EdgeTypes": "types", "NodeSpace": "types", "Topology": "topology", "TypedMap": "types"},
)
