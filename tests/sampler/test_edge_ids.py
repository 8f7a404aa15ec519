"""Edge ids of samples: indices into the graph's CSC, on the host and on the twin of the GPU."""

import numpy as np
import pytest
import torch

from lsm import native
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler
from lsm.sampler.options import Sampling
from support.graphs import from_edges, random_graph

SAMPLINGS = {
    "neighbor": Sampling("neighbor"),
    "labor": Sampling("labor"),
    "labor, dependent": Sampling("labor", layer_dependency=True, batch_dependency=3),
    "ladies": Sampling("ladies"),
    "ladies, debiased": Sampling("ladies", debias=True),
}


def check_edge_ids(graph, sampled, edge_ids):
    """Every edge is the one in the CSC that its id says, and none is taken twice."""
    assert edge_ids.dtype == torch.int64
    assert edge_ids.shape == (sampled.edge_index.size(1),)
    source, destination = (sampled.n_id[local] for local in sampled.edge_index)
    assert torch.equal(graph.indices.long()[edge_ids], source)
    assert (graph.indptr[destination] <= edge_ids).all()
    assert (edge_ids < graph.indptr[destination + 1]).all()
    assert len(edge_ids.unique()) == len(edge_ids)


def samplers(graph, fanouts, sampling):
    for num_threads in (1, 3):
        yield NeighborSampler(graph, fanouts, num_threads, sampling=sampling)
    for device in (native.TWIN, native.TWIN_BACKWARDS):
        yield DeviceNeighborSampler(graph, graph, fanouts, sampling=sampling, device=device)


@pytest.mark.parametrize("name", SAMPLINGS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("fanouts", [[10, 5], [80, 3, 2]])
def test_edge_ids_are_those_of_the_sample(name, dtype, fanouts):
    graph = random_graph(3000, 60_000, 1, dtype)
    seeds = torch.randperm(3000, generator=torch.Generator().manual_seed(2))[:200]
    batch = BatchName(5, 1, 4, rank=2, step=9)
    expected = None
    for sampler in samplers(graph, fanouts, SAMPLINGS[name]):
        edge_ids = sampler.edge_ids(seeds, batch)
        check_edge_ids(graph, sampler.sample(seeds, batch), edge_ids)
        assert len(edge_ids) > 50
        expected = edge_ids if expected is None else expected
        assert torch.equal(edge_ids, expected)
        assert not torch.equal(
            sampler.edge_ids(seeds, batch._replace(iteration=8, step=13)), expected
        )


@pytest.mark.parametrize("name", SAMPLINGS)
@pytest.mark.parametrize("size", [3, -1])
def test_parallel_edges_are_told_apart(name, size):
    """Node 0 has eight edges from node 1 and two from node 2."""
    if SAMPLINGS[name].kind == "ladies":
        size = 3  # nodes; ladies takes all edges from those that it samples
    graph = from_edges([1] * 8 + [2] * 2 + [4], [0] * 10 + [3], 5)
    for sampler in samplers(graph, [size], SAMPLINGS[name]):
        seen = set()
        for iteration in range(40):
            seeds = torch.tensor([3, 0])
            batch = BatchName(5, iteration=iteration, step=iteration)
            edge_ids = sampler.edge_ids(seeds, batch)
            check_edge_ids(graph, sampler.sample(seeds, batch), edge_ids)
            seen.update(edge_ids.tolist())
        # LABOR draws for a source, not for an edge: of parallel edges it takes the first.
        takes_first = SAMPLINGS[name].kind == "labor" and size == 3
        assert seen == ({0, 1, 2, 8, 9, 10} if takes_first else set(range(11)))


def test_no_edges():
    graph = from_edges([], np.array([], np.int64), 4)
    for sampler in samplers(graph, [2, 2], "neighbor"):
        for seeds in (torch.tensor([1, 3]), torch.tensor([], dtype=torch.int64)):
            assert sampler.edge_ids(seeds, BatchName()).tolist() == []


def test_more_hops_than_nodes():
    """Edge ids of earlier hops stay when later hops grow the array."""
    ring = from_edges(np.arange(50), (np.arange(50) + 1) % 50, 50)
    for sampler in samplers(ring, [1] * 60, "neighbor"):
        sampled = sampler.sample(torch.tensor([7]), BatchName())
        edge_ids = sampler.edge_ids(torch.tensor([7]), BatchName())
        check_edge_ids(ring, sampled, edge_ids)
        assert np.array_equal(np.sort(edge_ids.numpy()), np.arange(50))
