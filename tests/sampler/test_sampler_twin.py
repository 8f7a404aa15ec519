"""The sampler of GPUs draws the host sampler's batches, edge by edge: here its twin, which runs the
same functors on the host, forwards and backwards."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from lsm import native
from lsm.graph import Topology
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler, choose_placement, place_topology
from support.graphs import SMALL_GRAPHS, assert_same, from_edges, random_graph

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def twin(graph, fanouts, device=native.TWIN):
    return DeviceNeighborSampler(graph, graph, fanouts, device=device)


@settings(deadline=None, max_examples=60)
@given(
    *SMALL_GRAPHS,
    st.sampled_from([native.TWIN, native.TWIN_BACKWARDS]),
)
def test_any_small_graph(num_nodes, num_edges, fanouts, seed, dtype, device):
    graph = random_graph(num_nodes, num_edges, seed, dtype)
    rng = np.random.default_rng(seed)
    sampler = twin(graph, fanouts, device)
    host = NeighborSampler(graph, fanouts)
    for iteration in range(2):
        seeds = torch.from_numpy(rng.permutation(num_nodes)[: rng.integers(0, num_nodes + 1)])
        name = BatchName(seed, 1, iteration, rank=3)
        sampled = sampler.sample(seeds, name)
        assert_same(sampled, host.sample(seeds, name))
        reference.check_sample(graph.indptr, graph.indices, seeds, fanouts, sampled)


@pytest.mark.parametrize("fanouts", [[10, 5], [100, 2], [3, 0, 4], [-1, 2]])
def test_larger_graph(fanouts):
    graph = random_graph(30_000, 200_000)
    seeds = torch.randperm(30_000, generator=torch.Generator().manual_seed(0))[:500]
    sampled = twin(graph, fanouts, native.TWIN_BACKWARDS).sample(seeds, BatchName(seed=5))
    assert_same(sampled, NeighborSampler(graph, fanouts).sample(seeds, BatchName(seed=5)))


@pytest.mark.parametrize("sampling", ["neighbor", "labor"])
def test_more_edges_than_memory_is_reserved_for(sampling):
    """They are counted before they are drawn."""
    graph = random_graph(20_000, 150_000)
    seeds = torch.randperm(20_000, generator=torch.Generator().manual_seed(0))[:18_000]
    host = NeighborSampler(graph, [60, 2], sampling=sampling)
    sampler = DeviceNeighborSampler(
        graph, graph, [60, 2], sampling=sampling, device=native.TWIN_BACKWARDS
    )
    for iteration in range(2):
        sampled = sampler.sample(seeds, BatchName(seed=5, iteration=iteration))
        assert_same(sampled, host.sample(seeds, BatchName(seed=5, iteration=iteration)))


def test_slots_at_the_same_time():
    graph = random_graph(3000, 20_000)
    sampler = DeviceNeighborSampler(
        *(graph, graph, [10, 5]), device=native.TWIN_BACKWARDS, num_slots=3
    )
    host = NeighborSampler(graph, [10, 5])
    seeds = [
        torch.randperm(3000, generator=torch.Generator().manual_seed(k))[:300] for k in range(24)
    ]

    def sample(k):
        if k % 5 == 0:  # a batch that is refused leaves its slot as it was
            with pytest.raises(ValueError, match="distinct"):
                sampler.sample(torch.tensor([7, 7]), BatchName(iteration=k))
        return sampler.sample(seeds[k], BatchName(seed=5, iteration=k))

    with ThreadPoolExecutor(5) as threads:
        for k, sampled in enumerate(threads.map(sample, range(24))):
            assert_same(sampled, host.sample(seeds[k], BatchName(seed=5, iteration=k)))


def test_bad_input():
    graph = random_graph(50, 300)
    with pytest.raises(ValueError, match=r"seeds: expected ids in \[0, 50\), got 50"):
        twin(graph, [2]).sample(torch.tensor([1, 50]), BatchName())
    with pytest.raises(ValueError, match="expected distinct ids, got 7 again at position 2"):
        twin(graph, [2]).sample(torch.tensor([7, 1, 7]), BatchName())
    with pytest.raises(ValueError, match="num_neighbors: expected -1"):
        twin(graph, [-2])
    # The sampler is of use afterwards.
    sampler = twin(graph, [2])
    with pytest.raises(ValueError, match="distinct"):
        sampler.sample(torch.tensor([7, 7]), BatchName())
    seeds = torch.tensor([7, 9])
    host = NeighborSampler(graph, [2]).sample(seeds, BatchName())
    assert_same(sampler.sample(seeds, BatchName()), host)


@pytest.mark.parametrize(
    ("fanouts", "sampling"), [([-1], "neighbor"), ([2, 2], "neighbor"), ([2], "ladies")]
)
def test_a_damaged_topology(fanouts, sampling):
    damaged = from_edges([0, 99], [1, 1], 3)
    sampler = DeviceNeighborSampler(
        damaged, damaged, fanouts, sampling=sampling, device=native.TWIN
    )
    with pytest.raises(ValueError, match=r"expected ids in \[0, 3\), got 99; the topology is dam"):
        sampler.sample(torch.tensor([1]), BatchName())


def test_placement():
    assert choose_placement("auto", CPU, 100, 0) == "host"
    assert choose_placement("auto", GPU, 100, 200) == "device"
    assert choose_placement("auto", GPU, 101, 200) == "uva"
    assert choose_placement("host", GPU, 1, 200) == "host"
    with pytest.raises(ValueError, match="device needs 201 B, and 200 B"):
        choose_placement("device", GPU, 201, 200)
    with pytest.raises(ValueError, match="uva needs a GPU that trains"):
        choose_placement("uva", CPU, 1, 200)


def test_a_topology_that_cannot_be_page_locked(monkeypatch):
    """As torch reports that cudaHostRegister failed."""

    def refuse(*_arguments, **_options):
        raise RuntimeError("CUDA error: out of memory\nmore words")

    topology = Topology(indptr=torch.arange(3), indices=torch.arange(2, dtype=torch.int32))
    monkeypatch.setattr(native, "LockedBlock", refuse)
    with pytest.raises(RuntimeError, match=r"page-lock 24 B of host memory .*placement=host"):
        place_topology(topology, "uva", GPU)
