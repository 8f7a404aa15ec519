"""Decides the split of each edge, by its ends or by its time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from lsm import native
from lsm.core.hash import mix64
from lsm.data.edge_data import EdgeData

_CHUNK_EDGES = 1 << 20


class EdgeChunk(NamedTuple):
    """Some edges in the order of the store: [n] int64 each."""

    first: int
    """The position of the first one."""
    sources: np.ndarray
    destinations: np.ndarray


def edge_chunks(edges: EdgeData) -> Iterator[EdgeChunk]:
    """All edges of a type. Raises OSError if they cannot be read."""
    topology = edges.topology()
    indptr, indices = topology.indptr.numpy(), topology.indices.numpy()
    for first in range(0, edges.num_edges, _CHUNK_EDGES):
        positions = np.arange(first, min(first + _CHUNK_EDGES, edges.num_edges))
        destinations = np.searchsorted(indptr, positions, side="right") - 1
        sources = indices[first : first + _CHUNK_EDGES].astype(np.int64)
        native.check_mapped(topology.indptr)
        native.check_mapped(topology.indices)
        yield EdgeChunk(first, sources, destinations)


class Parts(Protocol):
    """Says in which split an edge is: 0 train, 1 valid, 2 test."""

    def of(self, edges: EdgeData, chunk: EdgeChunk, *, is_reverse: bool) -> np.ndarray:
        """The splits of a chunk of ``edges``: [n] integers. ``is_reverse``: they are of the type
        with the reverse edges."""


class RandomParts:
    """Draws the split of each pair of nodes by a hash, so that parallel edges and the edges in the
    other direction share it, and no memory is needed."""

    def __init__(self, seed: int, valid: float, test: float, *, is_symmetric: bool) -> None:
        """``is_symmetric``: both ends are of one type, so that (u, v) and (v, u) are one pair."""
        self._key = mix64(np.array([seed], np.uint64) + np.uint64(0x9E3779B97F4A7C15))
        self._bounds = np.array([1 - valid - test, 1 - test])
        self._is_symmetric = is_symmetric

    def of(self, edges: EdgeData, chunk: EdgeChunk, *, is_reverse: bool) -> np.ndarray:
        first, second = chunk.sources, chunk.destinations
        if is_reverse:
            first, second = second, first
        if self._is_symmetric:
            first, second = np.minimum(first, second), np.maximum(first, second)
        drawn = mix64(mix64(first.view(np.uint64) ^ self._key) + second.view(np.uint64))
        shares = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return np.searchsorted(self._bounds, shares, side="right")


class TimeParts:
    """The latest edges are of test, those before them of valid."""

    def __init__(self, edges: EdgeData, valid: float, test: float) -> None:
        """Sorts a copy of the times. ``edges`` have times."""
        times = np.sort(edges.times().numpy())
        count = len(times)
        # Rounded first: 1 - 0.05 - 0.05 is a little less than 0.9.
        places = [int(round(count * share, 6)) for share in (1 - valid - test, 1 - test)]
        self._bounds = [times[place] for place in places if place < count]

    def of(self, edges: EdgeData, chunk: EdgeChunk, *, is_reverse: bool) -> np.ndarray:
        times = edges.times()
        own = times[chunk.first : chunk.first + len(chunk.sources)].numpy()
        found = np.searchsorted(self._bounds, own, side="right")
        native.check_mapped(times)
        return found


class GivenParts:
    """The pairs of validation and test are given; all others are of train."""

    def __init__(
        self, valid: np.ndarray, test: np.ndarray, num_nodes: int, *, is_symmetric: bool
    ) -> None:
        """``valid``, ``test``: [n, 2] int64. ``num_nodes``: more than any id. Raises ValueError
        from 2**32 nodes on, where a pair is no number of 64 bits."""
        if num_nodes > 2**32:
            raise ValueError(f"given splits: expected at most 2**32 nodes, got {num_nodes}")
        self._num_nodes, self._is_symmetric = np.uint64(num_nodes), is_symmetric
        self._keys = [self._key_of(pairs[:, 0], pairs[:, 1]) for pairs in (valid, test)]

    def of(self, edges: EdgeData, chunk: EdgeChunk, *, is_reverse: bool) -> np.ndarray:
        ends = (chunk.sources, chunk.destinations)
        own = self._key_of(*(ends[::-1] if is_reverse else ends))
        found = np.zeros(len(own), np.int64)
        for part, keys in enumerate(self._keys, start=1):
            found[np.isin(own, keys)] = part
        return found

    def _key_of(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        if self._is_symmetric:
            first, second = np.minimum(first, second), np.maximum(first, second)
        return first.astype(np.uint64) * self._num_nodes + second.astype(np.uint64)
