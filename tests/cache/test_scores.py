"""Static scores against NumPy."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from lsm.cache import scores
from lsm.graph.types import EDGE, NODE, NodeSpace
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from support.graphs import from_edges, random_graph


def test_in_degree():
    graph = random_graph(1000, 5000)
    assert torch.equal(scores.in_degree(graph, num_threads=2), graph.indptr.diff().float())


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 80),
    st.integers(0, 500),
    st.integers(0, 30),
    st.sampled_from([0.0, 0.5, 0.85, 1.0]),
    st.integers(0, 2**31),
    st.sampled_from([np.int32, np.int64]),
)
def test_reverse_pagerank_matches_dense(num_nodes, num_edges, iterations, damping, seed, dtype):
    graph = random_graph(num_nodes, num_edges, seed, dtype)
    rng = np.random.default_rng(seed)
    train_ids = rng.permutation(num_nodes)[: rng.integers(1, num_nodes + 1)]
    options = {"iterations": iterations, "damping": damping}
    got = scores.reverse_pagerank(graph, torch.from_numpy(train_ids), **options)
    expected = reference.reverse_pagerank(graph.indptr, graph.indices, train_ids, **options)
    # Rounding to float32; before that, errors are of the order of 2^-32 of a node's mass (the
    # damping factor in fixed point).
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6, atol=1e-12)


def test_mass_is_conserved():
    graph = random_graph(20_000, 100_000)
    mass = scores.reverse_pagerank(graph, torch.arange(0, 20_000, 7))
    assert (mass >= 0).all()
    assert mass.double().sum().item() == pytest.approx(1, abs=1e-6)  # float32 rounding


def test_mass_flows_against_the_edges():
    # 0 -> 1 -> 2: a walk from training node 2 meets its in-neighbour 1, then 0.
    graph = from_edges([0, 1], [1, 2], 3)
    mass = scores.reverse_pagerank(graph, torch.tensor([2]), iterations=1)
    np.testing.assert_allclose(mass.numpy(), [0, 0.85, 0.15], rtol=1e-6)


def test_reverse_pagerank_does_not_depend_on_threads():
    graph = random_graph(100_000, 1_000_000)
    train_ids = torch.arange(0, 100_000, 11)
    one, *more = (scores.reverse_pagerank(graph, train_ids, num_threads=n) for n in (1, 2, 4))
    assert all(torch.equal(one, other) for other in more)


@pytest.mark.parametrize(
    ("train_ids", "options", "message"),
    [
        ([], {}, "train_ids: expected at least one node"),
        ([10], {}, r"train_ids: expected ids in \[0, 10\), got 10"),
        ([0], {"damping": 1.5}, "damping"),
        ([0], {"iterations": -1}, "iterations"),
    ],
)
def test_reverse_pagerank_rejects_bad_input(train_ids, options, message):
    train_ids = torch.tensor(train_ids, dtype=torch.int64)
    with pytest.raises(ValueError, match=message):
        scores.reverse_pagerank(random_graph(10, 30), train_ids, **options)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_reverse_pagerank_rejects_damaged_indices(num_threads):
    graph = from_edges([0, 5], [1, 1], 2)
    with pytest.raises(ValueError, match="indices: expected ids"):
        scores.reverse_pagerank(graph, torch.tensor([0]), num_threads=num_threads)


def test_presample_counts_batches():
    graph = random_graph(3000, 40_000)
    train_ids = torch.arange(0, 3000, 2)
    options = {"num_neighbors": [5, 3], "batch_size": 100, "epochs": 2, "seed": 5}
    counts = scores.presample(graph, train_ids, **options)
    assert torch.equal(counts, scores.presample(graph, train_ids, num_threads=3, **options))
    assert (counts[train_ids] >= 2).all()  # each is a seed once an epoch
    assert counts.max() <= 30  # batches
    assert torch.equal(counts, counts.round())
    sampler = NeighborSampler(graph, [5, 3])
    one_batch = sampler.sample(train_ids[:100], BatchName(seed=5))
    assert 0.5 < counts.sum() / (30 * len(one_batch.n_id)) < 2


def test_presample_without_hops_counts_seeds():
    graph = random_graph(100, 300)
    counts = scores.presample(graph, torch.arange(10), [], batch_size=3, epochs=4)
    assert torch.equal(counts, torch.cat([torch.full((10,), 4.0), torch.zeros(90)]))


def test_compute_score_saves_in_the_store():
    graph = random_graph(100, 300)
    saved = {}
    nodes = SimpleNamespace(splits=("train",), split={"train": torch.arange(5)}.__getitem__)
    store = SimpleNamespace(
        is_typed=False,
        node_types=(NODE,),
        edge_types=(EDGE,),
        node_space=NodeSpace.of_one(100),
        nodes=lambda _type: nodes,
        edges=lambda _type: SimpleNamespace(topology=lambda: graph),
        save_score=saved.__setitem__,
        require_room_for_score=lambda: None,
    )
    for name in scores.SCORE_NAMES:
        assert torch.equal(scores.compute_score(store, name), saved[name])
    assert torch.equal(saved["in_degree"], scores.in_degree(graph))
    with pytest.raises(ValueError, match=r"expected one of in_degree, .* got 'pagerank'"):
        scores.compute_score(store, "pagerank")
