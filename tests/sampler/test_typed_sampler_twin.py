"""The sampler of GPUs draws the host's batches of graphs with types, edge by edge: here its twin,
which runs the same functors on the host, forwards and backwards."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm import native
from lsm.graph.types import NodeSpace, TypedMap
from lsm.reference.typed import check_typed_sample
from lsm.sampler.name import BatchName
from lsm.sampler.typed_gpu import DeviceTypedNeighborSampler
from lsm.sampler.typed_neighbor import TypedNeighborSampler, TypedTopology
from support.graphs import assert_same, from_edges
from support.typed_topologies import EDGE_TYPES, random_typed_graph

TWINS = [native.TWIN, native.TWIN_BACKWARDS]


def samplers(graph, num_neighbors, device, input_type="paper", sampling="neighbor"):
    """The host's, and a twin."""
    options = {"input_type": input_type, "sampling": sampling}
    twin = DeviceTypedNeighborSampler(
        *(graph, graph.topologies, num_neighbors), device=device, **options
    )
    return TypedNeighborSampler(graph, num_neighbors, **options), twin


def assert_same_batch(host, twin, *arguments):
    expected, sampled = host.sample(*arguments), twin.sample(*arguments)
    assert_same(sampled, expected)
    assert sampled.types == expected.types
    assert torch.equal(twin.edge_ids(*arguments), host.edge_ids(*arguments))
    return sampled


@settings(deadline=None, max_examples=100)
@given(
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from([np.int32, np.int64]),
    fanouts=st.lists(st.sampled_from([-1, 0, 1, 3, 10, 70]), min_size=18, max_size=18),
    num_hops=st.integers(0, 3),
    input_type=st.sampled_from(["paper", "author"]),
    sampling=st.sampled_from(["neighbor", "labor"]),
    device=st.sampled_from(TWINS),
)
def test_any_small_graph(seed, dtype, fanouts, num_hops, input_type, sampling, device):
    rng = np.random.default_rng(seed)
    graph = random_typed_graph(rng, dtype, 40, 200)
    num_neighbors = {
        each: fanouts[3 * number : 3 * number + num_hops] for number, each in enumerate(EDGE_TYPES)
    }
    host, twin = samplers(graph, num_neighbors, device, input_type, sampling)
    count = graph.space.counts[input_type]
    for iteration in range(2):  # the second uses the memory of the first
        seeds = torch.from_numpy(rng.permutation(count)[: rng.integers(0, count + 1)])
        name = BatchName(seed, 1, iteration, rank=3)
        sampled = assert_same_batch(host, twin, seeds, name)
        if num_hops > 0:
            check_typed_sample(
                *(graph, num_neighbors, input_type, seeds.tolist(), None),
                *(sampled, twin.edge_ids(seeds, name)),
            )


@pytest.mark.parametrize("device", TWINS)
@pytest.mark.parametrize("num_neighbors", [[15, 10, 5], [3, -1, 2], [60, 2, 40]])
def test_larger_graphs(num_neighbors, device):
    """Some hops may have more edges than memory is reserved for: they are counted first."""
    graph = random_typed_graph(np.random.default_rng(5), np.int32, 30_000, 150_000)
    host, twin = samplers(graph, num_neighbors, device)
    seeds = torch.randperm(graph.space.counts["paper"], generator=torch.Generator().manual_seed(0))
    for iteration, count in enumerate((200, 4000, 300)):
        name = BatchName(seed=5, iteration=iteration)
        assert_same_batch(host, twin, seeds[:count], name)


def test_a_type_that_is_not_reached():
    """Seeds without in-edges of any type, which must still be distinct."""
    graph = random_typed_graph(np.random.default_rng(0), np.int32, 40, 100, EDGE_TYPES[3:4])
    host, twin = samplers(graph, [2, 2], native.TWIN, "author")
    assert_same_batch(host, twin, torch.tensor([0, 2, 1]), BatchName())
    with pytest.raises(ValueError, match="expected distinct ids, got 1 again at position 2"):
        twin.sample(torch.tensor([1, 0, 1]), BatchName())


def test_a_damaged_topology_names_the_range_of_its_sources():
    counts = {"paper": 3, "author": 2}
    edges = {
        ("paper", "cites", "paper"): from_edges([0], [1], 3),
        ("author", "writes", "paper"): from_edges([0, 2], [1, 1], 3),
    }
    _, twin = samplers(TypedTopology(NodeSpace(counts), TypedMap(edges)), [2], native.TWIN)
    with pytest.raises(ValueError, match=r"expected ids in \[0, 2\), got 2; the topology is dam"):
        twin.sample(torch.tensor([1]), BatchName())
    with pytest.raises(ValueError, match=r"seeds: expected ids in \[0, 3\), got 3"):
        twin.sample(torch.tensor([3]), BatchName())


@pytest.mark.parametrize("name", ["weight_attr", "time_attr"])
def test_what_only_the_host_takes(name):
    edge_type = ("paper", "cites", "paper")
    topologies = TypedMap({edge_type: from_edges([0], [1], 3)})
    values = {
        "weight_attr": {"weights": {edge_type: torch.ones(1)}},
        "time_attr": {"node_times": {"paper": torch.zeros(3, dtype=torch.int64)}},
    }
    graph = TypedTopology(NodeSpace({"paper": 3}), topologies, **values[name])
    with pytest.raises(ValueError, match=f"^{name}: only the host samples with it"):
        DeviceTypedNeighborSampler(
            *(graph, topologies, [2]), input_type="paper", device=native.TWIN
        )
