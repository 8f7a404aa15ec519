"""Feature loaders: rows by node id, from memory, storage, a cache or a cache shared over ranks."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.features.cached import CachedFeatureLoader
    from lsm.features.loader import FeatureLoader
    from lsm.features.open import open_features
    from lsm.features.tiers_gpu import GpuOptions

__all__ = ["CachedFeatureLoader", "FeatureLoader", "GpuOptions", "open_features"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "CachedFeatureLoader": "cached",
        "FeatureLoader": "loader",
        "GpuOptions": "tiers_gpu",
        "open_features": "open",
    },
)
