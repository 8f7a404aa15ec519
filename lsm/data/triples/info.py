"""Describes a store of triples: counts, sizes, degrees, oddities of its source."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table

from lsm.core.units import format_bytes
from lsm.data import format as layout
from lsm.data.convert.array_file import ArrayFile
from lsm.data.triples.format import TripleCounts, edge_file
from lsm.data.triples.store import TripleStore


def describe_triples(store: TripleStore) -> dict[str, Any]:
    """The record that ``lsm data info --json`` prints of triples; streams the edges. Memory: 8
    bytes per entity."""
    meta = store.meta
    return {
        "path": str(store.path),
        "kind": meta.kind,
        "name": store.name,
        "schema_version": meta.schema_version,
        "num_entities": store.num_entities,
        "num_relations": store.num_relations,
        "splits": {split: meta.splits[split] for split in layout.SPLITS},
        "degree": _degrees(store),
        "parts": meta.parts,
        "counts": meta.counts.model_dump(),
        "edge_bytes": sum(meta.files[edge_file(split)].bytes for split in layout.SPLITS),
        "total_bytes": sum(file.bytes for file in meta.files.values()),
        "source": meta.source,
    }


def _degrees(store: TripleStore) -> dict[str, float | int]:
    """Degrees in train, heads and tails together."""
    degrees = np.zeros(store.num_entities, np.int64)
    with ArrayFile(store.path / edge_file("train")) as edges:
        for _, rows in edges.chunks():
            for column in (0, -1):
                np.add.at(degrees, rows[:, column], 1)
    mean = float(degrees.mean())
    return {"mean": mean, "max": int(degrees.max()), "num_zero": int((degrees == 0).sum())}


def triples_table(info: dict[str, Any]) -> Table:
    """``describe_triples``'s answer for people."""
    degree = info["degree"]
    table = Table(title=f"{info['name']} ({info['path']})", show_header=False)
    rows = {
        "entities": f"{info['num_entities']:,}",
        "relations": f"{info['num_relations']:,}" if info["num_relations"] else "none",
        "splits": ", ".join(f"{split} {size:,}" for split, size in info["splits"].items()),
        "degree in train": f"mean {degree['mean']:.1f}, largest {degree['max']:,}, "
        f"{degree['num_zero']:,} entities without edges",
        "buckets": f"{info['parts']} x {info['parts']} parts, of which partitions are made",
        "edges": format_bytes(info["edge_bytes"]),
        "total": format_bytes(info["total_bytes"]),
    }
    for key, value in rows.items():
        table.add_row(key, value)
    for line in oddities(TripleCounts(**info["counts"])):
        table.add_row("of the source", line)
    return table


def oddities(counts: TripleCounts) -> list[str]:
    """The oddities of a source that there are, one line each."""
    lines = {
        "malformed lines, skipped": counts.malformed,
        "duplicates within a split, left out": counts.duplicates,
        "triples of valid or test that train has too, kept": counts.leaked,
        "self-loops, kept": counts.self_loops,
        "entities that no training triple has": counts.entities_not_in_train,
        "relations that no training triple has": counts.relations_not_in_train,
    }
    return [f"{what}: {count:,}" for what, count in lines.items() if count]
