"""LABOR's choices against its definition, their distribution, and the effect of dependencies."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import reference
from lsm import Sampling, native
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler
from reference import labor
from support.graphs import SMALL_GRAPHS, assert_same, from_edges, random_graph

# One test in a thousand would fail by chance if the seeds were not fixed.
SIGNIFICANCE = 1e-3
LABOR = Sampling("labor")
SAMPLINGS = st.builds(
    Sampling, st.just("labor"), st.booleans(), st.sampled_from([1, 2, 7, 64, 2**30])
)
NUMBERS = st.integers(0, 2**64 - 1)


@settings(deadline=None, max_examples=100)
@given(
    SAMPLINGS,
    st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.integers(0, 2**40)),
    st.integers(0, 9),
    st.lists(st.integers(0, 100) | st.integers(0, 2**62), min_size=1, max_size=40),
)
def test_draws_are_those_of_the_definition(sampling, name, hop, ids):
    drawn = native.labor_draws(sampling.chosen.native(), name, hop, ids)
    assert drawn == [labor.source_draw(native, sampling, name, hop, node) for node in ids]


def neighbors_taken(sampled, i):
    return sampled.n_id[sampled.edge_index[0, sampled.indptr[i] : sampled.indptr[i + 1]]].tolist()


def check_choices(graph, fanouts, sampling, name, sampled):
    """Every node took the neighbours of smallest draw, in the graph's order."""
    i = 0
    for hop, fanout in enumerate(fanouts):
        for node in sampled.n_id[i : sum(sampled.num_sampled_nodes[: hop + 1])].tolist():
            neighbors = graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist()
            if 0 <= fanout < len(neighbors):
                draws = native.labor_draws(sampling.chosen.native(), name, hop, neighbors)
                neighbors = [neighbors[p] for p in labor.smallest(draws, fanout)]
            assert neighbors_taken(sampled, i) == neighbors
            i += 1


@settings(deadline=None, max_examples=60)
@given(*SMALL_GRAPHS, SAMPLINGS)
def test_any_small_graph(num_nodes, num_edges, fanouts, seed, dtype, sampling):
    graph = random_graph(num_nodes, num_edges, seed, dtype)
    rng = np.random.default_rng(seed)
    seeds = torch.from_numpy(rng.permutation(num_nodes)[: rng.integers(0, num_nodes + 1)])
    sampler = NeighborSampler(graph, fanouts, sampling=sampling)
    sampled = sampler.sample(seeds, BatchName(seed=seed, epoch=1, iteration=2, step=9))
    reference.check_sample(graph.indptr, graph.indices, seeds, fanouts, sampled)
    check_choices(graph, fanouts, sampling, (seed, 1, 2, 0, 9), sampled)


def twin(graph, fanouts, sampling, device=native.TWIN_BACKWARDS):
    return DeviceNeighborSampler(graph, graph, fanouts, sampling=sampling, device=device)


@settings(deadline=None, max_examples=60)
@given(*SMALL_GRAPHS, SAMPLINGS, st.sampled_from([native.TWIN, native.TWIN_BACKWARDS]))
def test_any_small_graph_on_the_twin(num_nodes, num_edges, fanouts, seed, dtype, sampling, device):
    graph = random_graph(num_nodes, num_edges, seed, dtype)
    rng = np.random.default_rng(seed)
    sampler = twin(graph, fanouts, sampling, device)
    host = NeighborSampler(graph, fanouts, sampling=sampling)
    for iteration in range(2):
        seeds = torch.from_numpy(rng.permutation(num_nodes)[: rng.integers(0, num_nodes + 1)])
        name = BatchName(seed, 1, iteration, rank=3, step=iteration + 8)
        assert_same(sampler.sample(seeds, name), host.sample(seeds, name))


@pytest.mark.parametrize("fanouts", [[10, 5], [60, 3], [100, 2], [1000, 1], [-1, 2]])
def test_high_degrees(fanouts):
    graph = random_graph(3000, 400_000)
    seeds = torch.arange(0, 3000, 50)
    sampled = NeighborSampler(graph, fanouts, sampling=LABOR).sample(seeds, BatchName())
    reference.check_sample(graph.indptr, graph.indices, seeds, fanouts, sampled)
    check_choices(graph, fanouts, LABOR, (0, 0, 0, 0, 0), sampled)
    assert_same(twin(graph, fanouts, LABOR).sample(seeds, BatchName()), sampled)


@pytest.mark.parametrize(("degree", "fanout"), [(40, 10), (500, 10), (5000, 1000)])
def test_parallel_edges_have_one_draw_and_the_first_are_taken(degree, fanout):
    graph = from_edges([1] * degree, [0] * degree, 2)
    sampler = NeighborSampler(graph, [fanout], sampling=LABOR)
    sampled = sampler.sample(torch.tensor([0]), BatchName())
    assert sampled.num_sampled_edges == [fanout]
    assert sampled.n_id.tolist() == [0, 1]


@pytest.mark.parametrize("sampling", [LABOR, Sampling("labor", True, 8)])
def test_threads_do_not_change_the_sample(sampling):
    graph = random_graph(50_000, 1_000_000)
    seeds = torch.arange(0, 50_000, 10)
    name = BatchName(3, 1, 2, rank=1, step=40)
    one = NeighborSampler(graph, [10, 80, 5], sampling=sampling).sample(seeds, name)
    many = NeighborSampler(graph, [10, 80, 5], num_threads=3, sampling=sampling)
    assert_same(one, many.sample(seeds, name))


def draws(degree, fanout, num_draws, sampling=LABOR, **name):
    """[num_draws, fanout] positions: each destination has ``degree`` neighbours of its own."""
    sources = num_draws + np.arange(num_draws * degree)
    graph = from_edges(sources, np.repeat(np.arange(num_draws), degree), num_draws * (degree + 1))
    sampler = NeighborSampler(graph, [fanout], sampling=sampling)
    sampled = sampler.sample(torch.arange(num_draws), BatchName(seed=1, **name))
    chosen = sampled.n_id[sampled.edge_index[0]].numpy().reshape(num_draws, fanout)
    return (chosen - num_draws) % degree


@pytest.mark.parametrize(
    "sampling", [LABOR, Sampling("labor", batch_dependency=64)], ids=["independent", "dependent"]
)
@pytest.mark.parametrize(("degree", "fanout"), [(12, 10), (30, 10), (100, 10), (1000, 64)])
def test_every_neighbor_is_equally_likely(degree, fanout, sampling):
    num_draws = 200_000 // degree
    counts = np.bincount(draws(degree, fanout, num_draws, sampling, step=37).ravel())
    p = fanout / degree
    # Without replacement, counts have variance n p (1 - p) and correlation -1 / (degree - 1).
    scale = num_draws * p * (1 - p) * degree / (degree - 1)
    statistic = ((counts - num_draws * p) ** 2).sum() / scale
    assert SIGNIFICANCE / 2 < stats.chi2.sf(statistic, degree - 1) < 1 - SIGNIFICANCE / 2


def assert_independent(first, second, degree):
    counts = np.bincount(first * degree + second, minlength=degree * degree)
    assert stats.chisquare(counts).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("other", [{"epoch": 1}, {"iteration": 1}], ids=str)
def test_draws_of_other_batches_are_independent(other):
    assert_independent(draws(6, 1, 20_000)[:, 0], draws(6, 1, 20_000, **other)[:, 0], 6)


def test_ranks_share_draws():
    np.testing.assert_array_equal(draws(6, 2, 1000), draws(6, 2, 1000, rank=3))


def hops_of_one_node(sampling):
    """Neighbours that node 0 takes as a seed, and at the second hop."""
    graph = from_edges([*range(2, 42), 0], [0] * 40 + [1], 42)
    sampler = NeighborSampler(graph, [10, 10], sampling=sampling)
    first = sampler.sample(torch.tensor([0]), BatchName())
    second = sampler.sample(torch.tensor([1]), BatchName())
    return neighbors_taken(first, 0), neighbors_taken(second, 1)


def test_hops_share_draws_with_layer_dependency_only():
    first, second = hops_of_one_node(LABOR)
    assert first != second
    first, second = hops_of_one_node(Sampling("labor", layer_dependency=True))
    assert first == second


PERIOD = 16


def draws_at(step, num_draws=20_000, **name):
    return draws(6, 1, num_draws, Sampling("labor", batch_dependency=PERIOD), step=step, **name)[
        :, 0
    ]


def test_draws_are_renewed_once_in_a_period():
    nodes = list(range(5000))
    sampling = Sampling("labor", batch_dependency=PERIOD).chosen.native()
    at = [
        np.array(native.labor_draws(sampling, (1, 0, 0, 0, step), 0, nodes))
        for step in range(3 * PERIOD + 1)
    ]
    renewed = np.array([now != before for before, now in pairwise(at)])
    assert (renewed[:PERIOD].sum(0) == 1).all()
    assert (renewed[5 : 5 + PERIOD].sum(0) == 1).all()
    assert stats.chisquare(renewed[:PERIOD].sum(1)).pvalue > SIGNIFICANCE


def test_batches_a_period_apart_are_independent():
    assert_independent(draws_at(5), draws_at(5 + PERIOD), 6)
    assert (draws_at(5) == draws_at(6)).mean() > 0.8


def test_only_the_step_moves_dependent_draws():
    np.testing.assert_array_equal(draws_at(40, 500), draws_at(40, 500, epoch=3, iteration=9))
    assert (draws_at(40, 500) != draws_at(60, 500)).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("lador",), "kind: expected one of 'neighbor', 'labor' or 'ladies'"),
        (("labor", False, 0), "batch_dependency: expected at least 1, got 0"),
        (("labor", False, True), "batch_dependency: expected"),
        (("neighbor", True), "layer_dependency: an option of kind labor, got kind neighbor"),
        (("neighbor", False, 2), "batch_dependency: an option of kind labor"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        Sampling(*options)
