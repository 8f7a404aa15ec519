"""Exchange of feature rows between the ranks that share a cache."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.comm.group import CacheGroup
    from lsm.comm.options import CommOptions

__all__ = ["CacheGroup", "CommOptions"]

__getattr__, __dir__ = lazily(__name__, {"CacheGroup": "group", "CommOptions": "options"})
