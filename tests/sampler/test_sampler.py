"""The neighbour sampler's structure, against references that share no code with it."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings

import reference
from lsm.graph import Topology
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from support.graphs import SAMPLED_FIELDS, SMALL_GRAPHS, assert_same, from_edges, random_graph


def differs(a, b):
    return a.edge_index.shape != b.edge_index.shape or not torch.equal(
        a.n_id[a.edge_index], b.n_id[b.edge_index]
    )


@settings(deadline=None, max_examples=60)
@given(*SMALL_GRAPHS)
def test_any_small_graph(num_nodes, num_edges, fanouts, seed, dtype):
    graph = random_graph(num_nodes, num_edges, seed, dtype)
    rng = np.random.default_rng(seed)
    seeds = torch.from_numpy(rng.permutation(num_nodes)[: rng.integers(0, num_nodes + 1)])
    sampled = NeighborSampler(graph, fanouts).sample(
        seeds, BatchName(seed=seed, epoch=1, iteration=2)
    )
    reference.check_sample(graph.indptr, graph.indices, seeds, fanouts, sampled)


@pytest.mark.parametrize("fanouts", [[10, 5], [3, 0, 4], [100, 2], [-1, 2], [2, -1]])
def test_larger_graph(fanouts):
    graph = random_graph(30_000, 200_000)
    seeds = torch.randperm(30_000, generator=torch.Generator().manual_seed(0))[:500]
    sampled = NeighborSampler(graph, fanouts).sample(seeds, BatchName())
    reference.check_sample(graph.indptr, graph.indices, seeds, fanouts, sampled)


@pytest.fixture(scope="module")
def real_graph(carried_graph):
    sources, destinations = np.load(carried_graph / "edge_index.npy")
    return from_edges(sources, destinations, len(np.load(carried_graph / "node_label.npy")))


@pytest.mark.parametrize("kind", ["real", "random"])
@pytest.mark.parametrize("num_hops", [1, 2, 3])
def test_all_neighbors_equal_breadth_first_search(real_graph, kind, num_hops):
    graph = real_graph if kind == "real" else random_graph(500, 3000)
    seeds = torch.tensor([7, 400, 3, 122])
    sampled = NeighborSampler(graph, [-1] * num_hops).sample(seeds, BatchName())
    expected = reference.full_neighborhood(graph.indptr, graph.indices, seeds, num_hops)
    for field, value in expected.items():
        np.testing.assert_array_equal(np.asarray(getattr(sampled, field)), value)


def edges_of(graph):
    degree = graph.indptr.diff()
    destinations = torch.repeat_interleave(torch.arange(len(degree)), degree)
    return torch.stack([graph.indices.long(), destinations])


def test_all_neighbors_equal_pyg(real_graph):
    try:
        import pyg_lib  # noqa: F401
    except ImportError:
        try:
            import torch_sparse  # noqa: F401
        except ImportError:
            pytest.skip("PyG's loader needs pyg-lib or torch-sparse")
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    graph = real_graph
    data = Data(edge_index=edges_of(graph), num_nodes=len(graph.indptr) - 1)
    seeds = torch.tensor([7, 400, 3, 122])
    batch = next(iter(NeighborLoader(data, [-1, -1], input_nodes=seeds, batch_size=4)))
    sampled = NeighborSampler(graph, [-1, -1]).sample(seeds, BatchName())
    for field in ("n_id", "edge_index"):
        assert torch.equal(getattr(sampled, field), getattr(batch, field)), field
    for field in ("num_sampled_nodes", "num_sampled_edges"):
        assert getattr(sampled, field) == list(getattr(batch, field)), field


@pytest.mark.parametrize("num_threads", [2, 4])
def test_threads_do_not_change_the_sample(num_threads):
    graph = random_graph(50_000, 1_000_000)
    seeds = torch.arange(0, 50_000, 10)
    one = NeighborSampler(graph, [10, 80, 5]).sample(
        seeds, BatchName(seed=3, epoch=1, iteration=2, rank=1)
    )
    many = NeighborSampler(graph, [10, 80, 5], num_threads=num_threads)
    assert_same(one, many.sample(seeds, BatchName(seed=3, epoch=1, iteration=2, rank=1)))


@pytest.mark.parametrize("num_threads", [1, 2])
def test_concurrent_calls_do_not_disturb_each_other(num_threads):
    graph = random_graph(20_000, 300_000)
    sampler = NeighborSampler(graph, [10, 5], num_threads=num_threads)

    def sample(i):
        # Sizes vary, so that workspaces and buffers change hands between small and large batches.
        seeds = torch.arange(i, 20_000, 1 + 50 * (i % 5))
        return sampler.sample(seeds, BatchName(iteration=i))

    expected = [sample(i) for i in range(40)]
    with ThreadPoolExecutor(4) as executor:
        for got, want in zip(executor.map(sample, range(40)), expected, strict=True):
            assert_same(got, want)


def test_sample_is_a_function_of_its_name():
    graph = random_graph(1000, 20_000)
    seeds = torch.arange(50)

    def sample(**name):
        return NeighborSampler(graph, [5, 5]).sample(seeds, BatchName(**name))

    assert_same(sample(), sample())
    for other in ({"seed": 1}, {"epoch": 1}, {"iteration": 1}, {"rank": 1}):
        assert differs(sample(), sample(**other)), other


def test_draw_of_a_node_does_not_depend_on_the_other_seeds():
    graph = random_graph(1000, 30_000)
    sampler = NeighborSampler(graph, [5])
    alone = sampler.sample(torch.tensor([17]), BatchName())
    among = sampler.sample(torch.tensor([3, 17, 5]), BatchName())
    edges = slice(among.indptr[1], among.indptr[2])
    assert len(alone.n_id) == 6
    assert torch.equal(alone.n_id[alone.edge_index[0]], among.n_id[among.edge_index[0, edges]])


def test_outputs_survive_the_sampler_and_later_batches():
    graph = random_graph(1000, 20_000)
    sampler = NeighborSampler(graph, [5, 5])
    first = sampler.sample(torch.arange(100), BatchName())
    copy = SimpleNamespace(**{field: getattr(first, field) for field in SAMPLED_FIELDS})
    for field in SAMPLED_FIELDS[:3]:
        setattr(copy, field, getattr(first, field).clone())
    for i in range(1, 5):
        sampler.sample(torch.arange(100), BatchName(iteration=i))
    del sampler
    assert_same(first, copy)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([0, 3, 3], "seeds: expected distinct ids, got 3 at positions 1 and 2"),
        ([0, 10], r"seeds: expected ids in \[0, 10\), got 10 at position 1"),
        ([-1], "got -1 at position 0"),
    ],
)
def test_bad_seeds(seeds, message):
    sampler = NeighborSampler(random_graph(10, 30), [2])
    with pytest.raises(ValueError, match=message):
        sampler.sample(torch.tensor(seeds), BatchName())
    good = sampler.sample(torch.tensor([1, 2]), BatchName())  # still usable
    assert good.num_sampled_nodes[0] == 2


@pytest.mark.parametrize(
    ("indptr", "num_edges", "message"),
    [
        ([0, 2, 1, 3], 3, "node 1 has -1"),
        ([1, 2, 3], 3, "expected it to go from 0 to the 3"),
        ([0, 2, 4], 3, "got 0 to 4"),
        ([], 0, "expected num_nodes"),
        ([0, 2**32, 2**32], 2**32, r"degrees in \[0, 2\^32 - 1\), node 0 has .* verify`"),
    ],
)
def test_bad_indptr(indptr, num_edges, message, tmp_path):
    # A hole in a file: no element is touched.
    indices = np.memmap(tmp_path / "indices", np.int32, "w+", shape=num_edges + 1)
    indices = torch.from_numpy(indices)[:num_edges]
    graph = Topology(indptr=torch.tensor(indptr, dtype=torch.int64), indices=indices)
    with pytest.raises(ValueError, match=message):
        NeighborSampler(graph, [2])


@pytest.mark.parametrize("fanout", [-2, 2**30])
def test_bad_fanout(fanout):
    with pytest.raises(ValueError, match="num_neighbors"):
        NeighborSampler(random_graph(10, 30), [fanout])


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("bad", [-1, 3, 2**31 - 1])
def test_damaged_indices_are_an_error(bad, dtype, num_threads):
    graph = from_edges([0, 1, bad], [2, 2, 2], 3, dtype)
    sampler = NeighborSampler(graph, [3, 3], num_threads=num_threads)
    with pytest.raises(ValueError, match=rf"indices: expected ids in \[0, 3\), got {bad}"):
        sampler.sample(torch.tensor([2]), BatchName())


def test_wrong_dtypes():
    graph = random_graph(10, 30)
    with pytest.raises(ValueError, match="indptr: expected dtype int64, got int32"):
        NeighborSampler(Topology(indptr=graph.indptr.int(), indices=graph.indices), [2])
    with pytest.raises(ValueError, match="indices: expected dtype int64, got float32"):
        NeighborSampler(Topology(indptr=graph.indptr, indices=graph.indices.float()), [2])
    with pytest.raises(ValueError, match="seeds: expected dtype int64, got float32"):
        NeighborSampler(graph, [2]).sample(torch.zeros(3), BatchName())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8], ids=str)
def test_smaller_integers_are_seeds_too(dtype):
    sampler, seeds = NeighborSampler(random_graph(60, 300), [3, 2]), torch.tensor([50, 0, 7])
    wide = sampler.sample(seeds, BatchName(epoch=1, iteration=2))
    assert_same(sampler.sample(seeds.to(dtype), BatchName(epoch=1, iteration=2)), wide)
