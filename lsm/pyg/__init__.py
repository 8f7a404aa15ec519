"""PyG's own loaders over a store: its feature store, graph store and sampler, and batches ahead."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.pyg.edge_values import EdgeValues
    from lsm.pyg.feature_store import FeatureStore
    from lsm.pyg.graph_store import GraphStore
    from lsm.pyg.loader_parts import Parts, link_parts, parts
    from lsm.pyg.sampler import Sampler

__all__ = [
    "EdgeValues",
    "FeatureStore",
    "GraphStore",
    "Parts",
    "Sampler",
    "link_parts",
    "parts",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "EdgeValues": "edge_values",
        "FeatureStore": "feature_store",
        "GraphStore": "graph_store",
        "Parts": "loader_parts",
        "Sampler": "sampler",
        "link_parts": "loader_parts",
        "parts": "loader_parts",
    },
)
