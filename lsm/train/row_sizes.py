"""The sizes of a store's rows by node type."""

from __future__ import annotations

from lsm.core.memory import Shape
from lsm.data.graph_store import GraphStore
from lsm.graph.types import TypedMap


def row_sizes(store: GraphStore) -> TypedMap[str, int]:
    """Bytes of a row of each node type that has features."""
    nodes = {name: store.nodes(name).features for name in store.node_types}
    return TypedMap({name: own.row_bytes for name, own in nodes.items() if own is not None})


def feature_dims(store: GraphStore) -> TypedMap[str, int]:
    """Values of a row of each node type that has features."""
    nodes = {name: store.nodes(name).features for name in store.node_types}
    return TypedMap({name: own.dim for name, own in nodes.items() if own is not None})


def shape_of(store: GraphStore) -> Shape:
    """The nodes and rows of a store, of a job without batches. Raises ValueError if no node type
    has features."""
    if not store.is_typed:
        files = store.feature_files
        # Rows of no node take memory only where all rows of the files lie in memory.
        mixed = 0 if files.table is None else files.num_bytes
        return Shape(num_nodes=store.num_nodes, row_bytes=store.row_bytes, mixed_bytes=mixed)
    sizes = row_sizes(store)
    if not sizes:
        names = ", ".join(store.node_types)
        raise ValueError(f"data.path: {store.path}: none of the node types {names} has features")
    total = sum(store.node_space.counts[name] * each for name, each in sizes.items())
    return Shape(num_nodes=store.num_nodes, row_bytes=min(sizes.values()), mixed_bytes=total)
