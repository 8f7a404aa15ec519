"""Describes the nodes or edges of one type, as JSON and in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from lsm.core.units import format_bytes
from lsm.data.convert.array_file import ArrayFile
from lsm.data.edge_data import EdgeData
from lsm.data.graph_store import GraphStore
from lsm.data.node_data import NodeData


def features_of(store: GraphStore, nodes: NodeData) -> dict[str, Any] | None:
    """The features: their shape, type and files; None without any."""
    features = nodes.features
    if features is None:
        return None
    num_bytes = sum(store.meta.files[name].bytes for name in features.files)
    return {**features.model_dump(), "bytes": num_bytes}


def degrees_of(edges: EdgeData) -> dict[str, float | int]:
    """In-degrees, from the file: their mean, the largest, and the nodes without in-edges."""
    largest = isolated = last = 0
    with ArrayFile(edges.indptr_path) as indptr:
        for first, values in indptr.chunks():
            degrees = np.diff(values, prepend=last)[1 if first == 0 else 0 :]
            largest = max(largest, int(degrees.max(initial=0)))
            isolated += int(np.count_nonzero(degrees == 0))
            last = values[-1]
    mean = edges.num_edges / edges.num_destinations if edges.num_destinations else 0.0
    return {"mean": mean, "max": largest, "num_zero": isolated}


def features_in_words(features: dict[str, Any]) -> str:
    """The shape, type and size of features."""
    row, total = format_bytes(features["row_bytes"]), format_bytes(features["bytes"])
    return f"{features['dim']} x {features['dtype']} ({row} a row), {total}"


def labels_of(nodes: NodeData) -> dict[str, Any]:
    """The layout of labels that are numbers; nothing without such."""
    meta = nodes.label_meta
    return {} if meta is None else {"labels": meta.model_dump()}


def labels_in_words(info: dict[str, Any]) -> str:
    """The labels of nodes with the description ``info``; empty without labels."""
    if "labels" in info:
        return "numbers, {width:,} x {dtype}".format(**info["labels"])
    return f"{info['num_classes']:,} classes" if info["num_classes"] else ""


def files_in_words(features: dict[str, Any]) -> str:
    """The number of feature files."""
    striping = f"{len(features['files'])} file(s)"
    if len(features["files"]) > 1:
        striping += f", {format_bytes(features['stripe_bytes'])} stripes"
    return striping


def degrees_in_words(degrees: dict[str, float | int]) -> str:
    """The in-degrees."""
    return (
        f"mean {degrees['mean']:.1f}, largest {degrees['max']:,}, "
        f"{degrees['num_zero']:,} nodes without in-edges"
    )


def splits_in_words(splits: dict[str, int]) -> str:
    """The sizes of splits."""
    return ", ".join(f"{name} {size:,}" for name, size in splits.items())
