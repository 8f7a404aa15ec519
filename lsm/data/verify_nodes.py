"""Checks the nodes of one type in a store: features, labels, splits, times, names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

from lsm.core.progress import ByteProgress
from lsm.data import format as layout
from lsm.data.checks import (
    CONVERT_AGAIN,
    Named,
    StoreArrays,
    check_names,
    out_of_range,
    rows_not_finite,
)
from lsm.data.convert.array_file import CHUNK_BYTES, ArrayFile, read_ahead
from lsm.data.format import FeatureMeta, NodeMeta
from lsm.data.graph_parts import infinite_rows, known_rows
from lsm.data.stripes import StripedReader


def node_problems(
    files: StoreArrays, folder: str, meta: NodeMeta, bars: ByteProgress
) -> Iterator[str]:
    """Problems of the complete files in ``folder`` ("" or "NAME/"), checked while iterated."""
    num_nodes, numbers = meta.num_nodes, meta.labels
    labelled = np.ones(num_nodes, bool)
    if numbers is None:
        classes = partial(_classes, labelled, meta.num_classes)
        yield from files.check(folder + layout.LABELS, "int64", (num_nodes,), classes)
    else:
        shape, known = numbers.shape(num_nodes), partial(_numbers, labelled)
        yield from files.check(folder + layout.LABELS, numbers.dtype, shape, known)
    if meta.num_classes == 0 and numbers is None:  # a graph without labels may have splits
        labelled[:] = True
    split_of = np.zeros(num_nodes, np.uint8)
    for number, name in enumerate(layout.SPLITS, 1):
        of_split = partial(_split, number, split_of, labelled)
        yield from files.check(folder + layout.split_file(name), "int64", (None,), of_split)
    yield from files.check(folder + layout.NODE_TIMES, "int64", (num_nodes,))
    if files.has(folder + layout.NAMES):
        yield from check_names(files.path / folder / layout.NAMES, num_nodes)
    features = meta.features
    if features is not None and files.has(*features.files):
        yield from _features(files.path, features, num_nodes, bars)


def _classes(labelled: np.ndarray, num_classes: int, array: ArrayFile) -> Iterator[str]:
    """The check of classes, which fills ``labelled``."""
    for first, values in array.chunks():
        labelled[first : first + len(values)] = values >= 0
    yield from out_of_range(array, -1, num_classes, "labels")


def _numbers(labelled: np.ndarray, array: ArrayFile) -> Iterator[str]:
    """The check of labels that are numbers, which fills ``labelled``."""
    infinite = Named()
    for first, values in array.chunks():
        rows = torch.from_numpy(values)
        labelled[first : first + len(values)] = known_rows(rows).numpy()
        infinite.add(first + np.flatnonzero(infinite_rows(rows).numpy()))
    if infinite.count:
        yield f"infinite labels: {infinite.count} (first nodes: {infinite})"


def _split(
    number: int, split_of: np.ndarray, labelled: np.ndarray, array: ArrayFile
) -> Iterator[str]:
    yield from out_of_range(array, 0, len(split_of), "node ids")
    found: dict[str, Named] = {}
    for _, ids in array.chunks():
        nodes = ids[(ids >= 0) & (ids < len(split_of))]
        unique, counts = np.unique(nodes, return_counts=True)
        others = split_of[unique]
        tests = {
            "nodes that are in it twice": (counts > 1) | (others == number),
            "nodes that are in another split": (others != 0) & (others != number),
            "nodes without a label": ~labelled[unique],
        }
        for what, is_bad in tests.items():
            found.setdefault(what, Named()).add(unique[is_bad])
        split_of[unique] = number
    for what, named in found.items():
        if named.count:
            yield f"{what}: {named.count} (first: {named})"


def _features(
    store: Path, features: FeatureMeta, num_nodes: int, bars: ByteProgress
) -> Iterator[str]:
    dtype = getattr(torch, features.dtype)
    if not dtype.is_floating_point:
        return
    advance = bars.task("features", num_nodes * features.row_bytes)
    paths = [store / name for name in features.files]
    named = Named()
    with StripedReader(paths, features.stripe_bytes) as reader:

        def read(begin: int, end: int) -> np.ndarray:
            return reader.read(begin * features.row_bytes, (end - begin) * features.row_bytes)

        step = max(1, CHUNK_BYTES // features.row_bytes)
        for first, data in read_ahead(read, num_nodes, step):
            rows = torch.from_numpy(data).view(dtype).view(-1, features.dim)
            named.add(first + rows_not_finite(rows))
            advance(len(data))
            reader.drop_cache()
    if named.count:
        yield (
            f"{', '.join(map(str, paths))}: rows with NaN or infinite features: "
            f"{named.count} (first: {named}); correct them in the source and {CONVERT_AGAIN}"
        )
