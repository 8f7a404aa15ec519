"""Small graphs with types for tests of sampling."""

import numpy as np

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
