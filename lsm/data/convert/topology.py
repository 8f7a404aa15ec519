"""Turns an edge list on disk into the store's in-edge lists by a counting sort."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from lsm import native
from lsm.data import format as layout
from lsm.data.convert.array_file import ArrayFile
from lsm.data.writer import StoreWriter

# Memory for the part of ``indices`` that one pass over the edges fills. A larger graph takes more
# passes.
SORT_BYTES = 4 << 30


def write_topology(
    writer: StoreWriter,
    edges: ArrayFile,
    num_nodes: int,
    num_edges: int,
    advance: Callable[[int], None],
    sort_bytes: int = SORT_BYTES,
) -> None:
    """Writes ``topology/{indptr,indices}.npy``; in-neighbours keep the order of the edge list.

    Precondition: ``edges.expect_edges`` was called. ``advance`` gets the bytes read by the count
    and by the last pass, each the size of the file. Memory: 8 bytes per node, and ``sort_bytes`` or
    the indices, whichever is less. Raises ValueError with the file and the first edge that leads to
    no node.
    """
    pool = native.ThreadPool(min(8, os.cpu_count() or 1))
    starts = np.zeros(num_nodes + 1, np.int64)
    for first_edge, chunk in edges.edge_chunks():
        try:
            native.count_degrees(pool, chunk, first_edge, starts[1:])
        except ValueError as error:
            raise ValueError(f"{edges.path}: {error}") from None
        advance(chunk.nbytes)
    cursors = np.cumsum(starts, out=starts)[:-1]
    with writer.file(layout.INDICES) as sink:
        dtype = np.dtype(layout.index_dtype(num_nodes))
        sink.write_header(dtype, num_edges)
        for first, last in _passes(starts, sort_bytes // dtype.itemsize):
            first_index = int(starts[first])
            indices = np.empty(int(starts[last]) - first_index, dtype)
            for first_edge, chunk in edges.edge_chunks():
                native.fill_csc(pool, chunk, first_edge, cursors, first, last, first_index, indices)
                if last == num_nodes:
                    advance(chunk.nbytes)
            sink.write(indices)
    # Each node's cursor has moved to the end of its list, the start of the next node's list.
    with writer.file(layout.INDPTR) as sink:
        sink.write_header(np.dtype(np.int64), num_nodes + 1)
        sink.write(np.zeros(1, np.int64))
        sink.write(cursors)


def _passes(starts: np.ndarray, max_edges: int) -> list[tuple[int, int]]:
    """Node ranges [first, last) that cover all nodes, each with at most ``max_edges`` edges.

    A node with more edges than that gets a range of its own. ``starts``: [nodes + 1], the first
    edge of each node, and the end.
    """
    ranges = []
    first, num_nodes = 0, len(starts) - 1
    while first < num_nodes:
        limit = int(starts[first]) + max_edges
        last = max(first + 1, int(np.searchsorted(starts, limit, side="right")) - 1)
        ranges.append((first, last))
        first = last
    return ranges
