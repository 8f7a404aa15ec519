"""Describes a store of a graph with types: each type's counts, features and values."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from lsm.core.units import format_bytes
from lsm.data.graph_store import GraphStore
from lsm.data.part_info import (
    degrees_in_words,
    degrees_of,
    features_in_words,
    features_of,
    labels_in_words,
    labels_of,
    splits_in_words,
)


def describe_typed(store: GraphStore) -> dict[str, Any]:
    """The output of ``lsm data info --json``. Streams each indptr and reads no features."""
    return {
        "path": str(store.path),
        "kind": "typed",
        "name": store.name,
        "schema_version": store.meta.schema_version,
        "num_nodes": store.num_nodes,
        "num_edges": store.num_edges,
        "node_types": {name: _nodes(store, name) for name in store.node_types},
        "edge_types": [
            {
                "type": list(edge_type),
                "num_edges": store.edges(edge_type).num_edges,
                "in_degree": degrees_of(store.edges(edge_type)),
                "values": store.edges(edge_type).values,
            }
            for edge_type in store.edge_types
        ],
        "scores": store.scores,
        "total_bytes": sum(file.bytes for file in store.meta.files.values()),
        "source": store.meta.source,
    }


def typed_table(info: dict[str, Any]) -> Table:
    """The description as a table for people."""
    table = Table(title=f"{info['name']} ({info['path']})", show_header=False)
    for name, nodes in info["node_types"].items():
        words = [f"{nodes['num_nodes']:,}"]
        words += [features_in_words(nodes["features"])] if nodes["features"] else ["no features"]
        words += [labels_in_words(nodes)] if labels_in_words(nodes) else []
        words += [splits_in_words(nodes["splits"])] if nodes["splits"] else []
        table.add_row(f"nodes {name}", "; ".join(words + nodes["values"]))
    for edges in info["edge_types"]:
        words = [f"{edges['num_edges']:,}", degrees_in_words(edges["in_degree"])]
        table.add_row(f"edges {', '.join(edges['type'])}", "; ".join(words + edges["values"]))
    table.add_row("scores", ", ".join(info["scores"]) or "none")
    table.add_row("total", format_bytes(info["total_bytes"]))
    return table


def _nodes(store: GraphStore, name: str) -> dict[str, Any]:
    nodes = store.nodes(name)
    return {
        "num_nodes": nodes.num_nodes,
        "num_classes": nodes.num_classes,
        **labels_of(nodes),
        "first_id": store.node_space.offsets[name],
        "splits": {split: nodes.split(split).numel() for split in nodes.splits},
        "features": features_of(store, nodes),
        "values": nodes.values,
    }
