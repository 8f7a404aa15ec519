"""Batches as DGL blocks: the edges of the layers, and DGL's models on them against PyG's."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import lsm
from lsm.loader.batch import Batch
from lsm.loader.dgl import import_dgl
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from support.graphs import random_graph
from support.typed_graphs import ABOUT, CITES, WRITES, typed_graph

WRITTEN, OF = ("paper", "written_by", "author"), ("topic", "of", "paper")
HOPS = {CITES: [4, 3], WRITES: [3, 2], ABOUT: [0, 2], WRITTEN: [2, 2], OF: [1, 0]}


@pytest.fixture(scope="module")
def dgl():
    try:
        return import_dgl()
    except RuntimeError as error:
        pytest.skip(
            f"dgl cannot be imported; make test-dgl runs this in an environment of its own: {error}"
        )


@pytest.fixture
def batch():
    sampler = NeighborSampler(random_graph(2000, 30_000), [10, 5])
    sampled = sampler.sample(torch.arange(100, 150), BatchName())
    torch.manual_seed(0)
    return Batch.from_sampled(sampled, x=torch.randn(len(sampled.n_id), 12))


@pytest.fixture(scope="module")
def graph():
    data = typed_graph()
    data[WRITTEN].edge_index = data[WRITES].edge_index.flip(0)
    data[OF].edge_index = data[ABOUT].edge_index.flip(0)
    return data


@pytest.fixture(scope="module")
def store(graph, tmp_path_factory):
    return lsm.GraphStore.from_pyg(graph, tmp_path_factory.mktemp("dgl") / "store")


def test_blocks_have_the_edges_of_the_layers(dgl, batch):
    for block, layer in zip(batch.to_dgl(), batch.layers(), strict=True):
        assert (block.num_src_nodes(), block.num_dst_nodes()) == (layer.num_src, layer.num_dst)
        assert torch.equal(torch.stack(block.edges(order="eid")), layer.edge_index)
        assert torch.equal(block.srcdata[dgl.NID], batch.n_id[: layer.num_src])
        assert torch.equal(block.dstdata[dgl.NID], batch.n_id[: layer.num_dst])


def test_sage_equals_pyg(dgl, batch):
    from dgl.nn import SAGEConv as DglSAGEConv

    torch.manual_seed(1)
    sizes = [(12, 16), (16, 7)]
    theirs = [DglSAGEConv(*size, "mean", bias=False) for size in sizes]
    ours = [SAGEConv(*size, bias=False) for size in sizes]
    x_dgl = x_pyg = batch.x
    pairs = zip(theirs, ours, batch.to_dgl(), batch.layers(), strict=True)
    for dgl_conv, pyg_conv, block, layer in pairs:
        pyg_conv.lin_l.weight.data = dgl_conv.fc_neigh.weight.data
        pyg_conv.lin_r.weight.data = dgl_conv.fc_self.weight.data
        x_dgl = dgl_conv(block, x_dgl)
        x_pyg = pyg_conv((x_pyg, x_pyg[: layer.num_dst]), layer.edge_index)
    # Float32 sums in another order.
    torch.testing.assert_close(x_dgl, x_pyg, rtol=1e-4, atol=1e-5)


def test_typed_blocks_have_the_edges_of_the_store(dgl, store):
    whole = store.to_pyg()  # edges in the order of the store
    with lsm.NeighborLoader(store, HOPS, ("paper", "train"), 8) as loader:
        for batch in loader:
            check_blocks(dgl, whole, batch)


def check_blocks(dgl, whole, batch):
    blocks = batch.to_dgl()
    for number, block in enumerate(blocks):
        assert block.is_block
        for each, hops in batch.num_sampled_edges_dict.items():
            source, _, destination = each
            ends = block.edges(etype=each, order="eid")
            assert len(ends[0]) == sum(hops[: 2 - number])
            found = torch.stack(
                [
                    block.srcnodes[source].data[dgl.NID][ends[0]],
                    block.dstnodes[destination].data[dgl.NID][ends[1]],
                ]
            )
            e_id = block.edges[each].data[dgl.EID]
            assert torch.equal(found, whole[each].edge_index[:, e_id])
        for name, n_id in batch.n_id_dict.items():
            sources = block.srcnodes[name].data[dgl.NID]
            destinations = block.dstnodes[name].data[dgl.NID]
            assert torch.equal(sources, n_id[: len(sources)])
            assert torch.equal(destinations, sources[: len(destinations)])
            if number > 0:
                assert torch.equal(sources, blocks[number - 1].dstnodes[name].data[dgl.NID])
    assert len(blocks[0].srcnodes["author"].data[dgl.NID]) == len(batch.n_id_dict["author"])
    seeds = batch.n_id_dict["paper"][: batch.batch_size]
    assert torch.equal(blocks[-1].dstnodes["paper"].data[dgl.NID], seeds)


def test_hetero_graph_conv_equals_pyg(dgl, store):
    from dgl.nn import HeteroGraphConv
    from dgl.nn import SAGEConv as DglSAGEConv

    with lsm.NeighborLoader(store, HOPS, ("paper", "train"), 8) as loader:
        batch = next(iter(loader))
    torch.manual_seed(1)
    widths = {"paper": 7, "author": 3, "topic": 4}
    x = {name: torch.randn(len(ids), widths[name]) for name, ids in batch.n_id_dict.items()}
    theirs = HeteroGraphConv(
        {
            each[1]: DglSAGEConv((widths[each[0]], widths[each[2]]), 5, "mean", bias=False)
            for each in HOPS
        },
        aggregate="sum",
    )
    block, layers = batch.to_dgl()[0], batch.typed_layers()[0]
    found, expected = theirs(block, x), {}
    for each, layer in layers.items():
        source, relation, destination = each
        conv = SAGEConv((widths[source], widths[destination]), 5, bias=False)
        conv.lin_l.weight.data = theirs.mods[relation].fc_neigh.weight.data
        conv.lin_r.weight.data = theirs.mods[relation].fc_self.weight.data
        rows = conv((x[source], x[destination][: layer.num_dst]), layer.edge_index)
        expected[destination] = expected.get(destination, 0) + rows
    assert set(found) == set(expected)
    for name, rows in found.items():
        # Float32 sums in another order.
        torch.testing.assert_close(rows, expected[name], rtol=1e-4, atol=1e-5)


def test_a_loader_gives_the_items_of_dgl(dgl, graph, store):
    with lsm.NeighborLoader(store, HOPS, ("paper", "train"), 8, as_dgl=True) as loader:
        seen = []
        for inputs, outputs, blocks in loader:
            assert list(outputs) == ["paper"]
            seen.append(outputs["paper"])
            assert torch.equal(blocks[-1].dstnodes["paper"].data[dgl.NID], outputs["paper"])
            assert torch.equal(
                blocks[-1].dstnodes["paper"].data["label"], graph["paper"].y[seen[-1]]
            )
            for name, ids in inputs.items():
                assert torch.equal(blocks[0].srcnodes[name].data[dgl.NID], ids)
            for name in ("paper", "author"):
                rows = blocks[0].srcnodes[name].data["feat"]
                assert torch.equal(rows, graph[name].x[inputs[name]])
    assert torch.equal(torch.cat(seen), graph["paper"].train_mask.nonzero().view(-1))


def test_items_of_one_type_have_tensors(dgl, tmp_path):
    typed = typed_graph()
    data = Data(edge_index=typed[CITES].edge_index, x=typed["paper"].x, y=typed["paper"].y)
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store")
    with lsm.NeighborLoader(store, [3, 2], torch.arange(5, 20), 15, as_dgl=True) as loader:
        inputs, outputs, blocks = next(iter(loader))
    assert torch.equal(outputs, torch.arange(5, 20))
    assert torch.equal(blocks[0].srcdata[dgl.NID], inputs)
    assert torch.equal(blocks[0].srcdata["feat"], data.x[inputs])
    assert torch.equal(blocks[1].dstdata["label"], data.y[outputs])


def test_one_form_of_batches(store):
    with pytest.raises(ValueError, match="as_dgl: expected False with as_pyg=True"):
        lsm.NeighborLoader(store, [2], "paper", as_pyg=True, as_dgl=True)
