"""The answer to a write to a store."""

from __future__ import annotations

import logging

from lsm.data.graph_store import GraphStore

logger = logging.getLogger(__name__)


def refuse(store: GraphStore, values: str) -> bool:
    """False, PyG's answer to a write that failed, with an error that names the ``values``."""
    logger.error("%s: %s are read only; make the store again to change them", store.path, values)
    return False
