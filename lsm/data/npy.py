"""Converts a directory of .npy files (edge_index, node_feat, node_label, *_idx) to a store."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from lsm.data.features import check_conversion, feature_meta, write_features
from lsm.data.labels import write_labels, write_split
from lsm.data.progress import ByteProgress
from lsm.data.source import ArrayFile
from lsm.data.topology import write_topology
from lsm.store import format as layout
from lsm.store.format import FeatureMeta, StoreMeta
from lsm.store.graph_store import GraphStore
from lsm.store.writer import StoreWriter

_SPLIT_SOURCES = {"train": "train_idx.npy", "valid": "val_idx.npy", "test": "test_idx.npy"}
# Headers, meta.json and the file system's own needs.
SLACK_BYTES = 1 << 20


def convert_npy(
    src: str | Path,
    out: str | Path,
    *,
    name: str | None = None,
    dtype: str | None = None,
    num_classes: int | None = None,
    stripes: int = 1,
    stripe_bytes: int = layout.PAGE_BYTES,
    force: bool = False,
    progress: bool | None = None,
) -> GraphStore:
    """Writes the store ``out`` from the files in ``src`` and opens it.

    ``edge_index.npy``: [2, E] int32 or int64, row 0 sources, row 1 destinations; ``node_feat.npy``:
    [N, dim]; ``node_label.npy``: [N], NaN or -1 where unknown; ``train_idx.npy``, ``val_idx.npy``,
    ``test_idx.npy``: [n] node ids. Edges are kept as they are: no self-loops, reverse edges or
    duplicates are added or removed.

    ``dtype`` (float16, float32, bfloat16) converts the features. Memory: the topology and tens of
    MiB, whatever the size of the features. Raises ValueError or OSError and leaves nothing behind.
    """
    src = Path(src)
    if not src.is_dir():
        raise FileNotFoundError(f"{src}: no such directory")
    with contextlib.ExitStack() as stack:
        files = {
            key: stack.enter_context(ArrayFile(src / f"{key}.npy"))
            for key in ("edge_index", "node_feat", "node_label")
        }
        splits = {
            key: stack.enter_context(ArrayFile(src / file)) for key, file in _SPLIT_SOURCES.items()
        }
        features = files["node_feat"]
        num_nodes, meta = feature_layout(features, dtype, stripes, stripe_bytes)
        num_edges = files["edge_index"].expect_edges(edges_first=False)
        writer = stack.enter_context(StoreWriter(out, force=force))
        writer.require_bytes(store_bytes(num_nodes, num_edges, meta))
        bars = stack.enter_context(ByteProgress(progress))
        classes, state = write_labels(writer, files["node_label"], num_nodes, num_classes)
        for key, ids in splits.items():
            write_split(writer, key, ids, state)
        del state
        edges = files["edge_index"]
        write_topology(
            writer, edges, num_nodes, num_edges, bars.task("topology", 2 * edges.num_bytes)
        )
        write_features(writer, meta, features.chunks(), bars.task("features", features.num_bytes))
        source, source_name = _describe(src)
        writer.commit(
            StoreMeta(
                name=name or source_name,
                num_nodes=num_nodes,
                num_edges=num_edges,
                num_classes=classes,
                features=meta,
                source=source,
            )
        )
    return GraphStore.open(out)


def feature_layout(
    features: ArrayFile, dtype: str | None, stripes: int, stripe_bytes: int
) -> tuple[int, FeatureMeta]:
    """(number of nodes, layout in the store) of ``features``: [N, dim]."""
    if len(features.shape) != 2 or features.shape[1] == 0:
        raise ValueError(
            f"{features.path}: expected features [nodes, dim], got shape {list(features.shape)}"
        )
    num_nodes, dim = features.shape
    kind = check_conversion(str(features.dtype), dtype)
    return num_nodes, feature_meta(dim, kind, stripes, stripe_bytes)


def store_bytes(num_nodes: int, num_edges: int, features: FeatureMeta) -> int:
    """Bytes that a store takes on disk, a little more rather than less."""
    index_bytes = 4 if layout.index_dtype(num_nodes) == "int32" else 8
    topology = 8 * num_nodes + index_bytes * num_edges
    labels_and_splits = 16 * num_nodes
    padding = len(features.files) * layout.PAGE_BYTES
    return num_nodes * features.row_bytes + padding + topology + labels_and_splits + SLACK_BYTES


def _describe(src: Path) -> tuple[dict[str, Any], str]:
    """(``source`` of the store, its name) from the ``meta.json`` beside the arrays, if any."""
    with contextlib.suppress(OSError, ValueError):
        described = json.loads((src / "meta.json").read_text(encoding="utf-8"))
        if isinstance(described, dict):
            keys = ("description", "source", "licence", "split")
            source = {key: described[key] for key in keys if key in described}
            return {"format": "npy", **source}, str(described.get("name", src.resolve().name))
    return {"format": "npy"}, src.resolve().name
