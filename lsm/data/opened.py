"""A store that an argument gives: one that is open, or the path of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lsm.data.graph_store import GraphStore


def opened(store: Any) -> GraphStore:
    """``store``, opened if it is a path. Raises TypeError for a graph of PyG and other objects."""
    if isinstance(store, GraphStore):
        return store
    if isinstance(store, str | Path):
        return GraphStore.open(store)
    kind = type(store).__name__
    if type(store).__module__.startswith("torch_geometric."):
        raise TypeError(
            f"store: expected a GraphStore or its path, got PyG's {kind}; make a store of it with "
            "lsm.GraphStore.from_pyg(data, path)"
        )
    raise TypeError(f"store: expected a GraphStore or its path, got {kind}")
