"""The models of graphs with types equal PyG's layers on the whole graph, with the same weights."""

import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import GATConv, HeteroConv, HGTConv, RGCNConv, SAGEConv

import lsm
from lsm.nn.options import ModelOptions
from lsm.nn.typed_models import TypedInputs, build_typed_model
from support.typed_graphs import ABOUT, CITES, WRITES, typed_graph

MODELS = ["rsage", "rgcn", "rgat", "hgt"]
WIDTH, HEADS, CLASSES, SEEDS = 8, 2, 4, 12
WRITTEN, OF = ("paper", "written_by", "author"), ("topic", "of", "paper")


def graph(**values):
    """Papers (float16), authors (int8), topics (without features), with edges in both directions.

    values: ``edge_weight``, ``edge_attr``: the types of edges that have them.
    """
    data, whole = typed_graph(), HeteroData()
    for name in data.node_types:
        whole[name].update(data[name])
    for each in (WRITES, CITES, ABOUT):
        whole[each].edge_index = data[each].edge_index
    whole[WRITTEN].edge_index = data[WRITES].edge_index.flip(0)
    whole[OF].edge_index = data[ABOUT].edge_index.flip(0)
    draw = torch.Generator().manual_seed(5)
    for each in values.get("edge_weight", ()):
        size = (whole[each].num_edges,)
        whole[each].edge_weight = torch.randint(4, size, generator=draw).float()
    for each in values.get("edge_attr", ()):
        whole[each].edge_attr = torch.randn(whole[each].num_edges, 3, generator=draw)
    return whole


def store_of(tmp_path, data):
    return lsm.GraphStore.from_pyg(data, tmp_path / "store")


def build(name, store, num_layers=2, input_type="paper", dropout=0.0):
    torch.manual_seed(0)
    options = ModelOptions(name=name, hidden_dim=WIDTH, heads=HEADS, dropout=dropout)
    model = build_typed_model(options, TypedInputs.of(store, input_type), CLASSES, num_layers)
    for parameter in model.parameters():  # biases and skips start at 0 or 1, which hides errors
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def one_batch(store, num_neighbors=(-1, -1), input_nodes=None):
    seeds = ("paper", torch.arange(SEEDS)) if input_nodes is None else input_nodes
    with lsm.NeighborLoader(store, list(num_neighbors), seeds, batch_size=SEEDS) as loader:
        return next(iter(loader))


def like(layer, own):
    """``layer`` with the weights of ours."""
    layer.load_state_dict(own.state_dict())
    return layer


def repeated(edges):
    """Each edge as often as its weight says, with its attributes."""
    times = edges.get("edge_weight", torch.ones(edges.num_edges)).long()
    attr = edges.get("edge_attr")
    attr = None if attr is None else attr.repeat_interleave(times, dim=0)
    return edges.edge_index.repeat_interleave(times, dim=1), attr


def whole_layer(name, conv, data, x):
    """Sums over edges of one of our layers for all nodes, by PyG."""
    if name == "hgt":
        edge_types = conv.conv.edge_types
        metadata = conv.conv.node_types, edge_types
        rows = {of: x[of] for of in metadata[0]}
        layer = like(HGTConv(WIDTH, WIDTH, metadata, HEADS), conv.conv)
        return layer(rows, {each: data[each].edge_index for each in edge_types})
    own = dict(conv.convs.items())
    edges = {each: repeated(data[each]) for each in own}
    indices = {each: index for each, (index, _) in edges.items()}
    if name == "rsage":
        layers = {each: like(SAGEConv((WIDTH, WIDTH), WIDTH), one) for each, one in own.items()}
        return HeteroConv(layers)(x, indices)
    if name == "rgat":
        layers, attrs = {}, {each: attr for each, (_, attr) in edges.items() if attr is not None}
        for each, one in own.items():
            options = {"edge_dim": attrs[each].size(1)} if each in attrs else {}
            layer = GATConv((-1, -1), WIDTH // HEADS, HEADS, add_self_loops=False, **options)
            layers[each] = like(layer, one)
        return HeteroConv(layers)(x, indices, edge_attr_dict=attrs)
    starts, ids = {}, 0
    for of in data.node_types:
        starts[of], ids = ids, ids + data[of].num_nodes
    rgcn = RGCNConv(WIDTH, WIDTH, len(own), root_weight=False, bias=False)
    rgcn.weight.data = torch.stack([one.lin_l.weight.T for one in own.values()])
    shifted = [
        index + torch.tensor([[starts[each[0]]], [starts[each[2]]]])
        for each, index in indices.items()
    ]
    kinds = torch.repeat_interleave(torch.tensor([part.size(1) for part in shifted]))
    rows = torch.cat([x.get(of, torch.zeros(data[of].num_nodes, WIDTH)) for of in starts])
    out = rgcn(rows, torch.cat(shifted, dim=1), kinds)
    return {
        of: out[starts[of] :][: data[of].num_nodes] + linear(x[of])
        for of, linear in conv.own.items()
    }


def whole_graph(name, model, data):
    """The output for all nodes of the input type."""
    x = {
        of: own(data[of].x.float()) if "x" in data[of] else own.weight
        for of, own in model.inputs.items()
    }
    for layer in model.layers:
        sums = whole_layer(name, layer.conv, data, x)
        x = {of: norm(x[of] + sums.get(of, 0)).relu() for of, norm in layer.norms.items()}
    return model.output(x[model.input_type])


VALUES = {
    "none": {},
    "weights": {"edge_weight": [CITES, WRITES]},
    "attributes": {"edge_attr": [CITES, OF]},
    "both": {"edge_weight": [CITES, WRITES], "edge_attr": [CITES, OF]},
}


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("name", MODELS)
def test_all_neighbours_give_the_output_of_the_whole_graph(tmp_path, name, values):
    """Edges count as often as their weight says, and 0 is none; hgt takes neither values."""
    store = store_of(tmp_path, graph(**VALUES[values]))
    model = build(name, store)
    batch, data = one_batch(store), store.to_pyg()
    ours, theirs = model(batch), whole_graph(name, model, data)[:SEEDS]
    # Sums of some ten float32 numbers in another order.
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
