"""Small graphs with types for tests of sampling."""

import numpy as np
import torch

from lsm.graph.topology import Topology
from lsm.graph.types import NodeSpace, TypedMap
from lsm.sampler.typed_neighbor import TypedTopology
from support.graphs import from_edges

# Types of edges with one destination, one within a type, and a type of nodes that has no in-edges.
EDGE_TYPES = [
    ("paper", "cites", "paper"),
    ("author", "writes", "paper"),
    ("paper", "written_by", "author"),
    ("field", "of", "paper"),
    ("author", "knows", "author"),
    ("paper", "again_cites", "paper"),
]


def random_typed_graph(rng, dtype, most_nodes, most_edges, edge_types=EDGE_TYPES):
    """Skewed degrees, nodes without in-edges, types without edges and, of fields, without nodes."""
    counts = {name: int(rng.integers(1, most_nodes)) for name in ("paper", "author")}
    counts["field"] = int(rng.integers(0, 5))
    topologies = TypedMap()
    for each in edge_types:
        source, _, destination = each
        count = int(rng.integers(0, most_edges)) if counts[source] > 0 else 0
        topologies[each] = from_edges(
            rng.integers(0, max(counts[source], 1), count),
            (counts[destination] * rng.random(count) ** 2).astype(np.int64),
            counts[destination],
            dtype,
        )
    return TypedTopology(NodeSpace(counts), topologies)


def in_order_of(times, topology):
    """The edges of ``topology`` with ``times`` [E], each node's in their order."""
    owner = np.repeat(np.arange(len(topology.indptr) - 1), topology.indptr.diff().numpy())
    order = np.lexsort((times, owner))
    return Topology(topology.indptr, topology.indices[order]), torch.from_numpy(times[order])


def with_values(graph, rng, *, times=None, weighted=False):
    """``graph`` with values: times that are equal for many, of the edges ("edge"), of the nodes but
    fields ("node"), or some of both ("both"); weights with zeros, but for one type of edges."""
    of_nodes = times in ("node", "both")
    node_times = {
        name: rng.integers(0, 20, graph.space.counts[name])
        for name in ("paper", "author")
        if of_nodes
    }
    topologies, edge_times, weights = TypedMap(), {}, {}
    for number, (each, topology) in enumerate(graph.topologies.items()):
        num_edges = len(topology.indices)
        if times == "edge" or (times == "both" and number % 2 == 0):
            own = rng.integers(0, 20, num_edges)
            topologies[each], edge_times[each] = in_order_of(own, topology)
        elif each[0] in node_times:
            own = node_times[each[0]][topology.indices.numpy()]
            topologies[each], _ = in_order_of(own, topology)
        else:
            topologies[each] = topology
        if weighted and number != 1:
            drawn = rng.random(num_edges) * rng.integers(0, 2, num_edges)
            weights[each] = torch.from_numpy(drawn.astype(np.float32))
    return TypedTopology(
        graph.space,
        topologies,
        weights=weights,
        times=edge_times,
        node_times={name: torch.from_numpy(own) for name, own in node_times.items()},
    )
