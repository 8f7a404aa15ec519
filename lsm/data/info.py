"""Describes a store of either kind: counts, sizes, degrees, splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from lsm.core.units import format_bytes
from lsm.data import format as layout
from lsm.data.convert.array_file import ArrayFile
from lsm.data.graph_store import GraphStore
from lsm.data.triples.info import describe_triples, triples_table
from lsm.data.triples.store import TripleStore


def describe(path: str | Path) -> dict[str, Any]:
    """The output of ``lsm data info --json`` for the store at ``path``. Raises FileNotFoundError or
    ValueError if it cannot be opened."""
    if layout.store_kind(Path(path)) != "graph":
        return describe_triples(TripleStore.open(path))
    return _describe_graph(GraphStore.open(path))


def _describe_graph(store: GraphStore) -> dict[str, Any]:
    """Streams indptr and reads no features."""
    meta = store.meta
    feature_bytes = sum(meta.files[name].bytes for name in meta.features.files)
    return {
        "path": str(store.path),
        "kind": "graph",
        "name": store.name,
        "schema_version": meta.schema_version,
        "num_nodes": store.num_nodes,
        "num_edges": store.num_edges,
        "num_classes": store.num_classes,
        "in_degree": _degrees(store),
        "splits": {name: store.split(name).numel() for name in layout.SPLITS},
        "scores": store.scores,
        "features": {
            "dim": store.feature_dim,
            "dtype": meta.features.dtype,
            "row_bytes": store.row_bytes,
            "files": meta.features.files,
            "stripe_bytes": store.stripe_bytes,
            "bytes": feature_bytes,
        },
        "topology_bytes": meta.files[layout.INDPTR].bytes + meta.files[layout.INDICES].bytes,
        "total_bytes": sum(file.bytes for file in meta.files.values()),
        "source": meta.source,
    }


def _degrees(store: GraphStore) -> dict[str, float | int]:
    largest = isolated = last = 0
    with ArrayFile(store.path / layout.INDPTR) as indptr:
        for first, values in indptr.chunks():
            degrees = np.diff(values, prepend=last)[1 if first == 0 else 0 :]
            largest = max(largest, int(degrees.max(initial=0)))
            isolated += int(np.count_nonzero(degrees == 0))
            last = values[-1]
    mean = store.num_edges / store.num_nodes if store.num_nodes else 0.0
    return {"mean": mean, "max": largest, "num_zero": isolated}


def as_table(info: dict[str, Any]) -> Table:
    """The answer of ``describe`` as a table for people."""
    if info["kind"] != "graph":
        return triples_table(info)
    features, degrees = info["features"], info["in_degree"]
    table = Table(title=f"{info['name']} ({info['path']})", show_header=False)
    striping = f"{len(features['files'])} file(s)"
    if len(features["files"]) > 1:
        striping += f", {format_bytes(features['stripe_bytes'])} stripes"
    rows = {
        "nodes": f"{info['num_nodes']:,}",
        "edges": f"{info['num_edges']:,}",
        "classes": f"{info['num_classes']:,}" if info["num_classes"] else "none: no labels",
        "in-degree": f"mean {degrees['mean']:.1f}, largest {degrees['max']:,}, "
        f"{degrees['num_zero']:,} nodes without in-edges",
        "splits": ", ".join(f"{name} {size:,}" for name, size in info["splits"].items()),
        "scores": ", ".join(info["scores"]) or "none",
        "features": f"{features['dim']} x {features['dtype']} "
        f"({format_bytes(features['row_bytes'])} a row), {format_bytes(features['bytes'])}",
        "feature files": striping,
        "topology": format_bytes(info["topology_bytes"]),
        "total": format_bytes(info["total_bytes"]),
    }
    for key, value in rows.items():
        table.add_row(key, value)
    return table
