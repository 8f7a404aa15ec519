"""LSM-GNN: train graph neural networks on graphs whose features do not fit in memory."""

from typing import TYPE_CHECKING, Any

from lsm.version import __version__ as __version__

__all__ = [
    "Batch",
    "CacheGroup",
    "CacheOptions",
    "CachedFeatureLoader",
    "CommOptions",
    "FeatureLoader",
    "GraphStore",
    "NeighborLoader",
    "Sampling",
    "SharedFeatureLoader",
]

if TYPE_CHECKING:
    from lsm.cache.options import CacheOptions
    from lsm.comm.group import CacheGroup, CommOptions
    from lsm.data.graph_store import GraphStore
    from lsm.features.cached import CachedFeatureLoader
    from lsm.features.loader import FeatureLoader
    from lsm.features.shared import SharedFeatureLoader
    from lsm.loader.batch import Batch
    from lsm.loader.neighbor_loader import NeighborLoader
    from lsm.sampler.options import Sampling

_HOMES = {
    "Batch": "lsm.loader.batch",
    "CacheGroup": "lsm.comm.group",
    "CacheOptions": "lsm.cache.options",
    "CachedFeatureLoader": "lsm.features.cached",
    "CommOptions": "lsm.comm.group",
    "FeatureLoader": "lsm.features.loader",
    "GraphStore": "lsm.data.graph_store",
    "NeighborLoader": "lsm.loader.neighbor_loader",
    "Sampling": "lsm.sampler.options",
    "SharedFeatureLoader": "lsm.features.shared",
}


def __getattr__(name: str) -> Any:
    """Imports torch and the native module only when something of them is used."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'lsm' has no attribute {name!r}")
