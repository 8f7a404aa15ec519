"""Small graphs for tests, and comparisons of samples from them."""

import numpy as np
import torch
from hypothesis import strategies as st

from lsm.graph.topology import Topology

SAMPLED_FIELDS = ("n_id", "edge_index", "indptr", "num_sampled_nodes", "num_sampled_edges", "batch")
# Arguments of a test: nodes and edges of a random_graph(), fanouts, seed, and type of its indices.
SMALL_GRAPHS = (
    st.integers(1, 60),
    st.integers(0, 600),
    st.lists(st.sampled_from([-1, 0, 1, 3, 10, 70]), min_size=0, max_size=3),
    st.integers(0, 2**31),
    st.sampled_from([np.int32, np.int64]),
)


def from_edges(sources, destinations, num_nodes, dtype=np.int32):
    """CSC topology of the edges, in-neighbours in the order of the edges."""
    order = np.argsort(destinations, kind="stable")
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(np.bincount(destinations, minlength=num_nodes), out=indptr[1:])
    indices = np.asarray(sources)[order].astype(dtype)
    return Topology(indptr=torch.from_numpy(indptr), indices=torch.from_numpy(indices))


def random_graph(num_nodes, num_edges, seed=0, dtype=np.int32):
    """Skewed degrees, self loops, parallel edges, nodes without in-edges."""
    rng = np.random.default_rng(seed)
    sources = (num_nodes * rng.random(num_edges) ** 2).astype(np.int64)
    destinations = (num_nodes * rng.random(num_edges) ** 3).astype(np.int64)
    return from_edges(sources, destinations, num_nodes, dtype)


def assert_same(a, b):
    """Two sampled graphs are equal to the last edge."""
    for field in SAMPLED_FIELDS:
        left, right = getattr(a, field), getattr(b, field)
        assert torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right, field
