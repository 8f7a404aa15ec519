"""Storage engines, the order and depth of reads, and measurements of disks."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.storage.engine import Storage
    from lsm.storage.open import open_storage
    from lsm.storage.options import StorageOptions

__all__ = ["Storage", "StorageOptions", "open_storage"]

__getattr__, __dir__ = lazily(
    __name__, {"Storage": "engine", "StorageOptions": "options", "open_storage": "open"}
)
