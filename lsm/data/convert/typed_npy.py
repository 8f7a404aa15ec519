"""Converts directories of .npy files with values of nodes and edges, by type or of one type."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack
from urllib.parse import unquote

import numpy as np
import torch

from lsm.core.arguments import option
from lsm.core.files import read_utf8
from lsm.data.convert.array_file import ArrayFile
from lsm.data.convert.labels import are_whole, split_file, split_names, to_classes
from lsm.data.convert.left_out import warn_of_unknown
from lsm.data.convert.write_store import StoreOptions
from lsm.data.format import SPLITS, most_classes
from lsm.data.graph_parts import (
    Edges,
    Nodes,
    as_attr,
    as_ends,
    as_labels,
    as_times,
    as_weights,
)
from lsm.data.graph_store import GraphStore
from lsm.data.write_graph import write_graph
from lsm.graph.types import EDGE, NODE, EdgeType

_NODE_ARRAYS = ("node_feat.npy", "node_label.npy", "node_time.npy")
_EDGE_ARRAYS = ("edge_index.npy", "edge_weight.npy", "edge_time.npy", "edge_attr.npy")
_SPLIT_ARRAYS = tuple(name for split in SPLITS for name in split_names(split))
_SIZE = "num_nodes.txt"
_NAMES = "names.txt"


_VALUES = ("node_time.npy", *_EDGE_ARRAYS[1:], _NAMES)


def is_typed(src: Path) -> bool:
    """True if ``src`` has arrays by type."""
    return (src / "nodes").is_dir() and (src / "edges").is_dir()


def has_values(src: Path) -> bool:
    """True if ``src``, of a graph of one type, has times or names of nodes, or values of edges."""
    return any((src / name).exists() for name in _VALUES)


def convert_with_values(
    src: Path, out: str | Path, source: dict[str, Any], **options: Unpack[StoreOptions]
) -> GraphStore:
    """Writes the store ``out`` of one type from the files in ``src``, named as in a folder of nodes
    and in one of edges, and opens it. Memory: see write_graph(); features are streamed, other
    arrays are mapped. Raises ValueError or OSError and leaves nothing behind."""
    warn_of_unknown(src, (*_NODE_ARRAYS, *_SPLIT_ARRAYS, *_EDGE_ARRAYS))
    with contextlib.ExitStack() as opened:
        nodes = {NODE: _nodes(src, opened)}
        write_graph(out, nodes, {EDGE: _edges(src)}, source, options=options)
    return GraphStore.open(out)


def convert_typed_npy(
    src: Path, out: str | Path, *, add_reverse: bool = False, **options: Unpack[StoreOptions]
) -> GraphStore:
    """Writes the store ``out`` from the files in ``src`` and opens it.

    ``nodes/TYPE/``: node_feat.npy [N, dim], node_label.npy [N] (-1 is unknown) or numbers [N, k],
    {train,val,test}_idx or _mask .npy, node_time.npy [N], names.txt (a line each); all may be
    missing, and num_nodes.txt then has N. ``edges/SOURCE,RELATION,DESTINATION/``: edge_index.npy
    [2, E], edge_weight.npy [E], edge_time.npy [E], edge_attr.npy [E, dim]. Slashes and commas of
    names are percent-encoded.

    ``add_reverse``: also makes (DESTINATION, rev_RELATION, SOURCE) of each edge type, as PyG's
    ToUndirected(merge=False) does. Memory: see write_graph(); features are streamed, other arrays
    are mapped. Raises ValueError or OSError and leaves nothing behind.
    """
    with contextlib.ExitStack() as opened:
        nodes: dict[str, Nodes] = {}
        for folder in _folders(src / "nodes"):
            warn_of_unknown(folder, (*_NODE_ARRAYS, *_SPLIT_ARRAYS))
            _require_new(unquote(folder.name), nodes, folder)
            nodes[unquote(folder.name)] = _nodes(folder, opened)
        edges: dict[EdgeType, Edges] = {}
        for folder in _folders(src / "edges"):
            name = tuple(map(unquote, folder.name.split(",")))
            if len(name) != 3:
                raise ValueError(f"{folder}: expected a folder SOURCE,RELATION,DESTINATION")
            warn_of_unknown(folder, _EDGE_ARRAYS)
            _require_new(name, edges, folder)
            edges[name] = _edges(folder)
            if edges[name].num_edges == 0:
                raise ValueError(f"{folder}: has no edges; remove the folder")
        if add_reverse:
            edges |= _reversed_types(edges)
        about = described(src)
        given = str(about.pop("name", None) or src.resolve().name)
        options["name"] = options.get("name") or given
        write_graph(out, nodes, edges, {"format": "npy", **about}, options=options)
    return GraphStore.open(out)


def _folders(parent: Path) -> list[Path]:
    shown = (each for each in parent.iterdir() if not each.name.startswith("."))
    found = sorted(each for each in shown if each.is_dir())
    if not found:
        raise FileNotFoundError(f"{parent}: expected a folder for each type")
    return found


def _require_new(name: Any, taken: Container[Any], folder: Path) -> None:
    if name in taken:
        raise ValueError(f"{folder}: another folder has this type, with other percent-encoding")


def _nodes(folder: Path, opened: contextlib.ExitStack) -> Nodes:
    feature_file, label_file, time_file = (folder / name for name in _NODE_ARRAYS)
    features = None
    if feature_file.exists():
        features = opened.enter_context(ArrayFile(feature_file))
    labels, times, names = _array(label_file), _array(time_file), _lines(folder / _NAMES)
    files = {split: split_file(folder, split) for split in SPLITS}
    size = _lines(folder / _SIZE)
    if size is not None:
        num_nodes = _number(folder / _SIZE, size)
    else:
        sizes = [
            each.shape[0] for each in (features, labels, times) if each is not None and each.shape
        ]
        sizes += [] if names is None else [len(names)]
        if not sizes:
            raise FileNotFoundError(f"{folder / _SIZE}: missing; write the number of nodes there")
        num_nodes = sizes[0]
    return Nodes(
        str(folder),
        num_nodes,
        features=features,
        labels=as_labels(str(label_file), _without_nan(label_file, labels)),
        splits={name: _split(path, num_nodes) for name, path in files.items() if path},
        times=as_times(str(time_file), times),
        names=names,
        files=_files(folder, ("x", "y", "time"), _NODE_ARRAYS) | {"names": str(folder / _NAMES)},
    )


def _edges(folder: Path) -> Edges:
    ends, weights, times, attr = (folder / name for name in _EDGE_ARRAYS)
    return Edges(
        str(folder),
        as_ends(str(ends), _array(ends)),
        weights=as_weights(str(weights), _array(weights)),
        times=as_times(str(times), _array(times)),
        attr=as_attr(str(attr), _array(attr)),
        files=_files(folder, ("edge_index", "edge_weight", "time", "edge_attr"), _EDGE_ARRAYS),
    )


def _files(folder: Path, values: Sequence[str], arrays: Sequence[str]) -> dict[str, str]:
    return {value: str(folder / name) for value, name in zip(values, arrays, strict=True)}


def _without_nan(path: Path, labels: np.ndarray | None) -> np.ndarray | None:
    """Classes that are stored as whole floats as integers; NaN is -1. Numbers stay as they are.
    Raises ValueError, which names ``path``, for whole floats that are no classes."""
    if labels is None or labels.dtype.kind != "f" or labels.size != len(labels):
        return labels
    if not are_whole(labels):
        return labels
    return to_classes(path, 0, labels.reshape(-1), most_classes(len(labels)))


def _split(path: Path, num_nodes: int) -> torch.Tensor:
    """The nodes of a split from ids or a mask, which may have either name."""
    found = torch.from_numpy(_array(path))
    if found.dtype == torch.bool or path.stem.endswith("_mask"):
        if found.dtype != torch.bool or found.shape != (num_nodes,):
            got = f"{found.dtype} {[*found.shape]}"
            raise ValueError(f"{path}: expected bool [{num_nodes}], got {got}")
        return found.nonzero().view(-1)
    if found.dim() != 1 or found.dtype.is_floating_point:
        raise ValueError(f"{path}: expected node ids, integers [n], got {found.dtype}")
    return found.long()


def _array(path: Path) -> np.ndarray | None:
    """The array in ``path``, mapped; None without the file."""
    if not path.exists():
        return None
    try:
        array = np.load(path, mmap_mode="c")
    except (ValueError, EOFError, OSError) as error:
        with ArrayFile(path, masks=True):  # its errors have the remedy
            raise ValueError(f"{path}: not a .npy file of numbers ({error})") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{path}: expected integers or floats, got {array.dtype}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _lines(path: Path) -> list[str] | None:
    if not path.exists():
        return None
    return read_utf8(path).removesuffix("\n").split("\n")


def _number(path: Path, lines: list[str]) -> int:
    if len(lines) != 1 or not lines[0].strip().isdecimal():
        raise ValueError(f"{path}: expected one whole number")
    return int(lines[0])


def _reversed_types(edges: Mapping[EdgeType, Edges]) -> dict[EdgeType, Edges]:
    """``edges`` in the other direction. Raises ValueError if a type of them is in ``edges``."""
    found = {}
    for (source, relation, destination), each in edges.items():
        name = (destination, f"rev_{relation}", source)
        if name in edges:
            raise ValueError(
                f"{edges[name].name}: {option('add_reverse')} would replace this type by the "
                f"reverse of {source},{relation},{destination}; rename the folder, or leave it out"
            )
        found[name] = each.reversed()
    return found


def described(src: Path) -> dict[str, Any]:
    """The description in ``meta.json`` next to the arrays, if any."""
    try:
        found = json.loads((src / "meta.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
