"""GCN and GAT equal PyG's layers on graphs with self loops and parallel edges, without a wait."""

import pytest
import torch
from torch_geometric.nn import GATConv, GCNConv

from lsm.loader.layers import Layer
from lsm.nn import self_loops
from lsm.nn.attention import WeightedGATConv
from support.waits import finding_waits

NUM_SRC, NUM_DST, NUM_EDGES, DIM, OUT = 40, 15, 120, 6, 8
LOOPS = 30  # node 3 has several


def layer_of(num_edges=NUM_EDGES, weighted=False):
    draw = torch.Generator().manual_seed(0)
    destinations = torch.randint(NUM_DST, (num_edges,), generator=draw)
    destinations[: min(5, num_edges)] = 3
    sources = torch.randint(NUM_SRC, (num_edges,), generator=draw)
    sources[:LOOPS] = destinations[:LOOPS]
    order = destinations.argsort(stable=True)
    edge_index = torch.stack([sources, destinations])[:, order].repeat_interleave(2, dim=1)
    counts = torch.bincount(edge_index[1], minlength=NUM_DST)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    weights = None
    if weighted:
        weights = torch.rand(2 * num_edges, generator=draw)
        weights[::7] = 0
    return Layer(indptr, edge_index, NUM_SRC, NUM_DST, weights)


def rows():
    return torch.randn(NUM_SRC, DIM, generator=torch.Generator().manual_seed(1)).requires_grad_()


def seeded(conv):
    torch.manual_seed(2)
    for parameter in conv.parameters():
        torch.nn.init.normal_(parameter)
    return conv


def pyg_gcn(conv, x, layer):
    reference = GCNConv(DIM, OUT)
    reference.load_state_dict(conv.state_dict())
    return reference, reference(x, layer.edge_index, layer.relative_weight)[:NUM_DST]


def pyg_gat(conv, x, layer):
    """Edges without a weight only, for PyG's layer has none."""
    reference = GATConv(DIM, conv.out_channels, conv.heads, concat=conv.concat)
    reference.load_state_dict(conv.state_dict())
    return reference, reference((x, x[:NUM_DST]), layer.edge_index, size=(NUM_SRC, NUM_DST))


CASES = {
    "gcn": (lambda: GCNConv(DIM, OUT), self_loops.gcn, pyg_gcn, False),
    "gcn weighted": (lambda: GCNConv(DIM, OUT), self_loops.gcn, pyg_gcn, True),
    "gat": (lambda: WeightedGATConv(DIM, 4, 2), self_loops.gat, pyg_gat, False),
    "gat mean": (
        lambda: WeightedGATConv(DIM, OUT, 2, concat=False),
        self_loops.gat,
        pyg_gat,
        False,
    ),
}


@pytest.mark.parametrize("num_edges", [NUM_EDGES, LOOPS, 0])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_equal_those_of_pyg(case, num_edges):
    make, convolve, pyg, weighted = CASES[case]
    layer, conv = layer_of(num_edges, weighted), seeded(make())
    x, of_pyg = rows(), rows()
    ours, (reference, theirs) = convolve(conv, x, layer), pyg(conv, of_pyg, layer)
    close = {"rtol": 1e-5, "atol": 1e-6}  # float32 sums in another order
    torch.testing.assert_close(ours, theirs, **close)
    factors = torch.linspace(-1, 1, ours.numel()).view_as(ours)
    (ours * factors).sum().backward()
    (theirs * factors).sum().backward()
    torch.testing.assert_close(x.grad, of_pyg.grad, **close)
    expected = dict(reference.named_parameters())
    for name, parameter in conv.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, **close)


def test_weights_of_attention_count_edges():
    """By the definition: a weight multiplies the exponential of a score; self loops have 1."""
    layer, conv = layer_of(), seeded(WeightedGATConv(DIM, 4, 2))
    times = torch.arange(layer.edge_index.size(1)) % 4
    sums = torch.zeros(NUM_DST).index_add_(0, layer.edge_index[1], times.float())
    shares = times / sums[layer.edge_index[1]].clamp(min=1)
    counts = layer.indptr.diff()
    relative = Layer(layer.indptr, layer.edge_index, NUM_SRC, NUM_DST, shares)
    ours = self_loops.gat(conv, rows(), relative)
    x = rows()
    z = conv.lin(x).view(NUM_SRC, 2, 4)
    of_source, of_own = (z * conv.att_src).sum(-1), (z * conv.att_dst).sum(-1)
    for node in range(NUM_DST):
        into = (layer.edge_index[1] == node) & (layer.edge_index[0] != node)
        ends = torch.cat([layer.edge_index[0][into], torch.tensor([node])])
        weights = torch.cat([shares[into] * counts[node], torch.ones(1)])
        scores = torch.nn.functional.leaky_relu(of_source[ends] + of_own[node], 0.2)
        alpha = scores.exp() * weights[:, None]
        expected = ((alpha / alpha.sum(0))[:, :, None] * z[ends]).sum(0).flatten() + conv.bias
        torch.testing.assert_close(ours[node], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("make", "convolve"), [(lambda: GCNConv(DIM, OUT), self_loops.gcn), CASES["gat"][:2]]
)
def test_no_size_depends_on_values(make, convolve, weighted):
    layer, conv, x, found = layer_of(weighted=weighted), make(), rows(), []
    with finding_waits(found):
        convolve(conv, x, layer).square().sum().backward()
    assert found == []
    with finding_waits(found):
        conv(x, layer.edge_index)
    assert found  # PyG's own layer, by the same count
