"""Converts a directory of .npy files (edge_index, node_feat, node_label, splits) to a store."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Unpack

import numpy as np

from lsm.data.convert.array_file import ArrayFile
from lsm.data.convert.labels import split_file, split_names, write_split
from lsm.data.convert.left_out import warn_of_left_out
from lsm.data.convert.typed_npy import (
    convert_typed_npy,
    convert_with_values,
    described,
    has_values,
    is_typed,
)
from lsm.data.convert.write_store import GraphSource, StoreOptions, write_store
from lsm.data.format import SPLITS
from lsm.data.graph_store import GraphStore
from lsm.data.writer import StoreWriter

logger = logging.getLogger(__name__)

_EDGES, _FEATURES, _LABELS = "edge_index.npy", "node_feat.npy", "node_label.npy"
_KNOWN = f"{_EDGES}, {_FEATURES}, {_LABELS}, {{train,val,test}}_idx.npy or _mask.npy"
_WITHOUT_SPLIT = {
    "train": "lsm train needs train nodes, but for links; NeighborLoader takes any ids",
    "valid": "without valid, lsm train takes train.select=last",
    "test": "without test, lsm train reports no test accuracy",
}
_WITHOUT_FEATURES = (
    "a graph without features is for embeddings: save edge_index.T as a .npy file, and give it to "
    "`lsm data convert triples`"
)
_ABOUT = ("description", "source", "licence", "split")


def convert_npy(
    src: str | Path,
    out: str | Path,
    *,
    num_classes: int | None = None,
    add_reverse: bool = False,
    **options: Unpack[StoreOptions],
) -> GraphStore:
    """Writes the store ``out`` from the files in ``src`` and opens it.

    A directory with folders ``nodes`` and ``edges`` is a graph with types: see
    ``convert_typed_npy``, which takes ``add_reverse``.

    ``edge_index.npy``: [2, E] int32 or int64, row 0 sources, row 1 destinations; ``node_feat.npy``:
    [N, dim]; ``node_label.npy``: classes [N], NaN or -1 where unknown, or numbers: [N, k], or
    floats [N] that are not all whole, NaN where unknown; ``train_idx.npy``, ``val_idx.npy``,
    ``test_idx.npy``: [n] node ids, or a mask of the nodes, [N] bool; a mask may also be called
    ``train_mask.npy``, as in PyG, and ``valid`` stands for ``val``. Labels and splits may be
    missing: the store then has ``num_classes`` 0, and empty splits. A warning names missing files,
    and arrays in ``src`` that are not converted.

    Edges are kept as they are: no self-loops, reverse edges or duplicates are added or removed. The
    store has them by destination, those of one destination in the order of ``edge_index``:
    ``np.argsort(edge_index[1], kind="stable")``. Arrays may be of either byte order.

    ``edge_weight.npy`` [E], ``edge_time.npy`` [E], ``edge_attr.npy`` [E, dim], ``node_time.npy``
    [N] and ``names.txt`` (a line a node) are kept, too. Edges of one destination are then in the
    order of their times, or else of their sources' times.

    See ``StoreOptions``. Raises ValueError or OSError and leaves nothing behind.
    """
    src = Path(src)
    if not src.is_dir():
        raise FileNotFoundError(f"{src}: no such directory")
    if is_typed(src):
        if num_classes is not None:
            raise ValueError("num_classes: expected none for a graph with types; leave it out")
        return convert_typed_npy(src, out, add_reverse=add_reverse, **options)
    if add_reverse:
        raise ValueError(
            f"add_reverse: expected a graph with types (folders nodes and edges), got {src}; save "
            "both directions in edge_index.npy"
        )
    if not (src / _EDGES).exists():
        raise FileNotFoundError(f"{src / _EDGES}: missing")
    if not (src / _FEATURES).exists():
        raise FileNotFoundError(f"{src / _FEATURES}: missing; {_WITHOUT_FEATURES}")
    about = described(src)
    source = {"format": "npy", **{key: about[key] for key in _ABOUT if key in about}}
    source_name = str(about.get("name", src.resolve().name))
    files = {split: split_file(src, split) for split in SPLITS}
    _warn_of_missing(src, [split for split, file in files.items() if file is None])
    if has_values(src):
        if num_classes is not None:
            raise ValueError("num_classes: expected none for a graph with values; leave it out")
        options["name"] = options.get("name") or source_name
        return convert_with_values(src, out, source, **options)
    with contextlib.ExitStack() as stack:

        def array(file: str) -> ArrayFile:
            return stack.enter_context(ArrayFile(src / file))

        edges, features = array(_EDGES), array(_FEATURES)
        labels = array(_LABELS) if (src / _LABELS).exists() else None
        splits = {
            split: None if file is None else stack.enter_context(ArrayFile(file, masks=True))
            for split, file in files.items()
        }
        splits_read = {file.name for file in files.values() if file is not None}
        warn_of_left_out(src, {_EDGES, _FEATURES, _LABELS} | splits_read, known=_KNOWN)

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


def _warn_of_missing(src: Path, empty: list[str]) -> None:
    """Logs the uses that remain of a graph without labels, or without the splits ``empty``."""
    if not (src / _LABELS).exists():
        logger.warning(
            "%s: no %s: the store has no labels, and batch.y is None; it is for your own loop over "
            "NeighborLoader, or for lsm train with train.task=link",
            src,
            _LABELS,
        )
    if empty:
        names = ", ".join(split_names(split)[0] for split in empty)
        effects = [_WITHOUT_SPLIT[split] for split in (empty[:1] if "train" in empty else empty)]
        logger.warning(
            "%s: no %s (nor masks): the store has no %s nodes; %s",
            src,
            names,
            ", ".join(empty),
            "; ".join(effects),
        )
