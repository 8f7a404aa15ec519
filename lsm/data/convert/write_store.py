"""Writes a store from arrays on disk, for all source formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from lsm.core.progress import ByteProgress
from lsm.data import format as layout
from lsm.data.convert.array_file import ArrayFile
from lsm.data.convert.features import converted_meta, warn_of_wide, write_features
from lsm.data.convert.labels import write_labels
from lsm.data.convert.topology import InEdgeLists, write_topology
from lsm.data.format import FeatureMeta, StoreMeta
from lsm.data.graph_store import GraphStore
from lsm.data.writer import StoreWriter

# Headers, meta.json and the file system's own needs.
SLACK_BYTES = 1 << 20


class StoreOptions(TypedDict, total=False):
    """Options of a store, for every source."""

    name: str | None  # of the graph; default: the source's
    dtype: str | None  # float16, float32 or bfloat16 converts the features
    stripes: int  # feature files; 1 by default
    stripe_bytes: int  # a multiple of 4096, the default
    force: bool  # replace an existing store, once the new one is complete
    progress: bool | None  # bars on stderr; None: if it is a terminal


@dataclass(frozen=True)
class GraphSource:
    """A graph on disk before conversion."""

    name: str
    description: dict[str, Any]
    edges: ArrayFile
    edges_first: bool  # [E, 2] instead of [2, E]
    features: ArrayFile  # [N, dim]
    labels: ArrayFile | None  # [N] or [N, k]; None: a graph without labels
    write_splits: Callable[[StoreWriter, np.ndarray], object]  # gets the state of each node
    num_classes: int | None = None  # None: the largest label + 1
    num_labelled: int | None = None  # None: every node may have a label


def write_store(graph: GraphSource, out: str | Path, options: StoreOptions) -> GraphStore:
    """Writes ``graph`` to the store ``out`` and opens it.

    Memory: the topology, one byte per node and tens of MiB, whatever the size of the features.
    Raises ValueError or OSError, and leaves nothing behind then.
    """
    features, edges = graph.features, graph.edges
    meta = _feature_layout(features, options)
    num_nodes = features.num_rows
    num_edges = edges.expect_edges(edges_first=graph.edges_first)
    with (
        StoreWriter(out, force=options.get("force", False)) as writer,
        ByteProgress(options.get("progress")) as bars,
    ):
        room = 0 if graph.labels is None else graph.labels.num_bytes
        writer.require_bytes(store_bytes(num_nodes, num_edges, meta) + room)
        num_classes, numbers, state = write_labels(
            writer, graph.labels, num_nodes, graph.num_classes, graph.num_labelled
        )
        graph.write_splits(writer, state)
        del state
        sorting = bars.task("topology", 2 * edges.num_bytes)
        lists = InEdgeLists(edges, str(edges.path), num_nodes, num_nodes, sorting)
        write_topology(writer, layout.TOPOLOGY, lists)
        advance = bars.task("features", features.num_bytes)
        write_features(writer, meta, features.chunks(), advance, str(features.path))
        writer.commit(
            StoreMeta(
                name=options.get("name") or graph.name,
                num_nodes=num_nodes,
                num_edges=num_edges,
                num_classes=num_classes,
                labels=numbers,
                features=meta,
                source=graph.description,
            )
        )
    return GraphStore.open(out)


def _feature_layout(features: ArrayFile, options: StoreOptions) -> FeatureMeta:
    if len(features.shape) != 2 or features.shape[1] == 0:
        raise ValueError(
            f"{features.path}: expected features [nodes, dim], got shape {list(features.shape)}"
        )
    where = str(features.path)
    meta = converted_meta(where, features.shape[1], str(features.dtype), options)
    warn_of_wide(meta.dtype, features.num_bytes, where)
    return meta


def store_bytes(num_nodes: int, num_edges: int, features: FeatureMeta) -> int:
    """Upper estimate of the bytes of a store on disk."""
    topology = sum(layout.topology_bytes("", num_nodes, num_nodes, num_edges).values())
    labels_and_splits = 16 * num_nodes
    padding = len(features.files) * layout.PAGE_BYTES
    return num_nodes * features.row_bytes + padding + topology + labels_and_splits + SLACK_BYTES
