"""Plain NumPy and torch references of the native code: slow, short, independent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from reference.planner import ReferencePlanner as ReferencePlanner


def unique_relabel(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values of ``ids`` in first-seen order, and the index of each id among them."""
    local: dict[int, int] = {}
    inverse = [local.setdefault(int(i), len(local)) for i in ids]
    return np.array(list(local), dtype=np.int64), np.array(inverse, dtype=np.int64)


def in_neighbors(indptr: np.ndarray, indices: np.ndarray, node: int) -> np.ndarray:
    return indices[indptr[node] : indptr[node + 1]]


def draw_positions(
    philox4x32: Callable[[list[int], int], Sequence[int]],
    key: int,
    node: int,
    hop: int,
    degree: int,
    count: int,
) -> list[int]:
    """The positions in [0, degree) that a fanout of ``count`` takes of ``node``: Floyd's algorithm
    over the node's Philox stream, with Lemire's rejection."""
    words: list[int] = []
    block = 0

    def below(bound: int) -> int:
        nonlocal block
        while True:
            if not words:
                words.extend(philox4x32([node & 0xFFFFFFFF, node >> 32, hop, block], key))
                block += 1
            product = words.pop(0) * bound
            if product % 2**32 >= 2**32 % bound:
                return product >> 32

    taken: list[int] = []
    for last in range(degree - count, degree):
        candidate = below(last + 1)
        taken.append(last if candidate in taken else candidate)
    return taken


def full_neighborhood(
    indptr: Any, indices: Any, seeds: Iterable[int], num_hops: int
) -> dict[str, Any]:
    """All in-neighbours over ``num_hops`` hops, with the fields and the order of PyG's
    NeighborLoader: each node expanded once, edges as (source, destination) local indices."""
    indptr, indices = np.asarray(indptr), np.asarray(indices)
    local = {int(seed): i for i, seed in enumerate(seeds)}
    edges: list[tuple[int, int]] = []
    num_nodes, num_edges = [len(local)], []
    frontier = list(local)
    for _ in range(num_hops):
        before, edges_before = len(local), len(edges)
        for node in frontier:
            for neighbor in in_neighbors(indptr, indices, node):
                source = local.setdefault(int(neighbor), len(local))
                edges.append((source, local[node]))
        frontier = list(local)[before:]
        num_nodes.append(len(frontier))
        num_edges.append(len(edges) - edges_before)
    return {
        "n_id": np.array(list(local), dtype=np.int64),
        "edge_index": np.array(edges, dtype=np.int64).reshape(-1, 2).T,
        "num_sampled_nodes": num_nodes,
        "num_sampled_edges": num_edges,
    }


def check_sample(
    indptr: Any, indices: Any, seeds: Iterable[int], fanouts: Sequence[int], sampled: Any
) -> None:
    """Asserts that ``sampled`` is one that NeighborSampler may return for these seeds.

    Each node is expanded once, at the hop after it was first seen; its edges are min(degree,
    fanout) distinct in-edges (a source appears no more often than the graph has parallel edges),
    all of them in order where the fanout allows; new nodes are numbered as first seen.
    """
    indptr, indices = np.asarray(indptr), np.asarray(indices)
    n_id, offsets = sampled.n_id.numpy(), sampled.indptr.numpy()
    sources, destinations = sampled.edge_index.numpy()
    local = {int(seed): i for i, seed in enumerate(seeds)}
    assert sampled.num_sampled_nodes[0] == len(local)
    begin, offset = 0, 0
    for hop, fanout in enumerate(fanouts):
        end = len(local)
        for i in range(begin, end):
            neighbors = in_neighbors(indptr, indices, n_id[i])
            count = len(neighbors) if fanout < 0 else min(fanout, len(neighbors))
            assert (offsets[i], offsets[i + 1]) == (offset, offset + count)
            assert (destinations[offset : offset + count] == i).all()
            drawn = n_id[sources[offset : offset + count]]
            if count == len(neighbors):
                np.testing.assert_array_equal(drawn, neighbors)
            for node, times in zip(*np.unique(drawn, return_counts=True), strict=True):
                assert times <= np.count_nonzero(neighbors == node)
            for node in drawn:
                local.setdefault(int(node), len(local))
            offset += count
        assert sampled.num_sampled_nodes[hop + 1] == len(local) - end
        assert sum(sampled.num_sampled_edges[: hop + 1]) == offset
        begin = end
    assert len(offsets) == begin + 1
    assert len(sources) == offset
    assert len(sampled.num_sampled_edges) == len(fanouts)
    np.testing.assert_array_equal(n_id, np.array(list(local), dtype=np.int64))


def reverse_pagerank(
    indptr: Any, indices: Any, train_ids: Any, iterations: int, damping: float
) -> np.ndarray:
    """Dense float64 power iteration: column v of the matrix is the mass that node v passes on."""
    indptr, indices = np.asarray(indptr), np.asarray(indices)
    num_nodes = len(indptr) - 1
    teleport = np.bincount(train_ids, minlength=num_nodes) / len(train_ids)
    matrix = np.empty((num_nodes, num_nodes))
    for v in range(num_nodes):
        neighbors = in_neighbors(indptr, indices, v)
        if len(neighbors):
            passed = np.bincount(neighbors, minlength=num_nodes) / len(neighbors)
            matrix[:, v] = damping * passed + (1 - damping) * teleport
        else:
            matrix[:, v] = teleport
    mass = teleport
    for _ in range(iterations):
        mass = matrix @ mass
    return mass
