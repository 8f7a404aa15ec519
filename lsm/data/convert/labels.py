"""Checks and writes labels and splits, keeping one byte per node in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lsm.data import format as layout
from lsm.data.convert.array_file import CHUNK_BYTES, ArrayFile
from lsm.data.format import LabelMeta
from lsm.data.writer import StoreWriter

# States of a node.
_MAY_BE_IN_SPLIT = 1  # it has a label, or the graph has none at all
_IN_SPLIT = 2

_STEP = 1 << 20

_SPLIT_STEMS = {"train": ("train",), "valid": ("val", "valid"), "test": ("test",)}


def split_names(split: str) -> list[str]:
    """Names that the file of ``split`` may have: of node ids, or of a mask."""
    return [f"{stem}_{kind}.npy" for stem in _SPLIT_STEMS[split] for kind in ("idx", "mask")]


def split_file(folder: Path, split: str) -> Path | None:
    """The file of ``split`` in ``folder``; None without one. Raises ValueError for two."""
    found = [folder / name for name in split_names(split) if (folder / name).exists()]
    if len(found) > 1:
        names = [file.name for file in found]
        raise ValueError(f"{folder}: expected one of {' and '.join(names)}, got both; remove one")
    return found[0] if found else None


def write_labels(
    writer: StoreWriter,
    labels: ArrayFile | None,
    num_nodes: int,
    num_classes: int | None,
    num_labelled: int | None = None,
) -> tuple[int, LabelMeta | None, np.ndarray]:
    """Writes ``labels.npy``; returns (number of classes, layout of labels that are numbers, state
    of each node: [N] uint8).

    ``labels``: classes, [N] or [N, 1], integers or whole floats; NaN and -1 mean no label. Or
    numbers: [N, k], or floats [N] that are not all whole. None: a graph of 0 classes.
    ``num_classes``: None means the largest label + 1. Labels from node ``num_labelled`` on are
    ignored. Raises ValueError with the file, the node and the value of a label that is out of
    range.
    """
    if labels is None:
        return 0, None, _write_no_labels(writer, num_nodes, num_classes)
    _check_shape(labels, num_nodes, are_classes=num_classes is not None)
    if num_classes is None and _are_numbers(labels):
        return 0, *_write_numbers(writer, labels)
    most = layout.most_classes(num_nodes)
    if num_classes is not None and num_classes > most:
        raise ValueError(
            f"num_classes: expected at most {most} for {num_nodes} nodes, got {num_classes}"
        )
    limit = most if num_classes is None else num_classes
    state = np.zeros(num_nodes, np.uint8)
    largest = -1
    with writer.file(layout.LABELS) as sink:
        sink.write_header(np.dtype(np.int64), num_nodes)
        for first, chunk in labels.chunks():
            values = chunk.reshape(-1)
            known = len(values) if num_labelled is None else max(0, num_labelled - first)
            classes = np.full(len(values), -1, np.int64)
            classes[:known] = to_classes(labels.path, first, values[:known], limit)
            state[first : first + len(classes)] = classes >= 0
            largest = max(largest, int(classes.max(initial=-1)))
            sink.write(classes)
    return (largest + 1 if num_classes is None else num_classes), None, state


def are_whole(values: np.ndarray) -> bool:
    """True for floats that are whole, or NaN, so that they are classes."""
    return not (values != np.floor(values))[~np.isnan(values)].any()


def _are_numbers(labels: ArrayFile) -> bool:
    """True for several labels of each node, and for floats that are not all whole."""
    if labels.shape[1:] not in ((), (1,)):
        return True
    if labels.dtype.kind != "f":
        return False
    return not all(are_whole(chunk) for _, chunk in labels.chunks())


def _write_numbers(writer: StoreWriter, labels: ArrayFile) -> tuple[LabelMeta, np.ndarray]:
    width = labels.shape[1] if len(labels.shape) == 2 else 1
    meta = LabelMeta(width=width, dtype="float32" if labels.dtype.kind == "f" else "int64")
    state = np.zeros(labels.num_rows, np.uint8)
    with writer.file(layout.LABELS) as sink:
        sink.write_header(np.dtype(meta.dtype), *meta.shape(labels.num_rows))
        for first, chunk in labels.chunks():
            source = chunk.reshape(len(chunk), width)
            with np.errstate(over="ignore"):
                rows = source.astype(meta.dtype)
            is_float = meta.dtype == "float32"
            overflowed = np.isinf(rows) if is_float else (rows < 0) & (source >= 0)
            bad = np.flatnonzero(overflowed.any(axis=1))
            if len(bad):
                form = "finite float32, or NaN" if is_float else "int64, or -1"
                raise ValueError(
                    f"{labels.path}: node {first + bad[0]}: expected {form} for no label, got "
                    f"{chunk[bad[0]]}"
                )
            known = ~np.isnan(rows) if is_float else rows >= 0
            state[first : first + len(rows)] = known.any(axis=1)
            sink.write(rows)
    return meta, state


def _write_no_labels(writer: StoreWriter, num_nodes: int, num_classes: int | None) -> np.ndarray:
    if num_classes is not None:
        raise ValueError(
            f"num_classes: expected none for a graph without labels, got {num_classes}; leave it "
            "out, or add the labels"
        )
    with writer.file(layout.LABELS) as sink:
        sink.write_header(np.dtype(np.int64), num_nodes)
        for begin in range(0, num_nodes, _STEP):
            sink.write(np.full(min(_STEP, num_nodes - begin), -1, np.int64))
    return np.full(num_nodes, _MAY_BE_IN_SPLIT, np.uint8)


def _check_shape(labels: ArrayFile, num_nodes: int, *, are_classes: bool) -> None:
    """Raises ValueError for another number of labels. are_classes: One label of each node."""
    if labels.shape in ((num_nodes,), (num_nodes, 1)):
        return
    width = labels.shape[1] if len(labels.shape) == 2 else 0
    if width == 0 or labels.num_rows != num_nodes or are_classes:
        several = "" if are_classes else f" or [{num_nodes}, k]"
        raise ValueError(
            f"{labels.path}: expected labels for each of the {num_nodes} rows of the features, "
            f"[{num_nodes}]{several}, got shape {list(labels.shape)}"
        )


def to_classes(path: Path, first: int, values: np.ndarray, limit: int) -> np.ndarray:
    """``values`` of the nodes from ``first`` on, in ``path``, as int64; NaN is -1. Raises
    ValueError, which names the node, for one that is no class below ``limit``."""
    known = np.where(np.isnan(values), -1, values) if values.dtype.kind == "f" else values
    with np.errstate(invalid="ignore"):
        classes = known.astype(np.int64)
    bad = np.flatnonzero((classes != known) | (classes < -1) | (classes >= limit))
    if len(bad):
        raise ValueError(
            f"{path}: node {first + bad[0]}: expected a whole number in [0, {limit}), "
            f"or -1 or NaN for no label, got {values[bad[0]]}"
        )
    return classes


def write_split(writer: StoreWriter, name: str, ids: ArrayFile | None, state: np.ndarray) -> int:
    """Writes ``split/NAME.npy`` from ``ids`` and marks its nodes in ``state``. Returns their
    number.

    ids: [n] integers, or a mask of the nodes, [N] bool; None: an empty split. Raises ValueError
    with the file, the position and the id of an entry that is no node, is already in a split, or
    has no label.
    """
    if ids is None:
        writer.write_array(layout.split_file(name), np.empty(0, np.int64))
        return 0
    is_mask = ids.dtype.kind == "b"
    if is_mask and ids.shape != state.shape:
        raise ValueError(
            f"{ids.path}: expected a mask, bool [{len(state)}], got {list(ids.shape)}; "
            "of several masks, save the column of one"
        )
    if len(ids.shape) != 1 or ids.dtype.kind not in "biu":
        raise ValueError(
            f"{ids.path}: expected node ids, integers [n], or a mask, bool [{len(state)}], "
            f"got {ids.dtype} {list(ids.shape)}"
        )
    if ids.path.stem.endswith("_mask") and not is_mask:
        raise ValueError(
            f"{ids.path}: expected a mask, bool [{len(state)}], got {ids.dtype} {list(ids.shape)}; "
            "save a mask of numbers as .astype(bool), and node ids as _idx.npy"
        )
    num_ids = ids.num_rows
    if is_mask:
        num_ids = sum(int(np.count_nonzero(chunk)) for _, chunk in ids.chunks())
    with writer.file(layout.split_file(name)) as sink:
        sink.write_header(np.dtype(np.int64), num_ids)
        # A node takes one byte of a mask and eight bytes of ids.
        for first, chunk in ids.chunks(CHUNK_BYTES // 8 if is_mask else CHUNK_BYTES):
            found = np.flatnonzero(chunk) if is_mask else np.arange(len(chunk))
            positions = found + first
            nodes = positions if is_mask else chunk.astype(np.int64)
            _check_split(ids, positions, nodes, state)
            state[nodes] |= _IN_SPLIT
            sink.write(nodes)
    return num_ids


def write_ordered_splits(writer: StoreWriter, state: np.ndarray) -> dict[str, int]:
    """Splits the labelled nodes in order of id: 60% train, 20% valid, the rest test. Returns the
    sizes.
    """
    num_labelled = int(np.count_nonzero(state))
    sizes = {"train": int(num_labelled * 0.6), "valid": int(num_labelled * 0.2)}
    sizes["test"] = num_labelled - sum(sizes.values())
    ends = np.cumsum(list(sizes.values()))
    sinks = [writer.file(layout.split_file(name)) for name in sizes]
    for sink, size in zip(sinks, sizes.values(), strict=True):
        sink.write_header(np.dtype(np.int64), size)
    done = 0
    for begin in range(0, len(state), _STEP):
        ids = np.flatnonzero(state[begin : begin + _STEP]) + begin
        for sink, part in zip(sinks, np.split(ids, np.clip(ends[:2] - done, 0, None)), strict=True):
            sink.write(part)
        done += len(ids)
    return sizes


def _check_split(
    ids: ArrayFile, positions: np.ndarray, nodes: np.ndarray, state: np.ndarray
) -> None:
    def check(is_bad: np.ndarray, what: str) -> None:
        bad = np.flatnonzero(is_bad)
        if len(bad):
            raise ValueError(
                f"{ids.path}: position {positions[bad[0]]}: node {nodes[bad[0]]} {what}"
            )

    check(
        (nodes < 0) | (nodes >= len(state)),
        f"does not exist: expected an id in [0, {len(state)})",
    )
    check((state[nodes] & _MAY_BE_IN_SPLIT) == 0, "has no label; remove it from the split")
    repeated = np.ones(len(nodes), bool)
    repeated[np.unique(nodes, return_index=True)[1]] = False
    in_split = (state[nodes] & _IN_SPLIT) != 0
    check(repeated | in_split, "is in this or another split already; splits must be disjoint")
