"""Converts a directory of .npy files (edge_index, node_feat, node_label, splits) to a store."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from lsm.data.convert.array_file import ArrayFile
from lsm.data.convert.labels import write_split
from lsm.data.convert.write_store import GraphSource, StoreOptions, write_store
from lsm.data.graph_store import GraphStore
from lsm.data.writer import StoreWriter

_SPLIT_SOURCES = {"train": "train", "valid": "val", "test": "test"}


def convert_npy(
    src: str | Path,
    out: str | Path,
    *,
    num_classes: int | None = None,
    **options: Unpack[StoreOptions],
) -> GraphStore:
    """Writes the store ``out`` from the files in ``src`` and opens it.

    ``edge_index.npy``: [2, E] int32 or int64, row 0 sources, row 1 destinations; ``node_feat.npy``:
    [N, dim]; ``node_label.npy``: [N], NaN or -1 where unknown; ``train_idx.npy``, ``val_idx.npy``,
    ``test_idx.npy``: [n] node ids, or a mask of the nodes, [N] bool; a mask may also be called
    ``train_mask.npy``, as in PyG. Edges are kept as they are: no self-loops, reverse edges or
    duplicates are added or removed. The store has them by destination, those of one destination in
    the order of ``edge_index``: ``np.argsort(edge_index[1], kind="stable")``. Arrays may be of
    either byte order.

    See ``StoreOptions``. Raises ValueError or OSError and leaves nothing behind.
    """
    src = Path(src)
    if not src.is_dir():
        raise FileNotFoundError(f"{src}: no such directory")
    source, source_name = _describe(src)
    with contextlib.ExitStack() as stack:

        def array(file: str) -> ArrayFile:
            return stack.enter_context(ArrayFile(src / file))

        edges, features, labels = map(array, ("edge_index.npy", "node_feat.npy", "node_label.npy"))
        splits = {
            split: stack.enter_context(ArrayFile(_split_file(src, stem), masks=True))
            for split, stem in _SPLIT_SOURCES.items()
        }

        def write_splits(writer: StoreWriter, state: np.ndarray) -> None:
            for split, ids in splits.items():
                write_split(writer, split, ids, state)

        graph = GraphSource(
            name=source_name,
            description=source,
            edges=edges,
            edges_first=False,
            features=features,
            labels=labels,
            write_splits=write_splits,
            num_classes=num_classes,
        )
        return write_store(graph, out, options)


def _split_file(src: Path, stem: str) -> Path:
    """``STEM_idx.npy``, or ``STEM_mask.npy`` where only that exists."""
    ids, mask = src / f"{stem}_idx.npy", src / f"{stem}_mask.npy"
    if ids.exists() and mask.exists():
        raise ValueError(f"{src}: expected one of {ids.name} and {mask.name}, got both; remove one")
    return mask if mask.exists() else ids


def _describe(src: Path) -> tuple[dict[str, Any], str]:
    """(``source`` of the store, its name) from the ``meta.json`` beside the arrays, if any."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        described = json.loads((src / "meta.json").read_text(encoding="utf-8"))
        if isinstance(described, dict):
            keys = ("description", "source", "licence", "split")
            source = {key: described[key] for key in keys if key in described}
            return {"format": "npy", **source}, str(described.get("name", src.resolve().name))
    return {"format": "npy"}, src.resolve().name
