"""Describes splits of edges: counts, rule, sizes."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from lsm.core.units import format_bytes
from lsm.data.links.splits import LinkSplits

_RULES = {
    "train": "no edge of valid or test",
    "earlier": "edges of train; for test also those of valid",
    "all": "every edge of the store",
}


def describe_links(splits: LinkSplits) -> dict[str, Any]:
    """The output of ``lsm data info --json``."""
    meta = splits.meta
    candidates = {name: splits.candidates(name) for name in splits.num_edges}
    return {
        "path": str(splits.path),
        "kind": meta.kind,
        "schema_version": meta.schema_version,
        "edge_type": list(meta.edge_type),
        "reverse_type": None if meta.reverse_type is None else list(meta.reverse_type),
        "splits": splits.num_edges,
        "order": meta.order,
        "seed": meta.seed,
        "message_edges": meta.message_edges,
        "candidates": {name: ids.size(1) for name, ids in candidates.items() if ids is not None},
        "total_bytes": sum(file.bytes for file in meta.files.values()),
    }


def links_table(info: dict[str, Any]) -> Table:
    """The description as a table for people."""
    table = Table(title=f"splits of edges ({info['path']})", show_header=False)
    order = f"random, seed {info['seed']}" if info["order"] == "random" else info["order"]
    rows = {
        "edge type": ",".join(info["edge_type"]),
        "reverse type": ",".join(info["reverse_type"] or ["none"]),
        "splits": ", ".join(f"{name} {count:,}" for name, count in info["splits"].items()),
        "order": order,
        "message edges": f"{info['message_edges']}: {_RULES[info['message_edges']]}",
    }
    if info["candidates"]:
        listed = (f"{name} {count:,} an edge" for name, count in info["candidates"].items())
        rows["candidates"] = ", ".join(listed)
    rows["total"] = format_bytes(info["total_bytes"])
    for key, value in rows.items():
        table.add_row(key, value)
    return table
