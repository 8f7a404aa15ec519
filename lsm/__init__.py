"""LSM-GNN: train graph neural networks on graphs whose features do not fit in memory."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lsm.core.lazy import lazily
from lsm.version import __version__ as __version__

__all__ = [
    "Batch",
    "CacheGroup",
    "CacheOptions",
    "CommOptions",
    "EdgeData",
    "FeatureLoader",
    "GraphStore",
    "LinkNeighborLoader",
    "LinkSplits",
    "NeighborLoader",
    "NodeData",
    "Sampling",
    "StorageOptions",
    "fit",
    "load_config",
    "load_model",
    "open_features",
    "predict",
    "train",
]

if TYPE_CHECKING:
    from lsm.cache.options import CacheOptions
    from lsm.comm.group import CacheGroup
    from lsm.comm.options import CommOptions
    from lsm.config import load_config
    from lsm.data.edge_data import EdgeData
    from lsm.data.graph_store import GraphStore
    from lsm.data.links.splits import LinkSplits
    from lsm.data.node_data import NodeData
    from lsm.features.loader import FeatureLoader
    from lsm.features.open import open_features
    from lsm.loader.batch import Batch
    from lsm.loader.link_neighbor_loader import LinkNeighborLoader
    from lsm.loader.neighbor_loader import NeighborLoader
    from lsm.sampler.options import Sampling
    from lsm.storage.options import StorageOptions
    from lsm.train.prediction import predict
    from lsm.train.saved import load_model
    from lsm.train.start import fit
    from lsm.train.start import fit as train

_ROOMS = {
    "Batch": "loader",
    "CacheGroup": "comm",
    "CacheOptions": "cache",
    "CommOptions": "comm",
    "EdgeData": "data",
    "FeatureLoader": "features",
    "GraphStore": "data",
    "LinkNeighborLoader": "loader",
    "LinkSplits": "data",
    "NeighborLoader": "loader",
    "NodeData": "data",
    "Sampling": "sampler",
    "StorageOptions": "storage",
    "fit": "train",
    "load_config": "config",
    "load_model": "train",
    "open_features": "features",
    "predict": "train",
}

_PUBLIC_ROOMS = ("embed", "pyg", "train")
"""Rooms with public names of their own; ``train`` is callable, too."""

_of_a_room, __dir__ = lazily(__name__, _ROOMS)


def __getattr__(name: str) -> Any:
    """A public name or room, imported now."""
    return import_module(f"lsm.{name}") if name in _PUBLIC_ROOMS else _of_a_room(name)
