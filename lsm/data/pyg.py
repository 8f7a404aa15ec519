"""Graphs of PyG (``Data``, ``HeteroData``) to stores, and back."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.data import Data, HeteroData

from lsm.core import host_memory
from lsm.core.suggest import require_known
from lsm.data.convert.write_store import StoreOptions
from lsm.data.edge_data import EdgeData
from lsm.data.format import without_scores
from lsm.data.graph_parts import (
    Edges,
    Nodes,
    as_attr,
    as_ends,
    as_labels,
    as_names,
    as_tensor,
    as_times,
    as_weights,
)
from lsm.data.node_data import NodeData
from lsm.data.stripes import StripedReader
from lsm.data.write_graph import write_graph
from lsm.graph.types import EDGE, NODE, EdgeType

if TYPE_CHECKING:
    from lsm.data.graph_store import GraphStore

logger = logging.getLogger(__name__)

MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
"""PyG's names of masks by split."""
_OF_NODES = {"x", "y", "time", "names", "num_nodes", *MASKS.values()}
_OF_EDGES = {"edge_index", "edge_weight", "edge_attr", "time"}
_READ_BYTES = 64 << 20


def from_pyg(
    data: Data | HeteroData, path: str | Path, *, keep_order: bool, options: StoreOptions
) -> None:
    """Writes the store ``path``; see ``GraphStore.from_pyg``."""
    require_known("from_pyg", options, ("keep_order", *StoreOptions.__annotations__))
    left_out: list[str] = []
    nodes: dict[str, Nodes] = {}
    edges: dict[EdgeType, Edges] = {}
    if isinstance(data, HeteroData):
        for name in data.node_types:
            nodes[name] = _nodes(f"data[{name!r}]", dict(data[name].items()), data[name].num_nodes)
            left_out += _others(f"data[{name!r}]", data[name].keys(), _OF_NODES)
        for edge_type in data.edge_types:
            where = f"data[{', '.join(map(repr, edge_type))}]"
            edges[edge_type] = _edges(where, dict(data[edge_type].items()), "time")
            if edges[edge_type].num_edges == 0:
                raise ValueError(f"{where}: has no edges; remove the type with `del {where}`")
            left_out += _others(where, data[edge_type].keys(), _OF_EDGES)
        left_out += _others("data", data._global_store.keys(), ())
    elif isinstance(data, Data):
        values = dict(data._store.items())
        times = values.get("time")
        shape = tuple(times.shape) if isinstance(times, torch.Tensor) else None
        if shape == (data.num_edges,) != (data.num_nodes,):
            raise ValueError(
                f"data.time: expected [{data.num_nodes}], as of nodes, got {list(shape)}, as of "
                "edges, whose times are data.edge_time"
            )
        nodes[NODE] = _nodes("data", values, data.num_nodes)
        edges[EDGE] = _edges("data", values, "edge_time")
        known = _OF_NODES | _OF_EDGES | {"edge_time"}
        left_out += _others("data", values, known)
    else:
        raise TypeError(f"data: expected PyG's Data or HeteroData, got {type(data).__name__}")
    write_graph(path, nodes, edges, {"format": "pyg"}, keep_order=keep_order, options=options)
    if left_out:
        logger.warning(
            "%s: not kept: %s: a store has x, y, masks, time and names of nodes, edge_weight, "
            "edge_attr and time of edges; in your own loop, index other values with batch.n_id "
            "and batch.e_id",
            path,
            ", ".join(left_out),
        )


def to_pyg(store: GraphStore) -> Data | HeteroData:
    """See ``GraphStore.to_pyg``."""
    _require_memory(store)
    if not store.is_typed:
        return Data(**_node_values(store.nodes()), **_edge_values(store.edges(), "edge_time"))
    data = HeteroData()
    for name in store.node_types:
        data[name].update(_node_values(store.nodes(name)))
    for edge_type in store.edge_types:
        data[edge_type].update(_edge_values(store.edges(edge_type), "time"))
    return data


def _others(where: str, found: Iterable[str], known: Iterable[str]) -> list[str]:
    return [f"{where}.{name}" for name in found if name not in set(known)]


def _nodes(where: str, values: dict[str, Any], num_nodes: int | None) -> Nodes:
    if num_nodes is None:
        raise ValueError(f"{where}: its number of nodes is unknown; set {where}.num_nodes")
    return Nodes(
        where,
        num_nodes,
        features=as_tensor(f"{where}.x", values.get("x")),
        labels=as_labels(f"{where}.y", values.get("y")),
        splits={
            split: _split(f"{where}.{mask}", values[mask], num_nodes)
            for split, mask in MASKS.items()
            if values.get(mask) is not None
        },
        times=as_times(f"{where}.time", values.get("time")),
        names=as_names(f"{where}.names", values.get("names")),
    )


def _split(where: str, value: Any, num_nodes: int) -> torch.Tensor:
    mask = as_tensor(where, value)
    if mask is None or mask.dtype != torch.bool or mask.shape != (num_nodes,):
        got = "nothing" if mask is None else f"{mask.dtype} {list(mask.shape)}"
        raise ValueError(
            f"{where}: expected bool [{num_nodes}], got {got}; of several masks, keep one column"
        )
    return mask.nonzero().view(-1)


def _edges(where: str, values: dict[str, Any], time: str) -> Edges:
    remedy = "; make it from adj_t" if "adj_t" in values else ""
    ends = as_ends(f"{where}.edge_index", values.get("edge_index"), remedy)
    return Edges(
        where,
        ends,
        weights=as_weights(f"{where}.edge_weight", values.get("edge_weight")),
        times=as_times(f"{where}.{time}", values.get(time)),
        attr=as_attr(f"{where}.edge_attr", values.get("edge_attr")),
    )


def _require_memory(store: GraphStore) -> None:
    needed = sum(file.bytes for file in without_scores(store.meta.files).values())
    needed += 20 * store.num_edges  # edge_index, and its way there
    remedy = "iterate over batches with lsm.NeighborLoader"
    host_memory.require(f"{store.path}: the whole graph", needed, remedy)


def _node_values(nodes: NodeData) -> dict[str, Any]:
    values: dict[str, Any] = {"num_nodes": nodes.num_nodes}
    if nodes.features is not None:
        values = {"x": _features(nodes)}
    if nodes.has_labels:
        values["y"] = nodes.labels(in_memory=True)
    if has_masks(nodes):
        values |= {MASKS[split]: mask_of(nodes, split) for split in nodes.splits}
    if nodes.has_times:
        values["time"] = nodes.times(in_memory=True)
    if nodes.has_names:
        values["names"] = list(nodes.names())
    return values


def has_masks(nodes: NodeData) -> bool:
    """True if a split has nodes."""
    return any(len(nodes.split(split)) for split in nodes.splits)


def mask_of(nodes: NodeData, split: str) -> torch.Tensor:
    """The mask of a split: [N] bool."""
    mask = torch.zeros(nodes.num_nodes, dtype=torch.bool)
    mask[nodes.split(split)] = True
    return mask


def _features(nodes: NodeData) -> torch.Tensor:
    files = nodes.feature_files
    rows = torch.empty(nodes.num_nodes, files.dim, dtype=files.dtype)
    data = rows.view(torch.uint8).view(-1).numpy()
    with StripedReader(files.paths, files.stripe_bytes) as reader:
        for first in range(0, len(data), _READ_BYTES):
            part = data[first : first + _READ_BYTES]
            part[:] = reader.read(first, len(part))
    return rows


def _edge_values(edges: EdgeData, time: str) -> dict[str, Any]:
    values = {"edge_index": edges.in_order(edges.ends(in_memory=True), dim=1)}
    if edges.has_weights:
        values["edge_weight"] = edges.in_order(edges.weights(in_memory=True))
    if edges.has_attr:
        values["edge_attr"] = edges.in_order(edges.attr(in_memory=True))
    if edges.has_times:
        values[time] = edges.in_order(edges.times(in_memory=True))
    return values
