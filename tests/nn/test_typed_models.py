"""The models of graphs with types equal PyG's layers on the whole graph, with the same weights."""

from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GATConv, HeteroConv, HGTConv, RGCNConv, SAGEConv

import lsm
from lsm.graph.types import EDGE, NODE
from lsm.nn.embeddings import sparse_parameters
from lsm.nn.models import loss_sum
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
        metadata = conv.conv.node_types, conv.conv.edge_types
        layer = like(HGTConv(WIDTH, WIDTH, metadata, HEADS), conv.conv)
        rows = {key: x[of] for of, key in conv.node_keys.items()}
        indices = {key: data[each].edge_index for each, key in conv.edge_keys.items()}
        out = layer(rows, indices)
        return {of: out[key] for of, key in conv.node_keys.items() if key in out}
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


@pytest.mark.parametrize("values", ["edge_weight", "edge_attr"])
@pytest.mark.parametrize("name", MODELS)
def test_values_of_edges_reach_the_models_that_take_them(tmp_path, name, values):
    """The same weights of the model, with and without the values."""
    batch = one_batch(store_of(tmp_path, graph(**{values: [CITES]})))
    model = build(name, lsm.GraphStore.open(tmp_path / "store"))
    without = model(replace(batch, store_values=None))
    takes = {"edge_weight": ["rsage", "rgcn", "rgat"], "edge_attr": ["rgat"]}[values]
    assert torch.equal(model(batch), without) == (name not in takes)


def test_weights_of_sampling_and_of_the_store_multiply(tmp_path):
    store = store_of(tmp_path, graph(edge_weight=[CITES]))
    model, batch = build("rsage", store), one_batch(store)
    stored = batch.edge_values("edge_weight")[CITES]
    drawn = torch.rand(batch.num_edges) + 0.5  # as a sampler that corrects for its draws gives
    both = replace(batch, edge_weight=drawn)
    product = drawn.clone()
    of_type = batch.types.edges(product)[CITES]  # a view
    of_type *= stored
    assert not torch.equal(product, drawn)
    # The product as weights of sampling alone, each node's of each type in a sum of 1.
    for each, own in batch.types.edges(product).items():
        index = batch.edge_index_dict[each][1]
        sums = torch.zeros(max(batch.num_nodes, 1)).index_add_(0, index, own)
        own /= sums[index].clamp(min=1e-30)
    for each, own in batch.types.edges(drawn).items():
        index = batch.edge_index_dict[each][1]
        own /= torch.zeros(batch.num_nodes).index_add_(0, index, own)[index]
    alone = replace(batch, edge_weight=product, store_values=None)
    torch.testing.assert_close(model(both), model(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_reach_every_weight(tmp_path, name):
    """Those of embeddings are sparse, with the rows of the batch's nodes."""
    store = store_of(tmp_path, graph(edge_weight=[WRITES], edge_attr=[CITES]))
    model, batch = build(name, store), one_batch(store, [3, 3])
    loss_sum(model(batch), batch.y.clamp(min=0)).backward()
    tables = sparse_parameters(model)
    assert list(tables) == ["inputs.topic.weight"]
    for of, parameter in model.named_parameters():
        if of in tables:
            rows = parameter.grad.coalesce().indices()[0].tolist()
            assert sorted(rows) == sorted(batch.n_id_dict["topic"].tolist())
        elif not unused_in(name, of):
            assert parameter.grad is not None, of
            assert parameter.grad.abs().sum() > 0, of


def unused_in(name, of):
    """HGTConv has outputs and skips of types that it only takes, too."""
    return name == "hgt" and of.startswith("layers.1.conv.conv.") and "paper" not in of


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_without_seeds_reaches_every_dense_weight_with_zero(tmp_path, name):
    store = store_of(tmp_path, graph())
    model = build(name, store)
    with lsm.NeighborLoader(store, [2, 2], ("paper", torch.arange(1)), 1, world_size=2) as ours:
        batch = next(iter(ours))
    assert batch.batch_size == 0
    scores = model(batch)
    assert scores.shape == (0, CLASSES)
    loss_sum(scores, batch.y).backward()
    for of, parameter in model.named_parameters():
        if of in sparse_parameters(model):
            assert parameter.grad is None
        else:
            assert torch.count_nonzero(parameter.grad) == 0


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_without_types_has_one_type(tmp_path, name):
    draw = torch.Generator().manual_seed(0)
    data = Data(x=torch.randn(40, 5, generator=draw), y=torch.arange(40) % CLASSES)
    data.edge_index = torch.randint(40, (2, 200), generator=draw)
    store = store_of(tmp_path, data)
    model = build(name, store, input_type=NODE)
    whole = HeteroData()
    whole[NODE].x, whole[EDGE].edge_index = data.x, data.edge_index
    batch = one_batch(store, input_nodes=torch.arange(SEEDS))
    theirs = whole_graph(name, model, whole)[:SEEDS]
    torch.testing.assert_close(model(batch), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_one_named_type_with_several_types_of_edges(tmp_path, name):
    """Names with a dot, and those of attributes of modules, are names like any other."""
    draw, kind = torch.Generator().manual_seed(0), "my.items"
    data = HeteroData()
    data[kind].x, data[kind].y = torch.randn(40, 5, generator=draw), torch.arange(40) % CLASSES
    for relation in ("forward", "a.b"):
        ends = torch.randint(40, (2, 100), generator=draw)
        data[kind, relation, kind].edge_index = ends
    store = store_of(tmp_path, data)
    model = build(name, store, input_type=kind)
    batch = one_batch(store, input_nodes=(kind, torch.arange(SEEDS)))
    theirs = whole_graph(name, model, store.to_pyg())[:SEEDS]
    torch.testing.assert_close(model(batch), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_seeds_of_a_type_without_edges_into_it(tmp_path, name):
    data = HeteroData()
    data["user"].x, data["user"].y = torch.randn(SEEDS, 5), torch.arange(SEEDS) % CLASSES
    data["item"].num_nodes = 3
    data["user", "buys", "item"].edge_index = torch.tensor([[0, 1], [2, 0]])
    store = store_of(tmp_path, data)
    model = build(name, store, input_type="user")
    ours = model(one_batch(store, input_nodes="user"))
    if name == "rgcn":  # it maps the rows of a node itself, too
        assert ours.shape == (SEEDS, CLASSES)
        return
    x = model.inputs["user"](data["user"].x)
    for layer in model.layers:
        x = layer.norms["user"](x).relu()
    torch.testing.assert_close(ours, model.output(x), rtol=1e-4, atol=1e-5)


def test_only_types_that_can_reach_the_seeds_have_weights(tmp_path):
    data = graph()
    data["venue"].num_nodes = 9
    data["paper", "in", "venue"].edge_index = torch.zeros(2, 4, dtype=torch.int64)
    model = build("rsage", store_of(tmp_path, data))
    names = [of for of, _ in model.named_parameters()]
    assert not [of for of in names if "venue" in of or of.startswith("layers.1.norms.author")]
    assert not [of for of in names if of.startswith("layers.1") and "written_by" in of]
    assert [of for of in names if of.startswith("layers.0") and "written_by" in of]


@pytest.mark.parametrize("name", MODELS)
def test_autocast_gives_nearly_the_same(tmp_path, name):
    store = store_of(tmp_path, graph(edge_weight=[CITES]))
    model, batch = build(name, store), one_batch(store)
    exact = model(batch)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(batch)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, rtol=5e-2, atol=5e-2)  # bfloat16 has 8 bits
    assert not torch.equal(rounded, exact)


def test_another_number_of_hops_is_refused(tmp_path):
    store = store_of(tmp_path, graph())
    with pytest.raises(ValueError, match="expected batches of 3 hops, one per layer, got 2"):
        build("rsage", store, num_layers=3)(one_batch(store))
