"""LADIES: the layers it samples, its weights, and their expectation."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm import Sampling, native
from lsm.loader.batch import Batch
from lsm.nn.models import build_model
from lsm.nn.options import ModelOptions
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler
from support.graphs import SMALL_GRAPHS, assert_same, from_edges, random_graph

SAMPLINGS = st.sampled_from([Sampling("ladies"), Sampling("ladies", debias=True)])
SIZES = st.lists(st.sampled_from([1, 3, 10, 70, 5000]), min_size=0, max_size=3)


def check_layers(graph, seeds, sizes, sampling, sampled):
    """Hops keep exactly the edges from sampled nodes and those of the batch, all with weight."""
    n_id, indptr = sampled.n_id.numpy(), graph.indptr.numpy()
    weights = sampled.edge_weight.numpy()
    known = len(seeds)
    np.testing.assert_array_equal(n_id[:known], seeds)
    assert len(np.unique(n_id)) == len(n_id)
    begin, edges = 0, 0
    for hop, size in enumerate(sizes):
        new = n_id[known : known + sampled.num_sampled_nodes[hop + 1]]
        candidates = [
            source
            for node in n_id[begin:known]
            for source in graph.indices[indptr[node] : indptr[node + 1]].tolist()
        ]
        unknown = set(candidates) - set(n_id[:known].tolist())
        assert set(new.tolist()) <= unknown
        if sampling.debias:
            assert len(new) == min(size, len(unknown))
        else:  # known nodes are sampled too
            assert len(new) <= size
            assert len(new) == len(unknown) or size < len(set(candidates))
        kept = set(n_id[: known + len(new)].tolist())
        for i in range(begin, known):
            neighbors = graph.indices[indptr[n_id[i]] : indptr[n_id[i] + 1]].numpy()
            expected = [source for source in neighbors.tolist() if source in kept]
            into = slice(sampled.indptr[i], sampled.indptr[i + 1])
            sources, destinations = sampled.edge_index[:, into].numpy()
            assert n_id[sources].tolist() == expected
            assert (destinations == i).all()
            assert (weights[into] > 0).all()
            if expected and not sampling.debias:
                assert weights[into].sum() == pytest.approx(1, rel=1e-5)
            edges += len(expected)
        begin, known = known, known + len(new)
        assert sum(sampled.num_sampled_edges[: hop + 1]) == edges
    assert (len(n_id), len(weights), sampled.edge_index.shape[1]) == (known, edges, edges)


@settings(deadline=None, max_examples=80)
@given(SMALL_GRAPHS[0], SMALL_GRAPHS[1], SIZES, SMALL_GRAPHS[3], SMALL_GRAPHS[4], SAMPLINGS)
def test_any_small_graph(num_nodes, num_edges, sizes, seed, dtype, sampling):
    graph = random_graph(num_nodes, num_edges, seed, dtype)
    rng = np.random.default_rng(seed)
    seeds = rng.permutation(num_nodes)[: rng.integers(0, num_nodes + 1)]
    sampler = NeighborSampler(graph, sizes, sampling=sampling)
    sampled = sampler.sample(torch.from_numpy(seeds), BatchName(seed=seed, epoch=1, iteration=2))
    check_layers(graph, seeds, sizes, sampling, sampled)


def assert_equal(a, b):
    assert_same(a, b)
    assert torch.equal(a.edge_weight, b.edge_weight)


@settings(deadline=None, max_examples=60)
@given(
    *(SMALL_GRAPHS[0], SMALL_GRAPHS[1], SIZES, SMALL_GRAPHS[3], SMALL_GRAPHS[4], SAMPLINGS),
    st.sampled_from([native.TWIN, native.TWIN_BACKWARDS]),
)
def test_the_twin_samples_the_same(num_nodes, num_edges, sizes, seed, dtype, sampling, device):
    graph = random_graph(num_nodes, num_edges, seed, dtype)
    rng = np.random.default_rng(seed)
    host = NeighborSampler(graph, sizes, sampling=sampling)
    twin = DeviceNeighborSampler(graph, graph, sizes, sampling=sampling, device=device)
    for iteration in range(2):
        seeds = torch.from_numpy(rng.permutation(num_nodes)[: rng.integers(0, num_nodes + 1)])
        name = BatchName(seed, 1, iteration, rank=2)
        assert_equal(twin.sample(seeds, name), host.sample(seeds, name))


@pytest.mark.parametrize("sampling", [Sampling("ladies"), Sampling("ladies", debias=True)])
def test_the_twin_samples_the_same_of_a_larger_graph(sampling):
    graph = random_graph(20_000, 400_000)
    seeds = torch.arange(0, 20_000, 40)
    host = NeighborSampler(graph, [300, 900], sampling=sampling)
    twin = DeviceNeighborSampler(
        *(graph, graph, [300, 900]), sampling=sampling, device=native.TWIN_BACKWARDS
    )
    name = BatchName(seed=3, iteration=1)
    assert_equal(twin.sample(seeds, name), host.sample(seeds, name))


# Seeds 0, 1, 2 with sources 3 .. 9, among which node 1 is in the batch; the columns differ much.
SOURCES = [3, 4, 5, 1, 3, 6, 7, 8, 9, 4, 3, 3]
DESTINATIONS = [0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 2]
GRAPH = from_edges(SOURCES, DESTINATIONS, 10)
SEEDS = torch.tensor([0, 1, 2])
ADJACENCY = np.zeros((3, 10))
np.add.at(ADJACENCY, (DESTINATIONS, SOURCES), 1)
ADJACENCY /= ADJACENCY.sum(axis=1, keepdims=True)


def simulated(sampling, size, num_batches):
    """Mean of the sampled adjacency [3, 10] of GRAPH, and its standard error."""
    sampler = NeighborSampler(GRAPH, [size], sampling=sampling)
    total, squares = np.zeros((2, 3, 10))
    for iteration in range(num_batches):
        sampled = sampler.sample(SEEDS, BatchName(seed=3, iteration=iteration))
        one = np.zeros((3, 10))
        sources, destinations = sampled.edge_index.numpy()
        np.add.at(one, (destinations, sampled.n_id[sources].numpy()), sampled.edge_weight.numpy())
        total += one
        squares += one**2
    mean = total / num_batches
    return mean, np.sqrt(np.maximum(squares / num_batches - mean**2, 0) / num_batches)


@pytest.mark.parametrize("size", [1, 2, 4, 6])
def test_the_expectation_with_debias_is_the_adjacency(size):
    mean, error = simulated(Sampling("ladies", debias=True), size, 20_000)
    # Five standard errors: with fixed seeds, no flake; and float32 weights.
    assert (np.abs(mean - ADJACENCY) <= 5 * error + 1e-6).all()
    assert error.max() < 0.02


def test_the_plain_expectation_is_biased_towards_nodes_of_the_batch():
    mean, error = simulated(Sampling("ladies"), 3, 10_000)
    assert mean[0, 1] > ADJACENCY[0, 1] + 10 * error[0, 1]
    assert (mean[0, 3:6] < ADJACENCY[0, 3:6]).any()


def test_sampling_everything_gives_the_adjacency():
    mean, error = simulated(Sampling("ladies", debias=True), 7, 3)
    np.testing.assert_allclose(mean, ADJACENCY, rtol=1e-6)
    assert error.max() < 1e-3


def test_probabilities_are_those_of_the_squared_columns():
    """The first of the nodes that are drawn: with debias, among those the batch has not."""
    sampler = NeighborSampler(GRAPH, [1], sampling=Sampling("ladies", debias=True))
    counts = np.zeros(10)
    for iteration in range(8000):
        counts[sampler.sample(SEEDS, BatchName(seed=3, iteration=iteration)).n_id[3:].numpy()] += 1
    degrees = np.bincount(DESTINATIONS)
    mass = np.bincount(SOURCES, weights=1 / degrees[DESTINATIONS] ** 2.0, minlength=10)
    mass[1] = 0
    expected = mass / mass.sum()
    assert counts.sum() == 8000
    error = np.sqrt(expected * (1 - expected) / 8000)
    assert (np.abs(counts / 8000 - expected) <= 4 * error + 1e-12).all()


@pytest.mark.parametrize("sampling", [Sampling("ladies"), Sampling("ladies", debias=True)])
def test_threads_and_packing_change_nothing(sampling):
    graph = random_graph(20_000, 400_000)
    seeds = torch.arange(0, 20_000, 40)
    one, many = (
        NeighborSampler(graph, [300, 900], num_threads=threads, sampling=sampling).sample(
            seeds, BatchName(seed=3, epoch=1, iteration=2)
        )
        for threads in (1, 3)
    )
    packed = many.pack().unpack()
    for field in dataclasses.fields(one):
        a, b, c = (getattr(graph, field.name) for graph in (one, many, packed))
        if isinstance(a, torch.Tensor):
            assert torch.equal(a, b), field.name
            assert torch.equal(a, c), field.name
        else:
            assert a == b == c, field.name


def test_layers_carry_weights():
    graph = random_graph(1000, 20_000)
    sampler = NeighborSampler(graph, [50, 100], sampling="ladies")
    batch = Batch.from_sampled(sampler.sample(torch.arange(20), BatchName()))
    outer, inner = batch.layers()
    assert torch.equal(outer.edge_weight, batch.edge_weight)
    assert torch.equal(inner.edge_weight, batch.edge_weight[: batch.num_sampled_edges[0]])
    dense = torch.zeros(outer.num_dst, outer.num_src)
    dense.index_put_(tuple(outer.edge_index.flip(0)), outer.edge_weight, accumulate=True)
    in_degrees = outer.indptr.diff().unsqueeze(1)
    torch.testing.assert_close(outer.adj.to_dense(), dense * in_degrees)


def weighted_batch(destinations, sources, weights):
    """Nodes 0 and 1 from 2 .. 4, one hop."""
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    edge_index = torch.tensor([sources, destinations])
    return Batch(
        x=x,
        y=None,
        n_id=torch.arange(5),
        edge_index=edge_index,
        indptr=torch.tensor([0, destinations.count(0), len(destinations)]),
        batch_size=2,
        num_sampled_nodes=[2, 3],
        num_sampled_edges=[len(sources)],
        edge_weight=None if weights is None else torch.tensor(weights),
    )


def scores(name, batch):
    torch.manual_seed(0)
    model = build_model(ModelOptions(name=name, hidden_dim=8), 8, 3, 1)
    return model.eval()(batch)


@pytest.mark.parametrize("name", ["graphsage", "gcn", "gat"])
def test_equal_weights_are_no_weights(name):
    edges = [0, 0, 0, 1, 1], [2, 3, 4, 3, 1]
    plain = scores(name, weighted_batch(*edges, None))
    weighted = scores(name, weighted_batch(*edges, [1 / 3] * 3 + [1 / 2] * 2))
    torch.testing.assert_close(weighted, plain)


@pytest.mark.parametrize("name", ["graphsage", "gat"])
def test_a_weight_is_a_number_of_parallel_edges(name):
    doubled = weighted_batch([0, 0, 0, 1], [2, 2, 3, 4], None)
    weighted = weighted_batch([0, 0, 1], [2, 3, 4], [2 / 3, 1 / 3, 1.0])
    if name == "gat":  # apart from the self loop, weights relative to their mean matter
        weighted = weighted_batch([0, 0, 1], [2, 3, 4], [1.0, 1 / 2, 1.0])
    torch.testing.assert_close(scores(name, weighted), scores(name, doubled))


def test_gcn_weighs_edges():
    dense = torch.eye(5)
    dense[0, 2], dense[0, 3], dense[1, 4] = 4 / 3, 2 / 3, 1.0
    batch = weighted_batch([0, 0, 1], [2, 3, 4], [2 / 3, 1 / 3, 1.0])
    root = dense.sum(dim=1).rsqrt()
    torch.manual_seed(0)
    model = build_model(ModelOptions(name="gcn"), 8, 3, 1)
    conv = model.convs[0]
    expected = (root[:, None] * dense * root) @ conv.lin(batch.x) + conv.bias
    torch.testing.assert_close(model.eval()(batch), expected[:2])


def test_damaged_indices_and_bad_sizes_are_errors():
    damaged = NeighborSampler(from_edges([0, 99], [1, 1], 3), [2], sampling="ladies")
    with pytest.raises(ValueError, match=r"indices: expected ids in \[0, 3\), got 99"):
        damaged.sample(torch.tensor([1]), BatchName())
    graph = from_edges([0, 99], [1, 1], 3)
    twin = DeviceNeighborSampler(graph, graph, [2], sampling="ladies", device=native.TWIN)
    with pytest.raises(ValueError, match=r"indices: expected ids in \[0, 3\), got 99"):
        twin.sample(torch.tensor([1]), BatchName())
    for size in (-1, 0):
        with pytest.raises(ValueError, match="num_neighbors: expected at least 1 node per hop"):
            NeighborSampler(GRAPH, [4, size], sampling="ladies")
    with pytest.raises(ValueError, match="debias: an option of kind ladies, got kind labor"):
        Sampling("labor", debias=True)
