"""Turns an edge list into a store's in-edge lists: a counting sort in passes of bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from lsm import native
from lsm.data import format as layout
from lsm.data.writer import StoreWriter

SORT_BYTES = 4 << 30
"""Memory for the part of the lists that one pass over the edges fills. A larger graph takes more
passes."""
_NUMBER_BYTES = 8  # of a position, and of a time
TimesOf = Callable[[np.ndarray], np.ndarray]
"""Returns the times of the edges at positions in the source: [n] int64, of [n] int64."""


class EdgeList(Protocol):
    """Edges in the order of the source."""

    def edge_chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        """(position of the first edge, [2, n] edges) in order."""


class InEdgeLists:
    """The edges by destination, those of one in the order of the source.

    Counts the edges of each destination first. Then either sources() or order() can be iterated
    over, once; a pass overwrites the values of the last. Memory: 8 bytes per destination, and
    ``sort_bytes`` or the lists, whichever is less.

    Args:
        edges: The edges.
        where: The place of the edges, for errors.
        num_sources: Nodes that edges come from.
        num_destinations: Nodes that edges lead to.
        advance: Gets the bytes of the edges that the count, and that the last pass has read.
        sort_bytes: Memory of a pass.

    Raises:
        ValueError: An edge leads to no node, or comes from none; names the first.
    """

    def __init__(
        self,
        edges: EdgeList,
        where: str,
        num_sources: int,
        num_destinations: int,
        advance: Callable[[int], object],
        sort_bytes: int = SORT_BYTES,
    ) -> None:
        self._edges, self._num_sources = edges, num_sources
        self.dtype = np.dtype(layout.index_dtype(num_sources))
        """Of sources in a store."""
        self._advance, self._sort_bytes = advance, sort_bytes
        self._pool = native.ThreadPool(min(8, os.cpu_count() or 1))
        starts = np.zeros(num_destinations + 1, np.int64)
        for first_edge, chunk in edges.edge_chunks():
            try:
                native.count_degrees(self._pool, chunk, num_sources, first_edge, starts[1:])
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
            advance(chunk.nbytes)
        self.indptr = np.cumsum(starts, out=starts)
        """[num_destinations + 1] int64: the first edge of each list, and the end. Passes move all
        but the last."""

    @property
    def num_edges(self) -> int:
        """The edges of all lists."""
        return int(self.indptr[-1])

    def sources(self) -> Iterator[np.ndarray]:
        """The sources of all edges, list by list, a pass at a time."""
        for _, _, part in self._passes(native.fill_csc, self.dtype, self.dtype.itemsize):
            yield part

    def order(self, times_of: TimesOf | None = None) -> Iterator[np.ndarray]:
        """The positions of all edges in the source, int64, list by list, a pass at a time.

        With ``times_of`` each list is by time, edges of one time as in the source.
        """
        edge_bytes = _NUMBER_BYTES if times_of is None else 2 * _NUMBER_BYTES
        dtype = np.dtype(np.int64)
        for first_index, ends, part in self._passes(native.fill_csc_order, dtype, edge_bytes):
            if times_of is not None:
                native.sort_lists(self._pool, ends, first_index, times_of(part), part)
            yield part

    def _passes(
        self, fill: Callable[..., None], dtype: np.dtype[Any], edge_bytes: int
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(first edge, end of each list, values) of the lists that each pass fills, all in the same
        memory."""
        num_nodes = len(self.indptr) - 1
        cursors = self.indptr[:-1]  # move to the end of their list, the start of the next
        ranges = _ranges(self.indptr, self._sort_bytes // edge_bytes)
        sizes = [int(self.indptr[last] - self.indptr[first]) for first, last in ranges]
        values = np.empty(max(sizes, default=0), dtype)
        for (first, last), size in zip(ranges, sizes, strict=True):
            first_index, part = int(self.indptr[first]), values[:size]
            for first_edge, chunk in self._edges.edge_chunks():
                fill(
                    self._pool,
                    chunk,
                    self._num_sources,
                    first_edge,
                    cursors,
                    first,
                    last,
                    first_index,
                    part,
                )
                if last == num_nodes:
                    self._advance(chunk.nbytes)
            yield first_index, cursors[first:last], part


def write_topology(writer: StoreWriter, folder: str, lists: InEdgeLists) -> None:
    """Writes ``indptr.npy`` and ``indices.npy`` of the lists to ``folder`` ("NAME/")."""
    writer.write_array(f"{folder}indptr.npy", lists.indptr)
    with writer.file(f"{folder}indices.npy") as sink:
        sink.write_header(lists.dtype, lists.num_edges)
        for part in lists.sources():
            sink.write(part)


def _ranges(starts: np.ndarray, max_edges: int) -> list[tuple[int, int]]:
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
