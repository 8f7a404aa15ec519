"""Describes a store of any kind: counts, sizes, degrees, splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from lsm.core.units import format_bytes
from lsm.data import format as layout
from lsm.data.graph_store import GraphStore
from lsm.data.links.info import describe_links, links_table
from lsm.data.links.splits import LinkSplits
from lsm.data.part_info import (
    degrees_in_words,
    degrees_of,
    features_in_words,
    features_of,
    files_in_words,
    labels_in_words,
    labels_of,
    splits_in_words,
)
from lsm.data.triples.info import describe_triples, triples_table
from lsm.data.triples.store import TripleStore
from lsm.data.typed.format import TypedMeta
from lsm.data.typed.info import describe_typed, typed_table


def describe(path: str | Path) -> dict[str, Any]:
    """The output of ``lsm data info --json`` for the store at ``path``. Raises FileNotFoundError or
    ValueError if it cannot be opened."""
    if layout.store_kind(Path(path)) == "triples":
        return describe_triples(TripleStore.open(path))
    if layout.store_kind(Path(path)) == "links":
        return describe_links(LinkSplits.open(path))
    store = GraphStore.open(path)
    return describe_typed(store) if isinstance(store.meta, TypedMeta) else _describe_graph(store)


def _describe_graph(store: GraphStore) -> dict[str, Any]:
    """Streams indptr and reads no features."""
    meta, nodes, edges = store.meta, store.nodes(), store.edges()
    return {
        "path": str(store.path),
        "kind": "graph",
        "name": store.name,
        "schema_version": meta.schema_version,
        "num_nodes": store.num_nodes,
        "num_edges": store.num_edges,
        "num_classes": store.num_classes,
        **labels_of(nodes),
        "in_degree": degrees_of(edges),
        "splits": {name: store.split(name).numel() for name in layout.SPLITS},
        "scores": store.scores,
        "features": features_of(store, nodes),
        "node_values": nodes.values,
        "edge_values": edges.values,
        "topology_bytes": meta.files[layout.INDPTR].bytes + meta.files[layout.INDICES].bytes,
        "total_bytes": sum(file.bytes for file in meta.files.values()),
        "source": meta.source,
    }


def as_table(info: dict[str, Any]) -> Table:
    """The answer of ``describe`` as a table for people."""
    tables = {"triples": triples_table, "typed": typed_table, "links": links_table}
    if info["kind"] in tables:
        return tables[info["kind"]](info)
    features = info["features"]
    table = Table(title=f"{info['name']} ({info['path']})", show_header=False)
    rows = {
        "nodes": f"{info['num_nodes']:,}",
        "edges": f"{info['num_edges']:,}",
        "labels": labels_in_words(info) or "none",
        "in-degree": degrees_in_words(info["in_degree"]),
        "splits": splits_in_words(info["splits"]),
        "scores": ", ".join(info["scores"]) or "none",
        "features": features_in_words(features),
        "feature files": files_in_words(features),
        "topology": format_bytes(info["topology_bytes"]),
        "total": format_bytes(info["total_bytes"]),
    }
    for key in ("node_values", "edge_values"):
        if info[key]:
            rows[key.replace("_", " ")] = ", ".join(info[key])
    for key, value in rows.items():
        table.add_row(key, value)
    return table
