"""The edges of a graph in memory."""

import numpy as np
import pytest
import torch

from lsm.graph import Topology


@pytest.mark.parametrize(("dtype", "itemsize"), [(torch.int32, 4), (torch.int64, 8)])
def test_a_topology_counts_its_nodes_edges_and_bytes(dtype, itemsize):
    edges = np.array([[0, 0, 3], [1, 2, 1]])  # sources, destinations
    order = np.argsort(edges[1], kind="stable")
    indptr = torch.tensor([0, 0, 2, 3, 3])
    topology = Topology(indptr, torch.from_numpy(edges[0][order]).to(dtype))
    assert (topology.num_nodes, topology.num_edges) == (4, 3)
    assert topology.num_bytes == 5 * 8 + 3 * itemsize
    assert topology.indices[indptr[1] : indptr[2]].tolist() == [0, 3]
