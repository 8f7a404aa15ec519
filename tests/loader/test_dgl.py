"""DGL's SAGEConv on Batch.to_dgl() against PyG's on Batch.layers(), with the same weights."""

import pytest
import torch
from torch_geometric.nn import SAGEConv

from lsm.loader.batch import Batch
from lsm.loader.dgl import import_dgl
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from support.graphs import random_graph


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
