"""Batch.layers() and PyG's own trimming against the untrimmed model on the whole batch."""

from itertools import pairwise

import pytest
import torch
from torch_geometric.nn import GATConv, GCNConv, SAGEConv
from torch_geometric.nn.models import GAT, GCN, GraphSAGE

from lsm.loader.batch import Batch
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from support.batches import output_on_seeds
from support.graphs import random_graph

# Float32 sums of some hundred terms in another order.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def make_batch(fanouts, dim=12, seeds=40):
    sampler = NeighborSampler(random_graph(2000, 30_000), fanouts)
    sampled = sampler.sample(torch.arange(100, 100 + seeds), BatchName())
    torch.manual_seed(0)
    x = torch.randn(len(sampled.n_id), dim)
    return Batch.from_sampled(sampled, x=x, y=torch.arange(seeds), epoch=3, iteration=4)


@pytest.mark.parametrize("fanouts", [[5], [10, 5], [4, -1, 3], [3, 0]])
def test_layers_bound_what_each_layer_needs(fanouts):
    batch = make_batch(fanouts)
    layers = batch.layers()
    assert len(layers) == len(fanouts)
    assert layers[0].num_src == batch.num_nodes
    assert layers[0].edge_index.shape == batch.edge_index.shape
    assert layers[-1].num_dst == batch.batch_size == 40
    for outer, inner in pairwise(layers):
        assert outer.num_dst == inner.num_src
    for layer in layers:
        sources, destinations = layer.edge_index
        assert (sources < layer.num_src).all()
        assert (destinations < layer.num_dst).all()
        counts = torch.bincount(destinations, minlength=layer.num_dst)
        assert torch.equal(counts, layer.indptr.diff())
        assert layer.edge_index.data_ptr() == batch.edge_index.data_ptr()  # no copy


def test_adj_is_the_adjacency_matrix():
    batch = make_batch([10, 5])
    for layer in batch.layers():
        dense = torch.zeros(layer.num_dst, layer.num_src)
        dense.index_put_((layer.edge_index[1], layer.edge_index[0]), torch.ones(1), accumulate=True)
        x = batch.x[: layer.num_src]
        torch.testing.assert_close(layer.adj @ x, dense @ x, **TOLERANCE)


def run_layers(convs, batch):
    x = batch.x
    for i, (conv, layer) in enumerate(zip(convs, batch.layers(), strict=True)):
        x = conv((x, x[: layer.num_dst]), layer.edge_index)
        if i + 1 < len(convs):
            x = x.relu()
    return x


# GCN normalises by the degrees of all edges at hand and cannot run on a bipartite layer as it is.
@pytest.mark.parametrize("model_type", [GraphSAGE, GAT])
@pytest.mark.parametrize("fanouts", [[10, 5], [4, 4, 4]])
def test_pyg_models_agree_with_and_without_trimming(model_type, fanouts):
    batch = make_batch(fanouts)
    torch.manual_seed(1)
    model = model_type(12, 16, len(fanouts), 7).eval()
    if model_type is GAT:
        for conv in model.convs:
            conv.add_self_loops = False  # not defined between different source and target sets
    whole = model(batch.x, batch.edge_index)[: batch.batch_size]
    trimmed = output_on_seeds(model, batch)
    torch.testing.assert_close(trimmed, whole, **TOLERANCE)
    assert all(isinstance(conv, SAGEConv | GATConv) for conv in model.convs)
    torch.testing.assert_close(run_layers(model.convs, batch), whole, **TOLERANCE)


def test_gcn_agrees_with_and_without_trimming():
    batch = make_batch([10, 5])
    torch.manual_seed(1)
    model = GCN(12, 16, 2, 7, normalize=False, add_self_loops=False).eval()
    assert all(isinstance(conv, GCNConv) for conv in model.convs)
    whole = model(batch.x, batch.edge_index)[: batch.batch_size]
    trimmed = output_on_seeds(model, batch)
    torch.testing.assert_close(trimmed, whole, **TOLERANCE)
    x = batch.x
    for conv, layer in zip(model.convs, batch.layers(), strict=True):
        x = layer.adj @ conv.lin(x) + conv.bias
        x = x.relu() if layer.num_dst > batch.batch_size else x
    torch.testing.assert_close(x, whole, **TOLERANCE)


def test_sage_with_adj_equals_edge_index():
    batch = make_batch([10, 5])
    torch.manual_seed(1)
    convs = [SAGEConv(12, 16), SAGEConv(16, 7)]
    x = batch.x
    for conv, layer in zip(convs, batch.layers(), strict=True):
        x = conv((x, x[: layer.num_dst]), layer.adj)
        x = x.relu() if layer.num_dst > batch.batch_size else x
    torch.testing.assert_close(x, run_layers(convs, batch), **TOLERANCE)


def test_empty_batch():
    batch = make_batch([10, 5], seeds=0)
    assert [(layer.num_src, layer.num_dst) for layer in batch.layers()] == [(0, 0), (0, 0)]
    assert run_layers([SAGEConv(12, 16), SAGEConv(16, 7)], batch).shape == (0, 7)
    assert run_layers([SAGEConv(12, 16), SAGEConv(16, 7)], batch.to("cpu")).shape == (0, 7)


def test_to_moves_every_tensor():
    batch = make_batch([3]).to("meta")
    tensors = (batch.x, batch.y, batch.n_id, batch.edge_index, batch.indptr)
    assert all(tensor.device.type == "meta" for tensor in tensors)
    assert (batch.epoch, batch.iteration, batch.batch_size) == (3, 4, 40)
