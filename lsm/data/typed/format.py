"""A store of a graph with types of nodes and edges: names of its files, ``meta.json``.

The files of a node type lie in ``nodes/TYPE/``, with the names of a store without types; those of
an edge type in ``edges/SOURCE,RELATION,DESTINATION/``. Optional files are there if ``meta.json``
lists them: labels, splits, times, names; weights, times, attributes and order of edges.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pydantic import Field

from lsm.core.versioned_json import read_versioned
from lsm.data import format as layout
from lsm.data.format import FileMeta, MetaPart, NodeMeta, StoreMeta
from lsm.graph.types import EDGE, NODE, EdgeType, EdgeTypes, NodeSpace

_MOST_NAME_BYTES = 255  # of a file's name on Linux


class EdgeMeta(MetaPart):
    """The edges of one type."""

    source: str
    relation: str
    destination: str
    num_edges: int = Field(ge=0)

    @property
    def edge_type(self) -> EdgeType:
        """The type as PyG has it."""
        return self.source, self.relation, self.destination


class TypedMeta(MetaPart):
    """Contents of ``meta.json``. ``files`` lists every file of the store but ``meta.json``
    itself."""

    schema_version: int = layout.SCHEMA_VERSION
    kind: Literal["typed"] = "typed"
    name: str
    node_types: dict[str, NodeMeta] = Field(min_length=1)
    """In the order of their ids in the one space of all types."""
    edge_types: list[EdgeMeta]
    files: dict[str, FileMeta] = Field(default_factory=dict)
    source: str | dict[str, Any] = ""

    @property
    def node_space(self) -> NodeSpace:
        """The ids of the nodes by type. Raises ValueError for bad types."""
        return NodeSpace({name: meta.num_nodes for name, meta in self.node_types.items()})

    def edge_types_in(self, nodes: NodeSpace) -> EdgeTypes:
        """The edge types, between types of ``nodes``. Raises ValueError for bad types."""
        return EdgeTypes((each.edge_type for each in self.edge_types), nodes)


def node_folder(node_type: str) -> str:
    """The folder of a node type in a store, with the slash."""
    return f"nodes/{_as_name(node_type)}/"


def edge_folder(edge_type: EdgeType) -> str:
    """The folder of an edge type in a store, with the slash; one to one."""
    return f"edges/{','.join(map(_as_name, edge_type))}/"


def node_parts(meta: StoreMeta | TypedMeta) -> dict[str, tuple[str, NodeMeta]]:
    """(folder, description) of each node type."""
    if isinstance(meta, TypedMeta):
        return {name: (node_folder(name), nodes) for name, nodes in meta.node_types.items()}
    of_all = NodeMeta(
        num_nodes=meta.num_nodes,
        num_classes=meta.num_classes,
        labels=meta.labels,
        features=meta.features,
    )
    return {NODE: ("", of_all)}


def edge_parts(meta: StoreMeta | TypedMeta) -> dict[EdgeType, tuple[str, int]]:
    """(folder, number of edges) of each edge type."""
    if isinstance(meta, TypedMeta):
        of_type = {each.edge_type: each.num_edges for each in meta.edge_types}
        return {name: (edge_folder(name), num_edges) for name, num_edges in of_type.items()}
    return {EDGE: (layout.TOPOLOGY, meta.num_edges)}


def counts_by_name(meta: StoreMeta | TypedMeta) -> dict[str, Any]:
    """The counts and types that tell two stores apart."""
    if isinstance(meta, StoreMeta):
        return {
            "store.num_nodes": meta.num_nodes,
            "store.num_edges": meta.num_edges,
            "store.num_classes": meta.num_classes,
            "store.feature_dim": meta.features.dim,
            "store.feature_dtype": meta.features.dtype,
        }
    counts: dict[str, Any] = {}
    for name, nodes in meta.node_types.items():
        features = nodes.features
        counts[f"store.nodes({name!r}).num_nodes"] = nodes.num_nodes
        counts[f"store.nodes({name!r}).num_classes"] = nodes.num_classes
        counts[f"store.nodes({name!r}).features"] = (
            None if features is None else f"{features.dim} x {features.dtype}"
        )
    for each in meta.edge_types:
        counts[f"store.edges({each.edge_type}).num_edges"] = each.num_edges
    return counts


def read_graph_meta(store: Path) -> StoreMeta | TypedMeta:
    """``meta.json`` of a store of a graph, with or without types, checked for consistency. Raises
    FileNotFoundError if there is none, ValueError if it cannot be used."""
    path, kind = store / layout.META, layout.kind_of(store, "lsm data")
    if kind == "triples":
        raise ValueError(
            f"{store}: expected a store of a graph with features, got one of triples; that kind is "
            f"for `lsm embed`; for this one, {layout.REMEDY}"
        )
    if kind == "links":
        raise ValueError(
            f"{store}: expected a store, got splits of its edges; give the store that they are of"
        )
    model: type[StoreMeta | TypedMeta] = TypedMeta if kind == "typed" else StoreMeta
    meta = read_versioned(path, model, layout.SCHEMA_VERSION, layout.REMEDY)
    if isinstance(meta, TypedMeta):
        try:
            meta.edge_types_in(meta.node_space)
            check_names(meta)
        except ValueError as error:
            raise ValueError(f"{path}: {error}; {layout.REMEDY}") from None
    else:
        always = [layout.LABELS, *map(layout.split_file, layout.SPLITS)]
        layout.require_listed(path, meta.files, always)
    _check_nodes(path, meta)
    _check_edges(path, meta)
    return meta


def check_names(meta: TypedMeta) -> None:
    """Raises ValueError if a name of a type is too long for a folder."""
    for folder in [part[0] for part in (*node_parts(meta).values(), *edge_parts(meta).values())]:
        if len(folder.split("/")[1]) > _MOST_NAME_BYTES:
            raise ValueError(f"type {folder}: expected a shorter name")


def _check_nodes(path: Path, meta: StoreMeta | TypedMeta) -> None:
    for name, (folder, nodes) in node_parts(meta).items():
        where = f"node_types.{name}." if isinstance(meta, TypedMeta) else ""
        layout.require_classes(path, f"{where}num_classes", nodes)
        is_labelled = nodes.num_classes > 0 or nodes.labels is not None
        layout.require_listed(path, meta.files, [folder + layout.LABELS] * is_labelled)
        if nodes.features is not None:
            layout.check_features(
                path, f"{where}features", nodes.features, nodes.num_nodes, meta.files
            )
        least = {
            folder + layout.LABELS: nodes.label_bytes * nodes.num_nodes,
            folder + layout.NODE_TIMES: 8 * nodes.num_nodes,
        }
        layout.require_bytes(path, meta.files, least, f"{nodes.num_nodes} nodes")


def _check_edges(path: Path, meta: StoreMeta | TypedMeta) -> None:
    counts = {name: nodes.num_nodes for name, (_, nodes) in node_parts(meta).items()}
    for (source, _, destination), (folder, num_edges) in edge_parts(meta).items():
        num_sources, num_nodes = counts[source], counts[destination]
        least = layout.topology_bytes(folder, num_sources, num_nodes, num_edges)
        layout.require_listed(path, meta.files, least)
        sizes = {layout.WEIGHTS: 4, layout.EDGE_TIMES: 8, layout.ORDER: 8, layout.EDGE_ATTR: 1}
        least |= {folder + name: size * num_edges for name, size in sizes.items()}
        words = f"{num_nodes} nodes and {num_edges} edges"
        layout.require_bytes(path, meta.files, least, words)


def _as_name(text: str) -> str:
    """``text`` as a part of a file's name, without slashes, commas and dots; one to one."""
    return quote(text, safe=" ").replace(".", "%2E")
