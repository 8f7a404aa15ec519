"""A batch, of several types or of one, has the fields that PyG's own loader gives the sample."""

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NodeLoader
from torch_geometric.nn import HeteroConv, SAGEConv
from torch_geometric.sampler import (
    BaseSampler,
    HeteroSamplerOutput,
    NodeSamplerInput,
    SamplerOutput,
)

from lsm.graph.types import EDGE, NODE, EdgeTypes, NodeSpace, TypedMap
from lsm.loader.batch import Batch, StoreValues
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler, SampledGraph
from lsm.sampler.typed import SampledTypes
from support.graphs import random_graph

SPACE = NodeSpace({"tag": 30, "paper": 80, "author": 50, "venue": 5})
CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")
WRITTEN, HAS = ("paper", "written_by", "author"), ("paper", "has", "tag")
TYPES = EdgeTypes([CITES, WRITES, WRITTEN, HAS, ("venue", "prints", "tag")], SPACE)
SEEDS = torch.tensor([7, 3, 44])


@pytest.fixture
def graph():
    """Edges sorted by destination, as a store's CSC; tags and venues have no features."""
    torch.manual_seed(0)
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.randn(80, 4), torch.randn(50, 6).half()
    data["paper"].y = torch.randint(5, (80,))
    for name, count in SPACE.counts.items():
        data[name].num_nodes = count
    for source, relation, destination in TYPES:
        ends = torch.stack(
            [torch.randint(SPACE.counts[name], (200,)) for name in (source, destination)]
        )
        data[source, relation, destination].edge_index = ends[:, ends[1].argsort(stable=True)]
    return data


class NodesOnly(BaseSampler):
    edge_permutation = None

    def sample_from_edges(self, *_args, **_options):
        raise NotImplementedError


class TwoOfEach(NodesOnly):
    """The first two neighbours of each node and edge type, by two loops: a PyG sampler."""

    def __init__(self, data, hops=2):
        self.data, self.hops = data, hops

    def sample_from_nodes(self, index, **_):
        node = {name: [] for name in SPACE.types}
        node["paper"] = index.node.tolist()
        nodes = {name: [len(found)] for name, found in node.items()}
        edges, hops = {each: [] for each in TYPES}, {each: [] for each in TYPES}
        begin = dict.fromkeys(SPACE.types, 0)
        for _ in range(self.hops):
            ends = {name: len(found) for name, found in node.items()}
            for each in TYPES:
                before = len(edges[each])
                source, _, destination = each
                for local in range(begin[destination], ends[destination]):
                    of = self.data[each].edge_index[1] == node[destination][local]
                    for position in of.nonzero().view(-1)[:2].tolist():
                        own = int(self.data[each].edge_index[0, position])
                        if own not in node[source]:
                            node[source].append(own)
                        edges[each].append((node[source].index(own), local, position))
                hops[each].append(len(edges[each]) - before)
            for name in SPACE.types:
                nodes[name].append(len(node[name]) - ends[name])
            begin = ends
        columns = {each: torch.tensor(found).view(-1, 3).long() for each, found in edges.items()}
        return HeteroSamplerOutput(
            node={name: torch.tensor(found).long() for name, found in node.items()},
            row={each: found[:, 0] for each, found in columns.items()},
            col={each: found[:, 1] for each, found in columns.items()},
            edge={each: found[:, 2] for each, found in columns.items()},
            num_sampled_nodes=nodes,
            num_sampled_edges=hops,
            metadata=(index.input_id, None),
        )


def sampled_graph(out, weight=False) -> SampledGraph:
    """The tensors of a typed sample as a native sampler would fill them."""
    ids = [SPACE.to_global(name, out.node[name]) for name in SPACE.types]
    bounds = []
    for each in TYPES:
        expanded = sum(out.num_sampled_nodes[each[2]][:-1])
        counts = torch.bincount(out.col[each], minlength=expanded)
        bounds.append(torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]))
    edges = torch.cat([torch.stack([out.row[each], out.col[each]]) for each in TYPES], dim=1)
    return SampledGraph(
        n_id=torch.cat(ids),
        edge_index=edges,
        indptr=torch.cat(bounds),
        num_sampled_nodes=[sum(hop) for hop in zip(*out.num_sampled_nodes.values(), strict=True)],
        num_sampled_edges=[sum(hop) for hop in zip(*out.num_sampled_edges.values(), strict=True)],
        edge_weight=torch.rand(edges.size(1)) if weight else None,
        types=SampledTypes(
            SPACE,
            TYPES,
            "paper",
            TypedMap(out.num_sampled_nodes),
            TypedMap(out.num_sampled_edges),
        ),
    )


def typed_batch(graph, **more) -> tuple[Batch, HeteroData]:
    """Our batch of a sample, and that of PyG's loader."""
    sampler = TwoOfEach(graph)
    theirs = next(iter(NodeLoader(graph, sampler, ("paper", SEEDS), batch_size=len(SEEDS))))
    out = sampler.sample_from_nodes(NodeSamplerInput(torch.arange(3), SEEDS))
    edges = torch.cat([out.edge[each] for each in TYPES])
    batch = Batch.from_sampled(
        sampled_graph(out, **more),
        x=TypedMap({name: graph[name].x[out.node[name]] for name in ("paper", "author")}),
        y=graph["paper"].y[SEEDS],
        input_id=torch.arange(3),
        find_edges=lambda: edges,
        store_values=StoreValues(TypedMap({"paper": {"y": graph["paper"].y}})),
    )
    return batch, theirs


def fields_of(store):
    return {key: value for key, value in store.to_dict().items() if value is not None}


def assert_equal_stores(mine, theirs):
    mine, theirs = fields_of(mine), fields_of(theirs)
    assert set(mine) == set(theirs)
    for key, value in theirs.items():
        assert type(mine[key]) is type(value), key
        if isinstance(value, torch.Tensor):
            assert mine[key].dtype == value.dtype, key
            assert torch.equal(mine[key], value), key
        else:
            assert mine[key] == value, key


def test_a_typed_batch_is_that_of_pygs_loader(graph):
    batch, theirs = typed_batch(graph)
    mine = batch.to_pyg()
    assert sorted(mine.node_types) == sorted(theirs.node_types) == sorted(SPACE.types)
    assert sorted(mine.edge_types) == sorted(theirs.edge_types) == sorted(TYPES)
    for name in SPACE.types:
        assert_equal_stores(mine[name], theirs[name])
    for each in TYPES:
        assert_equal_stores(mine[each], theirs[each])
    assert mine["venue"].num_nodes == 0 < mine["tag"].num_nodes + mine["author"].num_nodes
    assert batch.num_nodes == sum(store.num_nodes for store in theirs.node_stores)
    assert batch.num_edges == sum(store.edge_index.size(1) for store in theirs.edge_stores)


def test_views_by_type_are_views(graph):
    batch, theirs = typed_batch(graph, weight=True)
    memory = batch.edge_index.untyped_storage().data_ptr()
    for each, edges in batch.edge_index_dict.items():
        assert edges.untyped_storage().data_ptr() == memory
        assert torch.equal(edges, theirs[each].edge_index)
        assert len(batch.edge_weight_dict[each]) == edges.size(1)
    assert torch.equal(torch.cat([*batch.edge_weight_dict.values()]), batch.edge_weight)
    moved = batch.to("cpu")
    assert torch.equal(moved.x_dict["author"], batch.x["author"])
    assert moved.to_pyg()[CITES].edge_weight is not None


def test_packing_a_typed_sample_loses_nothing(graph):
    batch, _ = typed_batch(graph, weight=True)
    out = TwoOfEach(graph).sample_from_nodes(NodeSamplerInput(torch.arange(3), SEEDS))
    sampled = sampled_graph(out)
    assert torch.equal(sampled.ids, batch.n_id)
    packed = sampled.pack()
    assert packed.is_packed
    assert packed.num_bytes == sampled.num_bytes - 12 * sampled.edge_index.size(1)
    unpacked = packed.unpack()
    assert torch.equal(unpacked.edge_index, sampled.edge_index)
    assert unpacked.types is sampled.types


def test_typed_layers_compute_the_seeds_as_the_whole_batch_does(graph):
    batch, theirs = typed_batch(graph)
    relations = [CITES, WRITES, WRITTEN]
    torch.manual_seed(1)
    convs = [{each: SAGEConv((8, 8), 8) for each in relations} for _ in range(2)]
    x = {name: torch.randn(theirs[name].num_nodes, 8) for name in ("paper", "author")}
    whole = x
    for conv in convs:
        edges = {each: theirs[each].edge_index for each in relations}
        whole = HeteroConv(conv)(whole, edges)
    for conv, layer in zip(convs, batch.typed_layers(), strict=True):
        sums = {}
        for each in relations:
            part = layer[each]
            ends = x[each[0]][: part.num_src], x[each[2]][: part.num_dst]
            sums[each[2]] = sums.get(each[2], 0) + conv[each](ends, part.edge_index)
            counts = torch.bincount(part.edge_index[1], minlength=part.num_dst)
            assert torch.equal(counts, part.indptr.diff())
        x = sums
    assert len(x["paper"]) == batch.batch_size
    torch.testing.assert_close(x["paper"], whole["paper"][: len(SEEDS)], rtol=1e-5, atol=1e-6)


class OurSample(NodesOnly):
    """A NeighborSampler as a PyG sampler."""

    def __init__(self, sampler):
        self.sampler = sampler

    def sample_from_nodes(self, index, **_):
        sampled = self.sampler.sample(index.node, BatchName())
        return SamplerOutput(
            node=sampled.n_id,
            row=sampled.edge_index[0],
            col=sampled.edge_index[1],
            edge=self.sampler.edge_ids(index.node, BatchName()),
            num_sampled_nodes=sampled.num_sampled_nodes,
            num_sampled_edges=sampled.num_sampled_edges,
            metadata=(index.input_id, None),
        )


def test_a_batch_of_one_type_is_that_of_pygs_loader():
    topology = random_graph(300, 3000)
    destinations = torch.repeat_interleave(torch.arange(300), topology.indptr.diff())
    edges = torch.stack([topology.indices.long(), destinations])
    data = Data(x=torch.randn(300, 4), y=torch.randint(5, (300,)), edge_index=edges, num_nodes=300)
    sampler = NeighborSampler(topology, [4, 3])
    seeds = torch.arange(40, 60)
    theirs = next(iter(NodeLoader(data, OurSample(sampler), seeds, batch_size=20)))
    sampled = sampler.sample(seeds, BatchName())
    batch = Batch.from_sampled(
        sampled,
        x=data.x[sampled.n_id],
        y=data.y[seeds],
        input_id=theirs.input_id,
        find_edges=lambda: sampler.edge_ids(seeds, BatchName()),
        store_values=StoreValues(TypedMap({NODE: {"y": data.y}})),
    )
    assert_equal_stores(batch.to_pyg(), theirs)
    assert batch.x_dict.only is batch.x
    assert batch.edge_index_dict[EDGE] is batch.edge_index
    assert batch.n_id_dict.only is batch.n_id
    assert batch.num_sampled_nodes_dict.only == theirs.num_sampled_nodes
    assert [layer.only.num_src for layer in batch.typed_layers()] == [
        layer.num_src for layer in batch.layers()
    ]
