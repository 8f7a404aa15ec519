"""Checks the nodes of one type in a store: features, labels, splits, times, names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
from lsm.data.format import NodeMeta
from lsm.data.graph_parts import infinite_rows, known_rows
from lsm.data.stripes import StripedReader


class NodeChecks:
    """The checks of values, on the complete files in ``folder`` ("" or "NAME/")."""

    def __init__(self, files: StoreArrays, folder: str, meta: NodeMeta) -> None:
        self._files = files
        self._folder = folder
        self._meta = meta

    def problems(self, bars: ByteProgress) -> Iterator[str]:
        """Problems of all files, checked while iterated."""
        num_nodes, folder = self._meta.num_nodes, self._folder
        check = self._files.check
        labelled = np.ones(num_nodes, bool)
        numbers = self._meta.labels
        if numbers is None:
            labels = self._labels(labelled)
            yield from check(folder + layout.LABELS, "int64", (num_nodes,), labels)
        else:
            shape = numbers.shape(num_nodes)
            yield from check(folder + layout.LABELS, numbers.dtype, shape, _numbers(labelled))
        if (
            self._meta.num_classes == 0 and numbers is None
        ):  # a graph without labels may have splits
            labelled[:] = True
        split_of = np.zeros(num_nodes, np.uint8)
        for number, name in enumerate(layout.SPLITS, 1):
            of_split = self._split(number, split_of, labelled)
            yield from check(folder + layout.split_file(name), "int64", (None,), of_split)
        yield from check(folder + layout.NODE_TIMES, "int64", (num_nodes,))
        if self._files.has(folder + layout.NAMES):
            yield from check_names(self._files.path / folder / layout.NAMES, num_nodes)
        yield from self._features(bars)

    def _labels(self, labelled: np.ndarray) -> Callable[[ArrayFile], Iterator[str]]:
        def check(array: ArrayFile) -> Iterator[str]:
            for first, values in array.chunks():
                labelled[first : first + len(values)] = values >= 0
            yield from out_of_range(array, -1, self._meta.num_classes, "labels")

        return check

    def _split(
        self, number: int, split_of: np.ndarray, labelled: np.ndarray
    ) -> Callable[[ArrayFile], Iterator[str]]:
        def check(array: ArrayFile) -> Iterator[str]:
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

        return check

    def _features(self, bars: ByteProgress) -> Iterator[str]:
        features, num_nodes = self._meta.features, self._meta.num_nodes
        if features is None or not self._files.has(*features.files):
            return
        dtype = getattr(torch, features.dtype)
        if not dtype.is_floating_point:
            return
        advance = bars.task("features", num_nodes * features.row_bytes)
        paths = [self._files.path / name for name in features.files]
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


def _numbers(labelled: np.ndarray) -> Callable[[ArrayFile], Iterator[str]]:
    """The check of labels that are numbers, which fills ``labelled``."""

    def check(array: ArrayFile) -> Iterator[str]:
        infinite = Named()
        for first, values in array.chunks():
            rows = torch.from_numpy(values)
            labelled[first : first + len(values)] = known_rows(rows).numpy()
            infinite.add(first + np.flatnonzero(infinite_rows(rows).numpy()))
        if infinite.count:
            yield f"infinite labels: {infinite.count} (first nodes: {infinite})"

    return check
