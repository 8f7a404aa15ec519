"""LSM-GNN: train graph neural networks on graphs whose features do not fit in memory."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily
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
    "StorageOptions",
    "load_config",
]

if TYPE_CHECKING:
    from lsm.cache.options import CacheOptions
    from lsm.comm.group import CacheGroup, CommOptions
    from lsm.config import load_config
    from lsm.data.graph_store import GraphStore
    from lsm.features.cached import CachedFeatureLoader
    from lsm.features.loader import FeatureLoader
    from lsm.features.shared import SharedFeatureLoader
    from lsm.loader.batch import Batch
    from lsm.loader.neighbor_loader import NeighborLoader
    from lsm.sampler.options import Sampling
    from lsm.storage import StorageOptions

_ROOMS = {
    "Batch": "loader",
    "CacheGroup": "comm",
    "CacheOptions": "cache",
    "CachedFeatureLoader": "features",
    "CommOptions": "comm",
    "FeatureLoader": "features",
    "GraphStore": "data",
    "NeighborLoader": "loader",
    "Sampling": "sampler",
    "SharedFeatureLoader": "features",
    "StorageOptions": "storage",
    "load_config": "config",
}

__getattr__ = lazily(__name__, _ROOMS)
