"""Makes graphs with types, of any size, whose labels can be learnt from the neighbours.

Each chunk has a random stream of its own, keyed by (seed, purpose, type, chunk), so the result does
not depend on threads or timing.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from lsm.data import format as layout
from lsm.data.convert.features import convert, feature_meta
from lsm.data.convert.write_store import SLACK_BYTES, StoreOptions
from lsm.data.format import FeatureMeta, NodeMeta
from lsm.data.graph_store import GraphStore
from lsm.data.stripes import StripedWriter
from lsm.data.synth import (
    SynthSpec,
    chunks,
    generator,
    make_centroids,
    parse_parameters,
    write_splits,
)
from lsm.data.typed.format import EdgeMeta, TypedMeta, edge_folder, node_folder
from lsm.data.writer import StoreWriter
from lsm.graph.types import EdgeType

_CHUNK = 1 << 16  # nodes
_FEATURE_CHUNK_BYTES = 8 << 20
TARGET = "target"
MOST_TYPES = 64


class _Stream(IntEnum):
    """The purposes of random streams, after those of graphs without types."""

    CLASSES = 100
    EDGES = 101
    CENTROIDS = 102
    FEATURES = 103


def synthesize_typed(out: str | Path, num_types: int, **parameters: Any) -> GraphStore:
    """Makes the store ``out``: ``target`` nodes, as many as ``nodes``, and ``num_types - 1``
    further types of half as many nodes each as the one before. ``parameters`` are the fields of
    ``SynthSpec`` and StoreOptions; degrees and popularity follow no power law.

    Every node has a class; those of ``target`` are its labels. Targets have ``spec.dim`` features,
    the second type half as many, the last type none: the centroid of the class plus noise. Edges
    lead from targets to targets and between targets and each other type, in both directions; a
    destination has ``spec.avg_degree`` of each type on average (Poisson), of which ``homophily``
    have sources of its class. Memory: 16 bytes per node and tens of MiB.
    """
    spec, options = parse_parameters(parameters)
    if not 2 <= num_types <= MOST_TYPES:
        raise ValueError(f"types: expected 2 to {MOST_TYPES}, got {num_types}")
    counts = {TARGET: spec.nodes}
    for number in range(1, num_types):
        counts[f"type{number}"] = max(spec.classes, spec.nodes >> number)
    metas = {
        name: _node_meta(name, number, num_types, count, spec, options)
        for number, (name, count) in enumerate(counts.items())
    }
    edge_types: list[EdgeType] = [(TARGET, "links", TARGET)]
    for name in list(counts)[1:]:
        edge_types += [(name, f"of_{name}", TARGET), (TARGET, f"rev_of_{name}", name)]
    with StoreWriter(out, force=options.get("force", False)) as writer:
        rows = sum(m.num_nodes * m.features.row_bytes for m in metas.values() if m.features)
        into = sum(counts[destination] for _, _, destination in edge_types)
        needed = rows + 16 * spec.nodes + int(into * (9 + 8.8 * spec.avg_degree))
        writer.require_bytes(SLACK_BYTES + needed)
        groups = {
            name: _Classes(spec, number, count)
            for number, (name, count) in enumerate(counts.items())
        }
        for number, (name, meta) in enumerate(metas.items()):
            if meta.features is not None:
                _write_features(writer, spec, number, meta.features, groups[name].classes)
        writer.write_array(node_folder(TARGET) + layout.LABELS, groups[TARGET].classes.astype("i8"))
        write_splits(spec, writer, node_folder(TARGET))
        edges = []
        for number, (s, relation, d) in enumerate(edge_types):
            folder = edge_folder((s, relation, d))
            count = _write_edges(writer, spec, number, folder, groups[s], groups[d])
            edges.append(EdgeMeta(source=s, relation=relation, destination=d, num_edges=count))
        writer.commit(
            TypedMeta(
                name=options.get("name") or "synth",
                node_types=metas,
                edge_types=edges,
                source={"format": "synth", "types": num_types, **spec.model_dump()},
            )
        )
    return GraphStore.open(out)


class _Classes:
    """The class of each node of a type, and the nodes of each class."""

    def __init__(self, spec: SynthSpec, number: int, count: int) -> None:
        self.classes = np.empty(count, np.int32)
        for chunk, first, last in chunks(count, _CHUNK):
            draws = generator(spec.seed, _Stream.CLASSES, number, chunk)
            self.classes[first:last] = draws.integers(spec.classes, size=last - first)
        self.classes[: spec.classes] = np.arange(spec.classes)[:count]  # none is empty
        self.members = np.argsort(self.classes, kind="stable").astype(layout.index_dtype(count))
        counts = np.bincount(self.classes, minlength=spec.classes)
        self.starts = np.concatenate([[0], np.cumsum(counts)])

    def draw(self, homes: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        """One node of each class in ``homes``."""
        sizes = np.diff(self.starts)[homes]
        return self.members[self.starts[homes] + draws.integers(sizes)]


def _node_meta(
    name: str, number: int, num_types: int, count: int, spec: SynthSpec, options: StoreOptions
) -> NodeMeta:
    features = None
    if number < max(1, num_types - 1):
        dim, dtype = max(1, spec.dim >> number), options.get("dtype") or "float32"
        features = feature_meta(dim, dtype, options, node_folder(name))
    classes = spec.classes if name == TARGET else 0
    return NodeMeta(num_nodes=count, num_classes=classes, features=features)


def _write_features(
    writer: StoreWriter, spec: SynthSpec, number: int, meta: FeatureMeta, classes: np.ndarray
) -> None:
    draws = generator(spec.seed, _Stream.CENTROIDS, number, 0)
    centroids = make_centroids(spec, draws, meta.dim)
    striped = StripedWriter([writer.file(name) for name in meta.files], meta.stripe_bytes)
    step = max(1, _FEATURE_CHUNK_BYTES // (4 * meta.dim))
    for chunk, first, last in chunks(len(classes), step):
        draws = generator(spec.seed, _Stream.FEATURES, number, chunk)
        rows = draws.standard_normal((last - first, meta.dim), dtype=np.float32)
        striped.write(convert(rows + centroids[classes[first:last]], meta.dtype, first))
    striped.close()


def _write_edges(
    writer: StoreWriter,
    spec: SynthSpec,
    number: int,
    folder: str,
    sources: _Classes,
    destinations: _Classes,
) -> int:
    """Writes the structure of edge type ``number``; returns the number of edges."""
    dtype = np.dtype(layout.index_dtype(len(sources.classes)))
    degrees = np.empty(len(destinations.classes), np.int64)
    num_edges = 0
    with writer.file(f"{folder}indices.npy") as sink:
        sink.write_header(dtype, 0)
        for chunk, first, last in chunks(len(degrees), _CHUNK):
            draws = generator(spec.seed, _Stream.EDGES, number, chunk)
            degrees[first:last] = draws.poisson(spec.avg_degree, last - first)
            homes = np.repeat(destinations.classes[first:last], degrees[first:last])
            anywhere = draws.random(len(homes)) >= spec.homophily
            homes[anywhere] = draws.integers(spec.classes, size=int(anywhere.sum()))
            sink.write(sources.draw(homes, draws).astype(dtype))
            num_edges += len(homes)
        sink.replace_header(dtype, num_edges)
    with writer.file(f"{folder}indptr.npy") as sink:
        sink.write_header(np.dtype(np.int64), len(degrees) + 1)
        sink.write(np.zeros(1, np.int64))
        sink.write(np.cumsum(degrees))
    return num_edges
