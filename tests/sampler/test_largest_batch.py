"""The size of the largest batch: that of whole samples, and of parts of those too large to take."""

import pytest
import torch

from lsm.core.memory import BatchSize
from lsm.graph.types import EDGE, NODE, NodeSpace, TypedMap
from lsm.sampler.memory import graph_bytes, largest_batch, packed_bytes
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.seeds import NodeSeeds
from lsm.sampler.typed_neighbor import TypedNeighborSampler, TypedTopology
from support.graphs import random_graph

NUM_NODES, MIB = 20_000, 1 << 20
ROW_BYTES = {NODE: 64}
SCHEDULE = {"shuffle": True, "drop_last": False, "seed": 3, "rank": 0, "world_size": 1}


class Recorded:
    """A sampler that keeps the numbers of seeds and of nodes of its samples."""

    def __init__(self, sampler):
        self._sampler, self.seeds, self.nodes = sampler, [], []

    def sample(self, seeds, *others):
        graph = self._sampler.sample(seeds, *others)
        self.seeds.append(len(seeds))
        self.nodes.append(len(graph.n_id))
        return graph


def plain():
    return NeighborSampler(random_graph(NUM_NODES, 200_000), [10, 5])


def disjoint():
    topology = TypedTopology(
        NodeSpace.of_one(NUM_NODES), TypedMap({EDGE: random_graph(NUM_NODES, 200_000)})
    )
    return TypedNeighborSampler(topology, [10, 5], input_type=NODE, disjoint=True)


def whole(sampler, seeds):
    """The sizes of the first three batches."""
    at = seeds.epoch(0)
    graphs = [sampler.sample(*at(each).arguments) for each in range(3)]
    sizes = [(len(graph.n_id), graph.edge_index.size(1), len(graph.indptr) - 1) for graph in graphs]
    return [max(each) for each in zip(*sizes, strict=True)]


@pytest.mark.parametrize("make", [plain, disjoint])
@pytest.mark.parametrize("most_bytes", [float("inf"), 64 * MIB])
def test_a_batch_that_fits_has_the_size_of_its_sample(make, most_bytes):
    seeds = NodeSeeds(torch.arange(NUM_NODES), 2000, **SCHEDULE)
    expected = [int(1.05 * each) for each in whole(make(), seeds)]
    found, (fewer, graph) = largest_batch(make(), seeds, ROW_BYTES, most_bytes=most_bytes)
    assert [found.nodes, found.edges, found.expanded] == expected
    assert len(fewer.input_id) == 2000  # rows of a few MiB
    assert torch.equal(graph.n_id, make().sample(*seeds.epoch(0)(0).arguments).n_id)


@pytest.mark.parametrize("make", [plain, disjoint])
def test_a_batch_that_cannot_fit_is_judged_by_parts(make):
    seeds = NodeSeeds(torch.arange(NUM_NODES), NUM_NODES // 3, **SCHEDULE)
    sampler = Recorded(make())
    found, _ = largest_batch(sampler, seeds, ROW_BYTES, most_bytes=MIB)
    nodes, edges, expanded = whole(make(), seeds)
    # A node is 64 bytes and, with its edges, twice about 50 of sampling. A fit is within a factor
    # of two.
    assert 64 * max(sampler.nodes) < 2 * MIB
    assert found.nodes >= 0.9 * nodes
    assert found.edges >= 0.9 * edges
    assert found.expanded >= 0.9 * expanded
    if make is disjoint:  # where nodes of seeds do not coincide
        assert found.nodes < 1.5 * nodes


@pytest.mark.parametrize(("make", "is_ladies"), [(plain, False), (disjoint, False), (None, True)])
def test_the_values_of_a_graph_count_as_it_counts_them(make, is_ladies):
    """Subgraphs of nodes, and weights of edges: by the tensors of the first batches."""
    graph = random_graph(NUM_NODES, 200_000)
    sampler = NeighborSampler(graph, [500, 500], sampling="ladies") if is_ladies else make()
    seeds = NodeSeeds(torch.arange(NUM_NODES), 2000, **SCHEDULE)
    at, (found, _) = seeds.epoch(0), largest_batch(sampler, seeds, ROW_BYTES)
    graphs = [sampler.sample(*at(each).arguments) for each in range(3)]
    unpacked, packed = (
        max(each.num_bytes for each in some) for some in (graphs, map(pack, graphs))
    )
    assert graph_bytes(found) == pytest.approx(1.05 * unpacked, rel=1e-3)
    assert packed_bytes(found) == pytest.approx(1.05 * packed, rel=1e-3)


def pack(graph):
    return graph.pack()


def test_threads_that_sample_count():
    """The same batch fits where one thread samples, and not where 64 do."""
    seeds = NodeSeeds(torch.arange(NUM_NODES), 2000, **SCHEDULE)
    for num_threads, is_whole in ((1, True), (64, False)):
        sampler = Recorded(disjoint())
        largest_batch(sampler, seeds, {}, num_threads=num_threads, most_bytes=16 * MIB)
        assert (sampler.seeds.count(2000) >= 3) == is_whole


def test_it_ends_between_two_samples():
    class StopError(Exception):
        pass

    calls = 0

    def go_on():
        nonlocal calls
        calls += 1
        if calls == 3:
            raise StopError

    sampler = Recorded(plain())
    seeds = NodeSeeds(torch.arange(NUM_NODES), 2000, **SCHEDULE)
    with pytest.raises(StopError):
        largest_batch(sampler, seeds, ROW_BYTES, go_on=go_on)
    assert len(sampler.seeds) == 3 - 1 + 1  # two calls, and the batch to try a step on


def test_a_ratio_is_that_of_the_field_that_grows_most():
    assert BatchSize(20, 90, 0).ratio(BatchSize(10, 30, 0)) == 3
    assert BatchSize(20, 30, 8).ratio(BatchSize(10, 30, 1)) == 8
