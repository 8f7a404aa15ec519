"""Checks a store: every promise, by streaming, and with all problems, not just the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from lsm.core.os_error import in_words
from lsm.core.progress import ByteProgress
from lsm.data import format as layout
from lsm.data.checks import CONVERT_AGAIN, Named, check_files, out_of_range, rows_not_finite
from lsm.data.convert.array_file import CHUNK_BYTES, ArrayFile, read_ahead
from lsm.data.format import StoreMeta
from lsm.data.stripes import StripedReader
from lsm.data.triples.verify import verify_triples


def verify_store(path: str | Path, *, progress: bool | None = None) -> list[str]:
    """The problems of the store at ``path``, one line each: file, fault, remedy.

    Checks sizes, checksums, that indptr grows from 0 to the number of edges, the ranges of indices,
    labels and splits, that splits are disjoint and labelled, and that no feature or score is NaN or
    infinite; of triples: that edges are in order, each once, in their buckets, and that all ids
    have names. Reads every file once or twice; memory: two bytes per node and tens of MiB.
    """
    path = Path(path)
    if layout.store_kind(path) != "graph":
        return verify_triples(path, progress=progress)
    try:
        meta = layout.read_meta(path)
    except (OSError, ValueError) as error:
        return [in_words(error)]
    with ByteProgress(progress) as bars:
        problems, readable = check_files(path, meta.files, bars)
        problems += _Contents(path, meta, readable).problems(bars)
    return problems


class _Contents:
    """The checks of values, on the complete files."""

    def __init__(self, path: Path, meta: StoreMeta, readable: set[str]) -> None:
        self._path = path
        self._meta = meta
        self._readable = readable

    def problems(self, bars: ByteProgress) -> Iterator[str]:
        """Problems of all files, checked while iterated."""
        num_nodes = self._meta.num_nodes
        index_dtype = layout.index_dtype(num_nodes)
        yield from self._array(layout.INDPTR, "int64", num_nodes + 1, self._indptr)
        yield from self._array(layout.INDICES, index_dtype, self._meta.num_edges, self._indices)
        labelled = np.ones(num_nodes, bool)
        yield from self._array(layout.LABELS, "int64", num_nodes, self._labels(labelled))
        if self._meta.num_classes == 0:  # a graph without labels may have splits
            labelled[:] = True
        split_of = np.zeros(num_nodes, np.uint8)
        for number, name in enumerate(layout.SPLITS, 1):
            check = self._split(number, split_of, labelled)
            yield from self._array(layout.split_file(name), "int64", None, check)
        for name in self._meta.files:
            if name.startswith("scores/"):
                yield from self._array(name, "float32", num_nodes, self._score)
        if self._readable.issuperset(self._meta.features.files):
            yield from self._features(bars)

    def _array(
        self,
        name: str,
        dtype: str,
        length: int | None,
        check: Callable[[ArrayFile], Iterator[str]],
    ) -> Iterator[str]:
        if name not in self._readable:
            return
        path = self._path / name
        try:
            array = ArrayFile(path)
        except ValueError as error:
            yield f"{error}; {CONVERT_AGAIN}"
            return
        with array:
            if str(array.stored_dtype) != dtype or array.shape != (
                array.num_rows if length is None else length,
            ):
                yield (
                    f"{path}: expected {dtype} [{'n' if length is None else length}], "
                    f"got {array.stored_dtype} {list(array.shape)}; {CONVERT_AGAIN}"
                )
                return
            for problem in check(array):
                yield f"{path}: {problem}; {CONVERT_AGAIN}"

    def _indptr(self, array: ArrayFile) -> Iterator[str]:
        previous = 0
        for first, values in array.chunks():
            if first == 0 and values[0] != 0:
                yield f"expected indptr[0] = 0, got {values[0]}"
            falls = np.flatnonzero(
                np.diff(values, prepend=values[0] if first == 0 else previous) < 0
            )
            if len(falls):
                yield f"indptr falls at node {first + falls[0]} (expected it to grow)"
                return
            previous = values[-1]
        if previous != self._meta.num_edges:
            yield f"expected the last value {self._meta.num_edges} (edges), got {previous}"

    def _indices(self, array: ArrayFile) -> Iterator[str]:
        yield from out_of_range(array, 0, self._meta.num_nodes, "source ids")

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

    def _score(self, array: ArrayFile) -> Iterator[str]:
        named = Named()
        for first, values in array.chunks():
            named.add(first + np.flatnonzero(~np.isfinite(values)))
        if named.count:
            yield f"NaN or infinite scores: {named.count} (first nodes: {named})"

    def _features(self, bars: ByteProgress) -> Iterator[str]:
        features, num_nodes = self._meta.features, self._meta.num_nodes
        dtype = getattr(torch, features.dtype)
        if not dtype.is_floating_point:
            return
        advance = bars.task("features", num_nodes * features.row_bytes)
        paths = [self._path / name for name in features.files]
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
