"""The planned cache: planner, options, static scores, staging."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.cache.options import CacheOptions

__all__ = ["CacheOptions"]

__getattr__, __dir__ = lazily(__name__, {"CacheOptions": "options"})
