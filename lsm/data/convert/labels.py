"""Checks and writes labels and splits, keeping one byte per node in memory."""

from __future__ import annotations

import numpy as np

from lsm.data import format as layout
from lsm.data.convert.array_file import CHUNK_BYTES, ArrayFile
from lsm.data.writer import StoreWriter

# States of a node.
_MAY_BE_IN_SPLIT = 1  # it has a label, or the graph has none at all
_IN_SPLIT = 2

_STEP = 1 << 20

_IN_YOUR_OWN_LOOP = (
    "move the file elsewhere, convert without labels, and index them in your own loop with "
    "batch.n_id[:batch.batch_size]"
)


def write_labels(
    writer: StoreWriter,
    labels: ArrayFile | None,
    num_nodes: int,
    num_classes: int | None,
    num_labelled: int | None = None,
) -> tuple[int, np.ndarray]:
    """Writes ``labels.npy``; returns (number of classes, state of each node: [N] uint8).

    ``labels``: [N] or [N, 1], integers or integral floats; NaN and -1 mean no label. None: a graph
    of 0 classes.
    ``num_classes``: None means the largest label + 1. Labels from node ``num_labelled`` on are
    ignored. Raises ValueError with the file, the node and the value of a label that is out of
    range.
    """
    if labels is None:
        return _write_no_labels(writer, num_nodes, num_classes)
    _check_shape(labels, num_nodes)
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
            classes[:known] = _to_classes(labels, first, values[:known], limit)
            state[first : first + len(classes)] = classes >= 0
            largest = max(largest, int(classes.max(initial=-1)))
            sink.write(classes)
    return (largest + 1 if num_classes is None else num_classes), state


def _write_no_labels(
    writer: StoreWriter, num_nodes: int, num_classes: int | None
) -> tuple[int, np.ndarray]:
    if num_classes is not None:
        raise ValueError(
            f"num_classes: expected none for a graph without labels, got {num_classes}; leave it "
            "out, or add the labels"
        )
    with writer.file(layout.LABELS) as sink:
        sink.write_header(np.dtype(np.int64), num_nodes)
        for begin in range(0, num_nodes, _STEP):
            sink.write(np.full(min(_STEP, num_nodes - begin), -1, np.int64))
    return 0, np.full(num_nodes, _MAY_BE_IN_SPLIT, np.uint8)


def _check_shape(labels: ArrayFile, num_nodes: int) -> None:
    if labels.shape in ((num_nodes,), (num_nodes, 1)):
        return
    remedy = ""
    if len(labels.shape) == 2 and labels.num_rows == num_nodes:
        remedy = (
            "; of rows with a single 1, save argmax(axis=1); of several labels per node, which "
            f"lsm train does not support, {_IN_YOUR_OWN_LOOP}"
        )
    raise ValueError(
        f"{labels.path}: expected one label for each of the {num_nodes} rows of the features, "
        f"got shape {list(labels.shape)}{remedy}"
    )


def _to_classes(labels: ArrayFile, first: int, values: np.ndarray, limit: int) -> np.ndarray:
    known = np.where(np.isnan(values), -1, values) if values.dtype.kind == "f" else values
    with np.errstate(invalid="ignore"):
        classes = known.astype(np.int64)
    bad = np.flatnonzero((classes != known) | (classes < -1) | (classes >= limit))
    if len(bad):
        remedy = ""
        if classes[bad[0]] != known[bad[0]]:
            remedy = f"; of targets that are no classes, {_IN_YOUR_OWN_LOOP}"
        raise ValueError(
            f"{labels.path}: node {first + bad[0]}: expected a whole number in [0, {limit}), "
            f"or -1 or NaN for no label, got {values[bad[0]]}{remedy}"
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
