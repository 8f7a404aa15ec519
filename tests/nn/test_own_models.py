"""Classes that a configuration names: built and called as they take their arguments."""

import sys

import pytest
import torch
from torch import nn
from torch_geometric.nn import GAT, GIN, HGTConv, SAGEConv

import lsm
from lsm.nn.embeddings import sparse_parameters
from lsm.nn.options import ModelOptions
from lsm.nn.own_models import build_own_model
from lsm.nn.typed_models import TypedInputs
from support.typed_graphs import ABOUT, CITES, WRITES, typed_graph

DIM, WIDTH, CLASSES, SEEDS = 6, 8, 4, 20


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of one type with weights and attributes of edges."""
    from torch_geometric.data import Data

    draw = torch.Generator().manual_seed(0)
    data = Data(
        x=torch.randn(200, DIM, generator=draw),
        edge_index=torch.randint(200, (2, 1500), generator=draw),
        edge_weight=torch.rand(1500, generator=draw),
        edge_attr=torch.randn(1500, 3, generator=draw),
        y=torch.randint(CLASSES, (200,), generator=draw),
    )
    return lsm.GraphStore.from_pyg(data, tmp_path_factory.mktemp("own") / "store")


@pytest.fixture(scope="module")
def typed_store(tmp_path_factory):
    return lsm.GraphStore.from_pyg(typed_graph(), tmp_path_factory.mktemp("typed") / "store")


def one_batch(store, seeds=None, **options):
    seeds = torch.arange(SEEDS) if seeds is None else seeds
    with lsm.NeighborLoader(store, [4, 3], seeds, batch_size=SEEDS, **options) as loader:
        return next(iter(loader))


def build(name, in_dim=DIM, **args):
    torch.manual_seed(0)
    options = ModelOptions(name=name, hidden_dim=WIDTH, args=args)
    return build_own_model(options, in_dim, CLASSES, 2).eval()


@pytest.fixture
def named(monkeypatch, tmp_path):
    """A function that puts a class in a module of the working directory, and returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def put(kind):
        module = f"own_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{module}.py").write_text(
            f"import sys\nKind = sys.modules[{__name__!r}].{kind}\n"
        )
        monkeypatch.delitem(sys.modules, module, raising=False)
        return f"{module}:Kind"

    return put


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("GIN", {}),
        ("GIN", {"jk": "cat", "norm": "batch_norm"}),
        ("GraphSAGE", {"aggr": "max"}),
        ("GAT", {"v2": True, "heads": 2, "edge_dim": 3}),
    ],
)
def test_models_of_pyg_equal_themselves_untrimmed(store, name, args):
    """On all edges and all nodes of the batch, as PyG's examples call them."""
    model, batch = build(f"torch_geometric.nn:{name}", **args), one_batch(store)
    taken = {"edge_attr": batch.edge_values("edge_attr").only} if name == "GAT" else {}
    expected = model.network(batch.x, batch.edge_index, **taken)[:SEEDS]
    torch.testing.assert_close(model(batch), expected, rtol=1e-5, atol=1e-6)
    if taken:
        other = model.network(batch.x, batch.edge_index)[:SEEDS]
        assert not torch.allclose(model(batch), other, rtol=1e-3)


def test_gcn_takes_weights_and_the_degrees_of_each_layer(store):
    model, batch = build("torch_geometric.nn:GCN"), one_batch(store)
    expected = model.network(
        batch.x,
        batch.edge_index,
        edge_weight=batch.edge_values("edge_weight").only,
        num_sampled_nodes_per_hop=batch.num_sampled_nodes,
        num_sampled_edges_per_hop=batch.num_sampled_edges,
    )[:SEEDS]
    torch.testing.assert_close(model(batch), expected, rtol=1e-5, atol=1e-6)


def test_attributes_of_edges_without_a_width_for_them_are_left_out(store):
    model, batch = build("torch_geometric.nn:GAT", v2=True), one_batch(store)
    expected = model.network(batch.x, batch.edge_index)[:SEEDS]
    torch.testing.assert_close(model(batch), expected, rtol=1e-5, atol=1e-6)


class Seen(nn.Module):
    """Keeps its arguments."""

    def __init__(self, in_channels, out_channels, dropout=0.0, scale=1):
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels)
        self.scale, self.dropout = scale, dropout

    def forward(self, nodes, edges, edge_weight, n_id, batch_size, other=None, **rest):
        self.seen = (nodes, edges, edge_weight, n_id, batch_size, other, rest)
        return self.linear(nodes)


class OfBatch(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = SAGEConv(in_channels, out_channels)

    def forward(self, batch):
        self.seen = batch
        return self.conv(batch.x, batch.edge_index)


class OfTypes(nn.Module):
    def __init__(self, in_channels, hidden_channels, out_channels, metadata):
        super().__init__()
        dims = in_channels.items()
        self.inputs = nn.ModuleDict({of: nn.Linear(dim, hidden_channels) for of, dim in dims})
        self.conv = HGTConv(hidden_channels, out_channels, metadata)

    def forward(self, x_dict, edge_index_dict, num_sampled_nodes_dict):
        self.seen = num_sampled_nodes_dict
        x = {of: self.inputs[of](rows) for of, rows in x_dict.items()}
        return self.conv(x, edge_index_dict)


def test_parameters_of_forward_are_met_by_name(store, named):
    model = build(named("Seen"), scale=3)
    assert model.network.dropout == 0.5  # that of the options, as it names it
    batch = one_batch(store, weight_attr="edge_weight")
    out = model(batch)
    nodes, edges, weights, n_id, batch_size, other, rest = model.network.seen
    assert model.network.scale == 3
    assert nodes is batch.x
    assert edges is batch.edge_index
    assert n_id is batch.n_id
    assert (batch_size, other, rest) == (SEEDS, None, {})
    torch.testing.assert_close(weights, batch.edge_values("edge_weight").only)
    torch.testing.assert_close(out, model.network.linear(batch.x[:SEEDS]))


def test_the_weights_of_a_sampler_multiply_those_of_the_store(store, named):
    model = build(named("Seen"))
    batch = one_batch(store, sampling={"kind": "ladies", "debias": True})
    model(batch)
    drawn = batch.edge_weight
    assert drawn is not None
    expected = drawn * batch.edge_values("edge_weight").only
    torch.testing.assert_close(model.network.seen[2], expected)


def test_a_parameter_batch_gets_the_batch_of_pyg(store, named):
    model, batch = build(named("OfBatch")), one_batch(store)
    expected = model.network.conv(batch.x, batch.edge_index)[:SEEDS]
    torch.testing.assert_close(model(batch), expected)
    seen, whole = model.network.seen, batch.to_pyg()
    assert seen.keys() == whole.keys()
    assert torch.equal(seen.edge_attr, whole.edge_attr)


def test_types_without_features_have_an_embedding(typed_store, named):
    inputs = TypedInputs.of(typed_store, "paper")
    model = build(named("OfTypes"), inputs)
    batch = one_batch(typed_store, ("paper", torch.arange(SEEDS)))
    out = model(batch)
    assert out.shape == (SEEDS, CLASSES)
    assert model.network.seen == batch.num_sampled_nodes_dict
    (name, table), *others = sparse_parameters(model).items()
    assert others == []
    assert table.shape == (typed_store.nodes("topic").num_nodes, WIDTH)
    x = {of: rows.float() for of, rows in batch.x_dict.items()}
    x["topic"] = table[batch.n_id_dict["topic"]]
    expected = model.network(x, batch.edge_index_dict, None)["paper"][:SEEDS]
    torch.testing.assert_close(out, expected)
    out.sum().backward()
    assert name.startswith("embeddings.")
    assert table.grad is None or table.grad.is_sparse
    assert set(inputs.edge_dims) == {WRITES, CITES, ABOUT}


def test_a_batch_without_seeds_depends_on_every_parameter(store, named):
    model = build(named("OfBatch"))
    with lsm.NeighborLoader(store, [4, 3], torch.arange(1), 1, world_size=2) as loader:
        batch = next(iter(loader))
    assert batch.batch_size == 0
    out = model(batch)
    assert out.shape == (0, CLASSES)
    out.sum().backward()
    assert all(torch.equal(each.grad, torch.zeros_like(each)) for each in model.parameters())


class Wider(Seen):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels + 1)


class Lazy(Seen):
    def __init__(self, out_channels):
        super().__init__(1, out_channels)
        self.conv = SAGEConv(-1, out_channels)


class Demanding(Seen):
    def forward(self, x, edge_index, edge_type):
        return x


class Empty(Seen):
    def forward(self, x):
        return x


class Failing(Seen):
    def forward(self, x, edge_index):
        return x.nothing


@pytest.mark.parametrize(
    ("kind", "args", "message"),
    [
        ("Absent", {}, "model.name: cannot import own_.*: AttributeError: .*Absent"),
        ("DIM", {}, "expected a class of torch.nn.Module"),
        ("Seen", {"depth": 2}, r"model\.args: .*depth=2\): TypeError: .*depth"),
        ("Lazy", {}, "lazy parameters; take the width"),
        ("Demanding", {}, r"forward\(\) takes edge_type, expected among edge_weight"),
        ("Empty", {}, r"forward\(\) takes 1 parameter"),
    ],
)
def test_a_class_that_does_not_fit_is_named(named, kind, args, message):
    with pytest.raises(ValueError, match=message) as caught:
        build(named(kind), **args)
    assert "\n" not in str(caught.value)


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"cannot import nowhere\.to\.be:Found: Module"):
        build("nowhere.to.be:Found")


def test_an_output_of_another_shape_is_named(store, named):
    with pytest.raises(ValueError, match=r"expected outputs \[n, 4\], the 20 seeds first, got"):
        build(named("Wider"))(one_batch(store))


def test_an_error_of_the_module_has_its_place(store, named):
    with pytest.raises(RuntimeError, match=r"AttributeError: .*nothing.*test_own_models\.py:\d+"):
        build(named("Failing"))(one_batch(store))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "sage"}, "model.name: expected graphsage, .*, or package.module:Class, got"),
        ({"args": {"a": 1}}, "model.args: expected none with model.name=graphsage"),
        ({"name": "a:B", "heads": 2}, "model.heads: a:B does not take it; set model.args.heads"),
    ],
)
def test_options_that_do_not_fit_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        ModelOptions(**options)


def test_references_are_those_of_pyg():
    """The names stand for PyG's own classes."""
    assert isinstance(build("torch_geometric.nn:GIN").network, GIN)
    assert isinstance(build("torch_geometric.nn:GAT").network, GAT)
