"""Writes a graph that is in memory, or mapped, to a store, with or without types."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lsm.core.progress import ByteProgress
from lsm.data import format as layout
from lsm.data.convert.array_file import ArrayFile
from lsm.data.convert.features import converted_meta, warn_of_wide, write_features
from lsm.data.convert.topology import InEdgeLists, write_topology
from lsm.data.convert.write_store import SLACK_BYTES, StoreOptions, store_bytes
from lsm.data.format import NodeMeta, StoreMeta
from lsm.data.graph_parts import Edges, Nodes, check_edges, check_nodes
from lsm.data.names import write_names
from lsm.data.sink import FileSink
from lsm.data.typed.format import EdgeMeta, TypedMeta, check_names, edge_folder, node_folder
from lsm.data.writer import StoreWriter
from lsm.graph.types import EDGE, NODE, EdgeType, EdgeTypes, NodeSpace

_STEP = 1 << 20
_CHUNK_BYTES = 16 << 20


def write_graph(
    out: str | Path,
    nodes: Mapping[str, Nodes],
    edges: Mapping[EdgeType, Edges],
    source: dict[str, Any],
    *,
    keep_order: bool = False,
    options: StoreOptions | None = None,
) -> None:
    """Writes the store ``out``; one type of nodes with features, NODE, and of edges, EDGE, make a
    store without types.

    ``keep_order`` keeps the edges' places in ``edges``. Memory, next to that of ``nodes`` and
    ``edges``: as InEdgeLists of the largest type. Raises ValueError or OSError, and leaves nothing
    behind then.
    """
    options = options or {}
    space = NodeSpace({name: each.num_nodes for name, each in nodes.items()})
    EdgeTypes(edges, space)  # checks them
    for each in edges.values():
        check_edges(each)
    for of_type in nodes.values():
        check_nodes(of_type)
    untyped = set(nodes) == {NODE} and set(edges) == {EDGE} and nodes[NODE].features is not None
    with (
        StoreWriter(out, force=options.get("force", False)) as writer,
        ByteProgress(options.get("progress")) as bars,
    ):
        meta = _meta(nodes, edges, source, untyped, options)
        writer.require_bytes(_bytes_of(nodes, edges, meta, keep_order))
        for edge_type, each in edges.items():  # first: a bad edge is told before rows are copied
            source_type, _, destination_type = edge_type
            lists = InEdgeLists(
                each,
                each.where("edge_index"),
                space.counts[source_type],
                space.counts[destination_type],
                bars.task("edges", 2 * each.ends.nbytes),
            )
            folder = layout.TOPOLOGY if untyped else edge_folder(edge_type)
            _write_edges(writer, folder, each, lists, nodes[source_type].times, keep_order)
        parts = meta.node_types.items() if isinstance(meta, TypedMeta) else [(NODE, meta)]
        for name, node_meta in parts:
            folder = "" if untyped else node_folder(name)
            _write_nodes(writer, folder, nodes[name], node_meta, untyped, bars)
        writer.commit(meta)


def _meta(
    nodes: Mapping[str, Nodes],
    edges: Mapping[EdgeType, Edges],
    source: dict[str, Any],
    untyped: bool,
    options: StoreOptions,
) -> StoreMeta | TypedMeta:
    graph_name = options.get("name") or source["format"]
    of_types = {
        name: NodeMeta(
            num_nodes=each.num_nodes,
            num_classes=each.num_classes,
            labels=each.label_meta,
            features=_feature_meta(each, "" if untyped else node_folder(name), options),
        )
        for name, each in nodes.items()
    }
    if untyped:
        num_edges = edges[EDGE].num_edges
        return StoreMeta(
            name=graph_name, num_edges=num_edges, source=source, **dict(of_types[NODE])
        )
    meta = TypedMeta(
        name=graph_name,
        node_types=of_types,
        edge_types=[
            EdgeMeta(source=s, relation=r, destination=d, num_edges=each.num_edges)
            for (s, r, d), each in edges.items()
        ],
        source=source,
    )
    check_names(meta)
    return meta


def _feature_meta(nodes: Nodes, folder: str, options: StoreOptions) -> layout.FeatureMeta | None:
    if nodes.features is None:
        return None
    stored = str(nodes.features.dtype).removeprefix("torch.")
    return converted_meta(nodes.where("x"), nodes.features.shape[1], stored, options, folder)


def _bytes_of(
    nodes: Mapping[str, Nodes],
    edges: Mapping[EdgeType, Edges],
    meta: StoreMeta | TypedMeta,
    keep_order: bool,
) -> int:
    """Upper estimate of the bytes of the store on disk."""
    if isinstance(meta, StoreMeta):
        total = store_bytes(meta.num_nodes, meta.num_edges, meta.features)
    else:
        total = SLACK_BYTES
        for each in meta.node_types.values():
            row_bytes = 0 if each.features is None else each.features.row_bytes
            total += each.num_nodes * (row_bytes + 16)
        for (start, _, destination), of_type in edges.items():
            index_bytes = np.dtype(layout.index_dtype(nodes[start].num_nodes)).itemsize
            total += index_bytes * of_type.num_edges + 8 * nodes[destination].num_nodes
    for node in nodes.values():
        total += 8 * node.num_nodes * (node.times is not None)
        total += 0 if node.labels is None else node.labels.nbytes
        total += sum(len(name.encode()) + 16 for name in node.names or ())
    for edge in edges.values():
        kept = (edge.weights, edge.times, edge.attr)
        total += sum(values.nbytes for values in kept if values is not None)
        total += 8 * edge.num_edges * keep_order
    return total


def _write_nodes(
    writer: StoreWriter,
    folder: str,
    nodes: Nodes,
    meta: NodeMeta | StoreMeta,
    untyped: bool,
    bars: ByteProgress,
) -> None:
    labels, splits = nodes.labels, dict(nodes.splits)
    if untyped:  # has them always
        none = torch.empty(0, dtype=torch.int64)
        labels = torch.full((nodes.num_nodes,), -1) if labels is None else labels
        splits = dict.fromkeys(layout.SPLITS, none) | splits
    if labels is not None and (meta.num_classes or meta.labels or untyped):
        writer.write_array(folder + layout.LABELS, labels.numpy())
    for split, ids in splits.items():
        writer.write_array(folder + layout.split_file(split), ids.numpy())
    if nodes.times is not None:
        writer.write_array(folder + layout.NODE_TIMES, nodes.times.numpy())
    if nodes.names is not None:
        write_names(writer.file(folder + layout.NAMES), nodes.names)
    if meta.features is not None and nodes.features is not None:
        where, rows = nodes.where("x"), nodes.features
        num_bytes = math.prod(rows.shape) * _numpy_bytes(rows)
        warn_of_wide(meta.features.dtype, num_bytes, where)
        advance = bars.task("features", num_bytes)
        write_features(writer, meta.features, _rows(rows), advance, where)


def _numpy_bytes(features: torch.Tensor | ArrayFile) -> int:
    """Of an element as NumPy has it: bfloat16 as float32."""
    return 4 if features.dtype == torch.bfloat16 else features.dtype.itemsize


def _rows(features: torch.Tensor | ArrayFile) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, rows) as NumPy has them."""
    if isinstance(features, ArrayFile):
        yield from features.chunks(_CHUNK_BYTES)
        return
    step = max(1, _CHUNK_BYTES // (features.shape[1] * _numpy_bytes(features)))
    for first in range(0, features.shape[0], step):
        rows = features[first : first + step].contiguous()
        yield first, (rows.float() if rows.dtype == torch.bfloat16 else rows).numpy()


def _write_edges(
    writer: StoreWriter,
    folder: str,
    edges: Edges,
    lists: InEdgeLists,
    source_times: torch.Tensor | None,
    keep_order: bool,
) -> None:
    """Writes the lists, by time if edges or their sources have times, and the edges' values."""
    values = {
        layout.WEIGHTS: edges.weights,
        layout.EDGE_TIMES: edges.times,
        layout.EDGE_ATTR: edges.attr,
    }
    kept = {name: each for name, each in values.items() if each is not None}
    has_times = edges.times is not None or source_times is not None
    if not (kept or has_times or keep_order):
        write_topology(writer, folder, lists)
        return
    writer.write_array(f"{folder}indptr.npy", lists.indptr)
    times_of = partial(_times, edges, source_times) if has_times else None
    with contextlib.ExitStack() as opened:

        def sink_of(name: str, dtype: Any, *shape: int) -> FileSink:
            sink = opened.enter_context(writer.file(folder + name))
            sink.write_header(dtype, *shape)
            return sink

        indices = sink_of("indices.npy", lists.dtype, lists.num_edges)
        sinks = [
            (each, sink_of(name, each[:0].numpy().dtype, *each.shape))
            for name, each in kept.items()
        ]
        order_sink = None
        if keep_order:
            order_sink = sink_of(layout.ORDER, np.dtype(np.int64), lists.num_edges)
        for order in lists.order(times_of):
            for places in torch.from_numpy(order).split(_STEP):
                indices.write(edges.sources[places].numpy().astype(lists.dtype, copy=False))
                for each, sink in sinks:
                    sink.write(each[places].contiguous().numpy())
            if order_sink is not None:
                order_sink.write(order)


def _times(edges: Edges, source_times: torch.Tensor | None, order: np.ndarray) -> np.ndarray:
    """The times of the edges at positions [n], or of their sources: [n] int64."""
    found = np.empty(len(order), np.int64)
    places = torch.from_numpy(order)
    for first in range(0, len(order), _STEP):
        part = places[first : first + _STEP]
        if edges.times is not None:
            times = edges.times[part]
        else:
            assert source_times is not None
            times = source_times[edges.sources[part].long()]
        found[first : first + _STEP] = times.numpy()
    return found
