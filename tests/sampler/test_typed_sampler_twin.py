"""The sampler of GPUs draws the host's batches of graphs with types, edge by edge: here its twin,
which runs the same functors on the host, forwards and backwards."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm import native
from lsm.graph.types import EDGE, NODE, NodeSpace, TypedMap
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler
from lsm.sampler.typed_neighbor import TypedNeighborSampler, TypedTopology
from reference.typed import check_typed_sample
from support.graphs import assert_same, from_edges
from support.typed_topologies import EDGE_TYPES, random_typed_graph, with_values

TIMES = {"edge": "edge", "node": "node", "both": "both", "last": "both", "weighted both": "both"}
TWINS = [native.TWIN, native.TWIN_BACKWARDS]


def samplers(graph, num_neighbors, device, input_type="paper", **options):
    """The host's, and a twin."""
    options["input_type"] = input_type
    twin = DeviceNeighborSampler(*(graph, graph, num_neighbors), device=device, **options)
    return TypedNeighborSampler(graph, num_neighbors, **options), twin


def assert_same_batch(host, twin, *arguments):
    expected, sampled = host.sample(*arguments), twin.sample(*arguments)
    assert_same(sampled, expected)
    assert sampled.types == expected.types
    assert torch.equal(twin.edge_ids(*arguments), host.edge_ids(*arguments))
    return sampled


@settings(deadline=None, max_examples=80)
@given(
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from([np.int32, np.int64]),
    fanouts=st.lists(st.sampled_from([-1, 0, 1, 3, 10, 70]), min_size=18, max_size=18),
    num_hops=st.integers(0, 3),
    input_type=st.sampled_from(["paper", "author"]),
    sampling=st.sampled_from(["neighbor", "labor"]),
    form=st.sampled_from(
        ["plain", "disjoint", "edge", "node", "both", "last", "weighted", "weighted both"]
    ),
    device=st.sampled_from(TWINS),
)
def test_any_small_graph(seed, dtype, fanouts, num_hops, input_type, sampling, form, device):
    rng = np.random.default_rng(seed)
    times, weighted = TIMES.get(form), form.startswith("weighted")
    graph = random_typed_graph(rng, dtype, 40, 200)
    graph = with_values(graph, rng, times=times, weighted=weighted)
    disjoint, takes_last = form not in ("plain", "weighted"), form == "last"
    num_neighbors = {
        each: fanouts[3 * number : 3 * number + num_hops] for number, each in enumerate(EDGE_TYPES)
    }
    host, twin = samplers(
        *(graph, num_neighbors, device, input_type),
        sampling="neighbor" if weighted else sampling,
        disjoint=disjoint,
        temporal_strategy="last" if takes_last else "uniform",
    )
    count = graph.space.counts[input_type]
    for iteration in range(2):  # the second uses the memory of the first
        drawn = rng.integers(0, count, count) if disjoint else rng.permutation(count)
        seeds = torch.from_numpy(drawn[: rng.integers(0, count + 1)])
        until = torch.from_numpy(rng.integers(-1, 21, len(seeds))) if times else None
        arguments = seeds, BatchName(seed, 1, iteration, rank=3), until
        sampled = assert_same_batch(host, twin, *arguments)
        if num_hops > 0:
            check_typed_sample(
                *(graph, num_neighbors, input_type, seeds.tolist(), until),
                *(sampled, twin.edge_ids(*arguments)),
                disjoint=disjoint,
                takes_last=takes_last,
            )


@pytest.mark.parametrize("device", TWINS)
@pytest.mark.parametrize("form", ["plain", "disjoint", "both", "last", "weighted", "weighted both"])
@pytest.mark.parametrize("num_neighbors", [[15, 10, 5], [3, -1, 2], [60, 2, 40]])
def test_larger_graphs(num_neighbors, form, device):
    """Some hops may have more edges than memory is reserved for: they are counted first."""
    rng, times = np.random.default_rng(5), TIMES.get(form)
    graph = random_typed_graph(rng, np.int32, 30_000, 150_000)
    graph = with_values(graph, rng, times=times, weighted=form.startswith("weighted"))
    disjoint = form not in ("plain", "weighted")
    strategy = "last" if form == "last" else "uniform"
    host, twin = samplers(
        *(graph, num_neighbors, device), disjoint=disjoint, temporal_strategy=strategy
    )
    seeds = torch.randperm(graph.space.counts["paper"], generator=torch.Generator().manual_seed(0))
    for iteration, count in enumerate((60, 400, 90) if disjoint else (200, 4000, 300)):
        until = torch.from_numpy(rng.integers(-1, 21, count)) if times else None
        name = BatchName(seed=5, iteration=iteration)
        assert_same_batch(host, twin, seeds[:count], name, until)


@pytest.mark.parametrize("device", TWINS)
def test_subgraphs_of_a_graph_of_one_type(device):
    """Its ids are int32, and those of the nodes of all subgraphs are too large for that."""
    num_nodes, rng = 3_000_000, np.random.default_rng(2)
    ends = num_nodes - rng.integers(1, 100, (2, 400))
    graph = TypedTopology(
        NodeSpace({NODE: num_nodes}), TypedMap({EDGE: from_edges(*ends, num_nodes)})
    )
    host, twin = samplers(graph, [-1, 2], device, NODE, disjoint=True)
    seeds = torch.from_numpy(num_nodes - rng.integers(1, 100, 1000))
    sampled = assert_same_batch(host, twin, seeds, BatchName())
    assert sampled.batch[:1000].equal(torch.arange(1000))
    assert sampled.types is None


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


def one_type(sources, destinations, num_nodes, **values):
    topology = TypedMap({EDGE: from_edges(sources, destinations, num_nodes)})
    return TypedTopology(NodeSpace({NODE: num_nodes}), topology, **values)


@pytest.mark.parametrize("device", TWINS)
@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_neighbours_until_the_time_of_a_seed(strategy, device):
    """By hand: equal times, the time of a seed itself, none so early, and a seed that is there
    twice with two times."""
    graph = one_type([1, 2, 3, 4], [0, 0, 0, 0], 5, times={EDGE: torch.tensor([3, 5, 5, 9])})
    _, twin = samplers(graph, [2], device, NODE, disjoint=True, temporal_strategy=strategy)
    seeds, until = torch.tensor([0, 0, 0, 1]), torch.tensor([5, 2, 100, 100])
    edge_ids = twin.edge_ids(seeds, BatchName(), until).tolist()
    if strategy == "last":
        assert edge_ids == [1, 2, 2, 3]
    else:
        assert set(edge_ids[:2]) <= {0, 1, 2}
        assert len(edge_ids) == 4


def test_a_time_for_each_seed():
    graph = one_type([1], [0], 2, node_times={NODE: torch.tensor([1, 2])})
    _, twin = samplers(graph, [2], native.TWIN, NODE, disjoint=True)
    for until in (None, torch.tensor([1])):
        with pytest.raises(ValueError, match="seed times: expected one for each of 2 seeds"):
            twin.sample(torch.tensor([0, 1]), BatchName(), until)
    with pytest.raises(ValueError, match="times: expected a subgraph for each seed"):
        DeviceNeighborSampler(graph, graph, [2], input_type=NODE, device=native.TWIN)


def test_copies_are_those_of_the_host():
    times = {"times": {EDGE: torch.tensor([1])}}
    graph, plain = one_type([1], [0], 2, **times), one_type([1], [0], 2)
    longer = one_type([1, 0], [0, 0], 2)
    for host, placed, fault in (
        (graph, plain, "times: expected copies"),
        (plain, graph, "times: expected copies"),
        (plain, longer, "indices: expected a copy of the 1 int32"),
    ):
        with pytest.raises(ValueError, match=fault):
            DeviceNeighborSampler(
                *(host, placed, [2]), input_type=NODE, disjoint=True, device=native.TWIN
            )


@pytest.mark.parametrize("device", TWINS)
@pytest.mark.parametrize("fanout", [1, 2, 40, 90])
def test_weights_that_are_equal_zero_or_far_apart(fanout, device):
    """More edges than a warp has lanes; all of some nodes have weight 0."""
    rng, num_nodes = np.random.default_rng(fanout), 60
    destinations = np.repeat(np.arange(num_nodes), 100)
    kinds = [np.ones(100), np.zeros(100), 2.0 ** rng.integers(-120, 120, 100), np.eye(100)[7]]
    drawn = np.concatenate([kinds[node % 4] for node in range(num_nodes)]).astype(np.float32)
    sources = rng.integers(0, num_nodes, len(destinations))
    graph = one_type(sources, destinations, num_nodes, weights={EDGE: torch.from_numpy(drawn)})
    host, twin = samplers(graph, [fanout, 3], device, NODE)
    for iteration in range(3):
        name, seeds = BatchName(seed=3, iteration=iteration), torch.arange(20)
        sampled = assert_same_batch(host, twin, seeds, name)
        num_positive = [100, 0, 100, 1] * 5
        expected = [min(fanout, each) for each in num_positive]
        assert sampled.indptr.diff()[:20].tolist() == expected
        assert (torch.from_numpy(drawn)[twin.edge_ids(seeds, name)] > 0).all()


def test_bad_weights():
    for weight, fault in ((-1.0, "finite weights >= 0, got -1"), (float("nan"), "finite weights")):
        graph = one_type([0], [1], 3, weights={EDGE: torch.tensor([weight])})
        with pytest.raises(ValueError, match=fault):
            DeviceNeighborSampler(graph, graph, [2], input_type=NODE, device=native.TWIN)
    graph = one_type([0], [1], 3, weights={EDGE: torch.ones(1)})
    options = {"input_type": NODE, "sampling": "labor", "device": native.TWIN}
    with pytest.raises(ValueError, match="weights: expected none with labor"):
        DeviceNeighborSampler(graph, graph, [2], **options)
