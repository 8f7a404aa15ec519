"""Feature loaders: rows by node id, from memory, storage, a cache or a cache shared over ranks."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.features.cached import CachedFeatureLoader
    from lsm.features.loader import FeatureLoader
    from lsm.features.shared import SharedFeatureLoader

__all__ = ["CachedFeatureLoader", "FeatureLoader", "SharedFeatureLoader"]

__getattr__ = lazily(
    __name__,
    {
        "CachedFeatureLoader": "cached",
        "FeatureLoader": "loader",
        "SharedFeatureLoader": "shared",
    },
)
