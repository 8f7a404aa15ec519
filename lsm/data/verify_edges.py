"""Checks the edges of one type in a store: their structure and their values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lsm.data import format as layout
from lsm.data.arrays import load_array
from lsm.data.checks import Named, StoreArrays, finite, out_of_range
from lsm.data.convert.array_file import ArrayFile

_STEP = 1 << 20  # edges whose times are compared at a time


class EdgeSizes(NamedTuple):
    """Counts of an edge type and of the nodes at its ends."""

    num_edges: int
    num_sources: int
    num_destinations: int


def edge_problems(
    files: StoreArrays, folder: str, sizes: EdgeSizes, source_times: Path | None
) -> Iterator[str]:
    """Problems of the complete files in ``folder`` ("NAME/"), checked while iterated.
    ``source_times``: the times of the sources, if there are any."""
    num_edges, num_sources, num_destinations = sizes
    starts, ids, of_each = f"{folder}indptr.npy", f"{folder}indices.npy", (num_edges,)
    in_range = partial(out_of_range, low=0, high=num_sources, what="source ids")
    structure: list[str] = []
    structure += files.check(starts, "int64", (num_destinations + 1,), partial(_indptr, num_edges))
    structure += files.check(ids, layout.index_dtype(num_sources), of_each, in_range)
    yield from structure
    yield from files.check(folder + layout.WEIGHTS, "float32", of_each, _weights)
    yield from files.check(folder + layout.EDGE_TIMES, "int64", of_each)
    attr = partial(finite, "attributes", of="edges")
    yield from files.check(folder + layout.EDGE_ATTR, None, (num_edges, ...), attr)
    yield from files.check(folder + layout.ORDER, "int64", of_each, _order)
    if not structure and files.has(starts, ids):
        yield from _in_order_of_time(files, folder, sizes, source_times)


def _indptr(num_edges: int, array: ArrayFile) -> Iterator[str]:
    previous = 0
    for first, values in array.chunks():
        if first == 0 and values[0] != 0:
            yield f"expected indptr[0] = 0, got {values[0]}"
        falls = np.flatnonzero(
            values < np.append(values[0] if first == 0 else previous, values[:-1])
        )
        if len(falls):
            yield f"indptr falls at node {first + falls[0]} (expected it to grow)"
            return
        previous = values[-1]
    if previous != num_edges:
        yield f"expected the last value {num_edges} (edges), got {previous}"


def _weights(array: ArrayFile) -> Iterator[str]:
    named, is_any = Named(), False
    for first, values in array.chunks():
        named.add(first + np.flatnonzero(~(np.isfinite(values) & (values >= 0))))
        is_any = is_any or bool(values.any())
    if named.count:
        yield f"weights below 0, NaN or infinite: {named.count} (first edges: {named})"
    if array.num_rows and not is_any:
        yield "all weights are 0"


def _order(array: ArrayFile) -> Iterator[str]:
    seen = np.zeros(array.num_rows, bool)
    for _, values in array.chunks():
        seen[values[(values >= 0) & (values < len(seen))]] = True
    if not seen.all():
        yield f"expected each of 0 to {len(seen) - 1} once, and {(~seen).sum()} are missing"


def _in_order_of_time(
    files: StoreArrays, folder: str, sizes: EdgeSizes, source_times: Path | None
) -> Iterator[str]:
    """Edges of one destination ascend in time, that of the edges or else of their sources."""
    path = files.path / folder
    num_edges, num_sources, num_destinations = sizes
    if files.has(folder + layout.EDGE_TIMES):
        values, indices = path / layout.EDGE_TIMES, None
    elif source_times is not None:
        kind = layout.index_dtype(num_sources)
        indices = load_array(path / "indices.npy", kind, (num_edges,), False).numpy()
        values = source_times
    else:
        return
    length = num_edges if indices is None else num_sources
    times = load_array(values, "int64", (length,), False).numpy()
    indptr = load_array(path / "indptr.npy", "int64", (num_destinations + 1,), False).numpy()
    named = Named()
    for first in range(0, num_edges, _STEP):
        pairs = slice(first, first + _STEP + 1)  # each edge and the next
        part = times[pairs] if indices is None else times[indices[pairs]]
        falls = first + 1 + np.flatnonzero(part[1:] < part[:-1])
        named.add(falls[indptr[np.searchsorted(indptr, falls)] != falls])
    if named.count:
        yield (
            f"{path}: edges of one destination are not in order of time: {named.count} (first "
            f"edges: {named}); make the store again"
        )
