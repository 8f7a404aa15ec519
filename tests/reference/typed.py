"""Sampling of graphs with types, by its definition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


def allowed_edges(graph: Any, edge_type: Any, node: int, until: int | None) -> list[int]:
    """The in-edges of ``node`` that a subgraph of a seed at time ``until`` may take, in order."""
    source, _, _ = edge_type
    topology = graph.topologies[edge_type]
    first, last = topology.indptr[node : node + 2].tolist()
    edges = list(range(first, last))
    weights = (graph.weights or {}).get(edge_type)
    if weights is not None:
        edges = [edge for edge in edges if weights[edge] > 0]
    times = (graph.times or {}).get(edge_type)
    if times is None and source in (graph.node_times or {}):
        times = graph.node_times[source][topology.indices.long()]
    if times is not None:
        edges = [edge for edge in edges if times[edge] <= until]
    return edges


def check_typed_sample(
    graph: Any,
    num_neighbors: Any,
    input_type: str,
    seeds: Iterable[int],
    seed_times: Any,
    sampled: Any,
    edge_ids: Any,
    *,
    disjoint: bool = False,
    takes_last: bool = False,
) -> None:
    """Asserts that ``sampled``, with its ``edge_ids``, is one that TypedNeighborSampler may return.

    Hop by hop, and edge type by edge type, each node that is new takes min(allowed, fanout)
    distinct in-edges of those allowed, all of them in order where the fanout permits; new nodes are
    numbered by type as first seen, in each subgraph.
    """
    types, edge_types = graph.space.types, list(graph.topologies)
    found: dict[str, dict[tuple[int, int], int]] = {name: {} for name in types}
    for place, seed in enumerate(seeds):
        found[input_type].setdefault((place if disjoint else 0, int(seed)), len(found[input_type]))
    num_nodes = {name: [len(found[name])] for name in types}
    num_edges: dict[Any, list[int]] = {each: [] for each in edge_types}
    edges = {each: part.numpy() for each, part in sampled.types.edges(sampled.edge_index).items()}
    numbers = {each: part.tolist() for each, part in sampled.types.edges(edge_ids).items()}
    bounds = {each: part.tolist() for each, part in sampled.types.indptrs(sampled.indptr).items()}
    begin = dict.fromkeys(types, 0)
    num_hops = len(num_neighbors[edge_types[0]])
    for hop in range(num_hops):
        end = {name: len(nodes) for name, nodes in found.items()}
        for each in edge_types:
            source, _, destination = each
            total = 0
            frontier = list(found[destination])[begin[destination] : end[destination]]
            for i, (subgraph, node) in enumerate(frontier, begin[destination]):
                until = None if seed_times is None else int(seed_times[subgraph])
                allowed = allowed_edges(graph, each, node, until)
                fanout = num_neighbors[each][hop]
                count = len(allowed) if fanout < 0 else min(fanout, len(allowed))
                place = bounds[each][i]
                assert bounds[each][i + 1] == place + count
                taken = numbers[each][place : place + count]
                assert len(set(taken)) == count
                assert set(taken) <= set(allowed)
                if count == len(allowed) or takes_last:
                    assert taken == allowed[len(allowed) - count :]
                for edge, (row, column) in zip(
                    taken, edges[each][:, place : place + count].T, strict=True
                ):
                    neighbor = int(graph.topologies[each].indices[edge])
                    known = found[source]
                    assert row == known.setdefault((subgraph, neighbor), len(known))
                    assert column == i
                total += count
            num_edges[each].append(total)
        for name in types:
            num_nodes[name].append(len(found[name]) - end[name])
        begin = end
    assert sampled.types.num_sampled_nodes == num_nodes
    assert sampled.types.num_sampled_edges == num_edges
    for name, ids in sampled.types.ids(sampled.n_id).items():
        np.testing.assert_array_equal(ids, np.array([node for _, node in found[name]], np.int64))
    if disjoint:
        subgraphs = [subgraph for name in types for subgraph, _ in found[name]]
        np.testing.assert_array_equal(sampled.batch, np.array(subgraphs, np.int64))
