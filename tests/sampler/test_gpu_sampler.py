"""A GPU's sampler draws the host sampler's batches, edge by edge."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from lsm import Sampling
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler, place_topology
from lsm.sampler.typed_neighbor import TypedNeighborSampler
from support.gpus import ON_A_GPU
from support.graphs import assert_same, random_graph
from support.typed_topologies import random_typed_graph

pytestmark = ON_A_GPU


@pytest.mark.parametrize("placement", ["uva", "device"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("fanouts", [[10, 5], [100, 2], [3, 0, 4], [-1, 2]])
def test_samples(placement, dtype, fanouts):
    graph = random_graph(30_000, 200_000, dtype=dtype)
    placed = place_topology(graph, placement, torch.device("cuda", 0))
    sampler = DeviceNeighborSampler(graph, placed, fanouts, device=0)
    host = NeighborSampler(graph, fanouts)
    for iteration in range(3):
        generator = torch.Generator().manual_seed(iteration)
        seeds = torch.randperm(30_000, generator=generator)[:500]
        sampled = sampler.sample(seeds, BatchName(seed=5, iteration=iteration))
        assert_same(sampled, host.sample(seeds, BatchName(seed=5, iteration=iteration)))


def test_a_graph_is_copied_to_the_gpu_where_it_is_unpacked():
    graph = random_graph(30_000, 200_000)
    sampled = NeighborSampler(graph, [10, 5]).sample(torch.arange(500), BatchName())
    for source in (sampled, sampled.pack()):
        there = source.unpack(torch.device("cuda", 0))
        assert there.n_id.is_pinned()
        assert torch.equal(there.n_id, sampled.n_id)
        for name in ("edge_index", "indptr"):
            copied = getattr(there, name)
            assert copied.is_cuda
            assert torch.equal(copied.cpu(), getattr(sampled, name))


LABOR = [
    Sampling("labor"),
    Sampling("labor", layer_dependency=True),
    Sampling("labor", layer_dependency=True, batch_dependency=4),
]
LADIES = [Sampling("ladies"), Sampling("ladies", debias=True)]


@pytest.mark.parametrize("placement", ["uva", "device"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("sampling", "sizes"),
    [
        *((labor, fanouts) for labor in LABOR for fanouts in ([10, 5], [100, 2], [-1, 3])),
        *((ladies, sizes) for ladies in LADIES for sizes in ([300, 900], [5000], [1, 3, 40])),
    ],
)
def test_samples_of_other_kinds(placement, dtype, sampling, sizes):
    """Weights too: the sampler's code is compiled to round as the host does."""
    graph = random_graph(30_000, 200_000, dtype=dtype)
    placed = place_topology(graph, placement, torch.device("cuda", 0))
    sampler = DeviceNeighborSampler(graph, placed, sizes, sampling=sampling, device=0)
    host = NeighborSampler(graph, sizes, sampling=sampling)
    for iteration in range(3):
        generator = torch.Generator().manual_seed(iteration)
        seeds = torch.randperm(30_000, generator=generator)[:500]
        name = BatchName(seed=5, iteration=iteration)
        sampled, expected = sampler.sample(seeds, name), host.sample(seeds, name)
        assert_same(sampled, expected)
        if expected.edge_weight is not None:
            assert torch.equal(sampled.edge_weight, expected.edge_weight)


@pytest.mark.parametrize("placement", ["uva", "device"])
@pytest.mark.parametrize("sampling", ["neighbor", "labor"])
@pytest.mark.parametrize("num_neighbors", [[15, 10, 5], [3, -1, 2]])
def test_samples_of_graphs_with_types(placement, sampling, num_neighbors):
    graph = random_typed_graph(np.random.default_rng(5), np.int32, 30_000, 150_000)
    placed = place_topology(graph, placement, torch.device("cuda", 0))
    options = {"input_type": "paper", "sampling": sampling}
    sampler = DeviceNeighborSampler(graph, placed, num_neighbors, device=0, **options)
    host = TypedNeighborSampler(graph, num_neighbors, **options)
    for iteration in range(3):
        seeds = torch.arange(iteration, graph.space.counts["paper"], 50)
        name = BatchName(seed=5, iteration=iteration)
        sampled, expected = sampler.sample(seeds, name), host.sample(seeds, name)
        assert_same(sampled, expected)
        assert sampled.types == expected.types


@pytest.mark.parametrize("output", ["cpu", "cuda:0"])
def test_samples_at_the_same_time(output):
    graph = random_graph(30_000, 200_000)
    placed = place_topology(graph, "device", torch.device("cuda", 0))
    sampler = DeviceNeighborSampler(*(graph, placed, [10, 5]), device=0, output=output, num_slots=4)
    host = NeighborSampler(graph, [10, 5])
    seeds = torch.randperm(30_000, generator=torch.Generator().manual_seed(0))[:500]

    def sample(iteration):
        return sampler.sample(seeds, BatchName(seed=5, iteration=iteration))

    with ThreadPoolExecutor(6) as threads:
        for iteration, sampled in enumerate(threads.map(sample, range(40))):
            expected = host.sample(seeds, BatchName(seed=5, iteration=iteration))
            assert torch.equal(sampled.n_id.cpu(), expected.n_id)
            assert torch.equal(sampled.edge_index.cpu(), expected.edge_index)
