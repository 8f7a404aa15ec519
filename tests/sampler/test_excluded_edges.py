"""Excluded edges: a sample is that of the graph without them."""

import numpy as np
import pytest
import torch

from lsm.graph.topology import Topology
from lsm.graph.types import EDGE, NODE, NodeSpace, TypedMap
from lsm.sampler.name import BatchName
from lsm.sampler.typed_neighbor import TypedNeighborSampler, TypedTopology
from support.graphs import random_graph

NUM_NODES = 50
A, B = ("a", "to", "b"), ("b", "from", "a")


def destinations_of(topology):
    return torch.repeat_interleave(topology.indptr.diff())


def without(topology, pairs, *values):
    """The graph without edges between ``pairs``, and those of ``values`` that stay."""
    sources, destinations = topology.indices.long(), destinations_of(topology)
    gone = set(zip(*(each.tolist() for each in pairs), strict=True))
    kept = torch.tensor(
        [
            (into, out) not in gone
            for out, into in zip(sources.tolist(), destinations.tolist(), strict=True)
        ],
        dtype=torch.bool,
    )
    counts = torch.bincount(destinations[kept], minlength=topology.num_nodes)
    indptr = torch.cat((torch.zeros(1, dtype=torch.int64), counts.cumsum(0)))
    return Topology(indptr, topology.indices[kept]), *(value[kept] for value in values)


def graph_of(topology, weights=None, times=None):
    return TypedTopology(
        NodeSpace.of_one(NUM_NODES),
        TypedMap({EDGE: topology}),
        None if weights is None else {EDGE: weights},
        None if times is None else {EDGE: times},
    )


def batch(topology, seed, count=12):
    """Links of the graph, and pairs of them in both directions as exclusions."""
    draw = np.random.default_rng(seed)
    edges = draw.choice(topology.num_edges, count, replace=False)
    source = topology.indices.long().numpy()[edges]
    destination = destinations_of(topology).numpy()[edges]
    into = np.concatenate((destination, source))
    out = np.concatenate((source, destination))
    order = np.lexsort((out, into))
    pairs = torch.from_numpy(into[order]), torch.from_numpy(out[order])
    return torch.from_numpy(np.unique(into)), pairs


CASES = {
    "neighbor": {},
    "labor": {"sampling": "labor"},
    "disjoint": {"disjoint": True},
    "labor disjoint": {"sampling": "labor", "disjoint": True},
    "weights": {},
    "times": {"disjoint": True},
    "last": {"disjoint": True, "temporal_strategy": "last"},
    "weights, times": {"disjoint": True},
}


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("fanouts", [[3, 2], [-1, 4], [70, 70], [1]])
@pytest.mark.parametrize("case", CASES)
def test_a_sample_is_that_of_the_graph_without_the_edges(case, fanouts, num_threads):
    """The same nodes and edges, drawn with the same chances: parallel edges and both directions
    are gone, and a node takes as many others as its fanout says."""
    topology = random_graph(NUM_NODES, 900, seed=4)
    draw = torch.Generator().manual_seed(2)
    order = torch.argsort(
        destinations_of(topology) * 1000 + torch.randint(1000, (900,), generator=draw), stable=True
    )
    topology = Topology(topology.indptr, topology.indices[order])
    weights = torch.rand(900, generator=draw)
    weights[torch.rand(900, generator=draw) < 0.3] = 0
    times = torch.cat(
        [
            torch.randint(100, (int(count),), generator=draw).sort().values
            for count in topology.indptr.diff()
        ]
    )
    has_weights, has_times = "weights" in case, "times" in case or case == "last"
    values = (weights if has_weights else None, times if has_times else None)
    excluding = TypedNeighborSampler(
        graph_of(topology, *values), fanouts, num_threads, input_type=NODE, **CASES[case]
    )
    for seed in range(6):
        seeds, pairs = batch(topology, seed)
        reduced, *kept = without(topology, pairs, weights, times)
        assert reduced.num_edges < topology.num_edges - 12
        of_reduced = [
            own if given is not None else None for own, given in zip(kept, values, strict=True)
        ]
        plain = TypedNeighborSampler(
            graph_of(reduced, *of_reduced), fanouts, input_type=NODE, **CASES[case]
        )
        name = BatchName(seed=seed, iteration=seed)
        seed_times = torch.randint(100, (len(seeds),), generator=draw) if has_times else None
        found = excluding.sample(seeds, name, seed_times, {EDGE: pairs})
        expected = plain.sample(seeds, name, seed_times)
        for field in ("n_id", "edge_index", "indptr", "batch"):
            one, other = getattr(found, field), getattr(expected, field)
            assert (one is None and other is None) or torch.equal(one, other), field
        ids = excluding.edge_ids(seeds, name, seed_times, {EDGE: pairs})
        assert torch.equal(topology.indices[ids].long(), found.n_id[found.edge_index[0]])
        assert torch.equal(destinations_of(topology)[ids], found.n_id[found.edge_index[1]])


def test_types_leave_out_their_own_edges():
    """Of one type its pairs, of the other none."""
    there, back = random_graph(40, 400, seed=1), random_graph(40, 400, seed=2)
    space = NodeSpace({"a": 40, "b": 40})
    graph = TypedTopology(space, TypedMap({A: there, B: back}))
    sampler = TypedNeighborSampler(graph, [5, 5], input_type="b")
    into, out = destinations_of(there)[::40].sort().values, there.indices[::40].long()
    order = np.lexsort((out.numpy(), into.numpy()))
    pairs = into[order], out[order]
    reduced, *_ = without(there, pairs)
    plain = TypedNeighborSampler(
        TypedTopology(space, TypedMap({A: reduced, B: back})), [5, 5], input_type="b"
    )
    seeds = {"a": pairs[1].unique(), "b": pairs[0].unique()}
    found = sampler.sample(seeds, BatchName(), None, {A: pairs})
    expected = plain.sample(seeds, BatchName())
    assert torch.equal(found.n_id, expected.n_id)
    assert torch.equal(found.edge_index, expected.edge_index)


def test_bad_pairs_are_named():
    sampler = TypedNeighborSampler(graph_of(random_graph(NUM_NODES, 300)), [2], input_type=NODE)
    seeds, one = torch.arange(4), torch.tensor([1, 2])
    with pytest.raises(ValueError, match="ascending order; pair 1 is not"):
        sampler.sample(seeds, BatchName(), None, {EDGE: (one.flip(0), one)})
    with pytest.raises(ValueError, match="as many sources as 2"):
        sampler.sample(seeds, BatchName(), None, {EDGE: (one, one[:1])})
