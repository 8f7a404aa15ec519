"""The structure of a graph in memory: its edges, and its types of nodes and edges."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.graph.topology import Topology

__all__ = ["Topology"]

__getattr__, __dir__ = lazily(__name__, {"Topology": "topology"})
