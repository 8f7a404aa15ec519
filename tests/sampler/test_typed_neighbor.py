"""Sampling of graphs with types, weights, times and subgraphs, against a brute-force reference."""

from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lsm.graph.types import EDGE, NODE, NodeSpace, TypedMap
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.typed_neighbor import TypedNeighborSampler, TypedTopology
from reference.typed import check_typed_sample
from support.graphs import SAMPLED_FIELDS, from_edges, random_graph
from support.typed_topologies import with_values

EDGE_TYPES = [
    ("paper", "cites", "paper"),
    ("author", "writes", "paper"),
    ("paper", "written_by", "author"),
    ("field", "of", "paper"),
]
SIGNIFICANCE = 1e-3  # of tests by chance; seeds are fixed


def between(num_sources, num_destinations, num_edges, rng, dtype):
    """Random in-edges of ``num_destinations`` nodes, with skewed degrees."""
    sources = rng.integers(0, num_sources, num_edges)
    destinations = (num_destinations * rng.random(num_edges) ** 2).astype(np.int64)
    return from_edges(sources, destinations, num_destinations, dtype)


def random_typed_graph(rng, dtype, *, weighted=False, times=None):
    """A graph of EDGE_TYPES. ``times``: as of with_values()."""
    counts = {name: int(rng.integers(1, 30)) for name in ("paper", "author", "field")}
    topologies = TypedMap(
        {
            each: between(counts[each[0]], counts[each[2]], int(rng.integers(1, 150)), rng, dtype)
            for each in EDGE_TYPES
        }
    )
    graph = TypedTopology(NodeSpace(counts), topologies)
    return with_values(graph, rng, weighted=weighted, times=times)


@settings(deadline=None, max_examples=120)
@given(
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from([np.int32, np.int64]),
    kind=st.sampled_from(
        ["plain", "labor", "weighted", "disjoint", "edge", "node", "both", "last"]
    ),
    fanouts=st.lists(st.sampled_from([-1, 0, 1, 2, 5]), min_size=4, max_size=4),
    num_hops=st.integers(1, 3),
)
def test_any_small_graph(seed, dtype, kind, fanouts, num_hops):
    rng = np.random.default_rng(seed)
    times = "both" if kind == "last" else kind if kind in ("edge", "node", "both") else None
    graph = random_typed_graph(rng, dtype, weighted=kind == "weighted", times=times)
    disjoint = kind == "disjoint" or times is not None
    num_neighbors = {
        each: list(np.roll(fanouts, hop)[:1].repeat(num_hops))
        for hop, each in enumerate(EDGE_TYPES)
    }
    sampler = TypedNeighborSampler(
        graph,
        num_neighbors,
        input_type="paper",
        sampling="labor" if kind == "labor" else "neighbor",
        disjoint=disjoint,
        temporal_strategy="last" if kind == "last" else "uniform",
    )
    count = graph.space.counts["paper"]
    seeds = rng.integers(0, count, 6) if disjoint else rng.permutation(count)[:6]
    seed_times = torch.from_numpy(rng.integers(-1, 21, len(seeds))) if times else None
    arguments = torch.from_numpy(seeds), BatchName(seed=seed), seed_times
    check_typed_sample(
        graph,
        num_neighbors,
        "paper",
        seeds,
        seed_times,
        sampler.sample(*arguments),
        sampler.edge_ids(*arguments),
        disjoint=disjoint,
        takes_last=kind == "last",
    )


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("disjoint", [False, True])
def test_a_sample_is_that_of_a_sampler_without_earlier_batches(dtype, disjoint):
    rng = np.random.default_rng(3)
    graph = random_typed_graph(rng, dtype)
    count = graph.space.counts["paper"]

    def sampler():
        return TypedNeighborSampler(graph, [3, -1], input_type="paper", disjoint=disjoint)

    used = sampler()
    for number, size in enumerate([3, count, 1, 0, 2, count, 2]):  # tables grow, and shrink again
        arguments = torch.from_numpy(rng.permutation(count)[:size]), BatchName(iteration=number)
        own, fresh = used.sample(*arguments), sampler().sample(*arguments)
        assert torch.equal(own.n_id, fresh.n_id)
        assert torch.equal(own.edge_index, fresh.edge_index)


@pytest.mark.parametrize("sampling", ["neighbor", "labor"])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_one_type_is_the_graph_without_types(sampling, num_threads):
    graph = random_graph(30_000, 200_000)
    space = NodeSpace.of_one(30_000)
    typed = TypedNeighborSampler(
        TypedTopology(space, TypedMap({EDGE: graph})),
        [10, -1, 3],
        num_threads,
        input_type=NODE,
        sampling=sampling,
    )
    seeds, name = torch.arange(0, 30_000, 60), BatchName(seed=3, iteration=7, rank=1)
    own, expected = (
        sampler.sample(seeds, name)
        for sampler in (typed, NeighborSampler(graph, [10, -1, 3], sampling=sampling))
    )
    for field in SAMPLED_FIELDS:
        left, right = getattr(own, field), getattr(expected, field)
        assert torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right, field


def test_a_sample_is_that_of_any_number_of_threads():
    rng = np.random.default_rng(0)
    counts = {"paper": 20_000, "author": 9_000, "field": 50}
    topologies = TypedMap(
        {
            each: between(counts[each[0]], counts[each[2]], 90_000, rng, np.int32)
            for each in EDGE_TYPES
        }
    )
    graph = TypedTopology(NodeSpace(counts), topologies)
    first, second = (
        TypedNeighborSampler(graph, [8, 4], threads, input_type="paper", disjoint=True).sample(
            torch.arange(0, 20_000, 20), BatchName(seed=1)
        )
        for threads in (1, 4)
    )
    assert torch.equal(first.n_id, second.n_id)
    assert torch.equal(first.edge_index, second.edge_index)


def star(degree, num_seeds, **values):
    """A graph in which each of ``num_seeds`` items has the same ``degree`` parts, twice: as the
    parts that it has, and as those that it lacks. ``values``: of a node's in-edges, in order."""
    sources = np.tile(np.arange(degree), num_seeds)
    topology = from_edges(sources, np.repeat(np.arange(num_seeds), degree), num_seeds)
    types = [("part", "of", "item"), ("part", "lacks", "item")]
    edge_values = {
        name: {each: torch.tensor(list(given) * num_seeds) for each in types}
        for name, given in values.items()
    }
    space = NodeSpace({"item": num_seeds, "part": degree})
    return TypedTopology(space, TypedMap(dict.fromkeys(types, topology)), **edge_values)


def parts_taken(graph, num_seeds, fanout, **options):
    """[num_seeds, fanout] positions that each item takes, by the two types of edges."""
    sampler = TypedNeighborSampler(graph, [fanout], input_type="item", **options)
    seeds = torch.arange(num_seeds)
    times = torch.full((num_seeds,), 10) if (graph.times or graph.node_times) else None
    edges = sampler.edge_ids(seeds, BatchName(seed=5), times).view(2, num_seeds, fanout)
    degree = graph.space.counts["part"]
    return (edges % degree).sort(dim=2).values.numpy()


def assert_chances(drawn, chances):
    """``drawn`` [n, k]: sets, which come with ``chances``, by set."""
    number = {subset: i for i, subset in enumerate(chances)}
    counts = np.bincount([number[tuple(each)] for each in drawn.tolist()], minlength=len(number))
    expected = np.array(list(chances.values())) * len(drawn)
    assert expected.min() > 5  # the chi-square approximation needs that
    assert stats.chisquare(counts, expected).pvalue > SIGNIFICANCE


def chance_of(subset, weights):
    """Of drawing ``subset`` one by one, each in proportion to its weight among those left."""
    total = 0.0
    for order in permutations(subset):
        left, chance = sum(weights), 1.0
        for position in order:
            chance *= weights[position] / left
            left -= weights[position]
        total += chance
    return total


@pytest.mark.parametrize("fanout", [1, 2, 3])
def test_edges_are_drawn_in_proportion_to_their_weights(fanout):
    weights = [0.5, 3.0, 0.0, 1.0, 2.0, 0.25]
    drawn = parts_taken(star(6, 20_000, weights=weights), 20_000, fanout)
    positive = [position for position, weight in enumerate(weights) if weight > 0]
    chances = {subset: chance_of(subset, weights) for subset in combinations(positive, fanout)}
    for each in drawn:
        assert_chances(each, chances)


def test_any_edge_that_is_not_later_is_as_likely():
    graph = star(8, 10_000, times=[1, 3, 9, 10, 10, 10, 11, 30])
    drawn = parts_taken(graph, 10_000, 2, disjoint=True)
    subsets = list(combinations(range(6), 2))
    for each in drawn:
        assert_chances(each, dict.fromkeys(subsets, 1 / len(subsets)))


@pytest.mark.parametrize("options", [{}, {"disjoint": True}], ids=["shared", "disjoint"])
def test_types_of_edges_draw_independently(options):
    first, second = parts_taken(star(6, 20_000), 20_000, 1, **options)
    pairs = np.stack([first[:, 0], second[:, 0]], axis=1)
    cells = {(a, b): 1 / 36 for a in range(6) for b in range(6)}
    assert_chances(pairs, cells)


def test_subgraphs_draw_independently():
    graph = star(6, 1)
    sampler = TypedNeighborSampler(graph, [1], input_type="item", disjoint=True)
    edges = sampler.edge_ids(torch.zeros(20_000, dtype=torch.long), BatchName())[:20_000] % 6
    pairs = edges.view(-1, 2).numpy()
    assert_chances(pairs, {(a, b): 1 / 36 for a in range(6) for b in range(6)})


def test_labor_shares_a_draw_between_types_of_edges():
    sampler = TypedNeighborSampler(star(9, 50), [3], input_type="item", sampling="labor")
    sampled = sampler.sample(torch.arange(50), BatchName())
    assert sampled.types.num_sampled_nodes["part"] == [0, 3]


def refused(**changes):
    """Arguments that a sampler refuses, but for one."""
    graph = changes.pop("graph", star(3, 4))
    arguments = {"num_neighbors": [2], "input_type": "item"} | changes
    TypedNeighborSampler(graph, **arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_type": "thing"}, "input type: expected one of item, part, got 'thing'"),
        ({"num_neighbors": {("a", "b", "c"): [1]}}, "is no edge type"),
        ({"num_neighbors": {("part", "of", "item"): [1]}}, "lacks.*is missing"),
        ({"num_neighbors": [-2]}, "expected -1"),
        ({"sampling": "ladies"}, r"sampler\.kind .*: ladies samples graphs of one type"),
        ({"temporal_strategy": "last"}, "last: expected times"),
        ({"graph": star(3, 4, times=[1, 2, 3])}, "expected a subgraph for each seed"),
        ({"graph": star(3, 4, times=[3, 2, 1]), "disjoint": True}, "in the order of their times"),
        ({"graph": star(3, 4, weights=[1.0, -1.0, 2.0])}, "got -1 at edge 1"),
        ({"graph": star(3, 4, weights=[1.0, float("nan"), 2.0])}, "finite weights"),
        ({"graph": star(3, 4, weights=[1.0, 1.0, 2.0]), "sampling": "labor"}, "none with labor"),
    ],
)
def test_arguments_that_do_not_fit_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        refused(**changes)


@pytest.mark.parametrize(
    ("seeds", "times", "message"),
    [
        ([0, 4], None, "seeds: expected ids in \\[0, 4\\), got 4 at position 1"),
        ([1, 1], None, "expected distinct ids, got 1 at positions 0 and 1"),
    ],
)
def test_seeds_that_do_not_fit_are_named(seeds, times, message):
    sampler = TypedNeighborSampler(star(3, 4), [2], input_type="item")
    with pytest.raises(ValueError, match=message):
        sampler.sample(torch.tensor(seeds), BatchName(), times)


def test_seeds_need_times():
    graph = star(3, 4, times=[1, 2, 3])
    sampler = TypedNeighborSampler(graph, [2], input_type="item", disjoint=True)
    with pytest.raises(ValueError, match="one for each of 2 seeds, got 0"):
        sampler.sample(torch.tensor([0, 1]), BatchName())
