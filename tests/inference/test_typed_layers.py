"""Own models of graphs with types give the rows of PyG's forward pass over the whole graph."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, HeteroConv, HGTConv, SAGEConv
from torch_geometric.transforms import ToUndirected

import lsm
from lsm.inference import driver, gather
from lsm.nn.options import ModelOptions
from lsm.nn.own_models import build_own_model
from lsm.nn.typed_models import TypedInputs
from lsm.train.trainer import train
from support.gather_blocks import small_blocks
from support.training import config
from support.typed_graphs import ABOUT, CITES, WRITES, typed_graph

WIDTH, CLASSES = 8, 3
RARELY = ("topic", "rarely", "paper")
RELATIVE = 1e-5  # float32 sums in another order
NETWORKS = Path(__file__).with_name("own_typed_networks.py")


def untimed(**sizes):
    """Topics have no features, a type of edges is that of one, and some nodes have no edges."""
    data = typed_graph(seed=5, **sizes)
    del data["paper"].time, data[ABOUT].time, data[WRITES].edge_weight, data[CITES].edge_attr
    data["paper"].y = data["paper"].y.clamp(0)
    data[RARELY].edge_index = torch.tensor([[1], [7]])
    return data


@pytest.fixture(scope="module")
def data():
    return untimed(papers=400, authors=80, topics=9)


@pytest.fixture(scope="module")
def store(data, tmp_path_factory):
    return lsm.GraphStore.from_pyg(data, tmp_path_factory.mktemp("own") / "store")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    small_blocks(monkeypatch, 64)
    monkeypatch.setattr(sys, "path", [str(NETWORKS.parent), *sys.path])


def build(store, name):
    torch.manual_seed(0)
    options = ModelOptions(name=f"{NETWORKS.stem}:{name}", hidden_dim=WIDTH)
    return build_own_model(options, TypedInputs.of(store, "paper"), CLASSES, 2).eval()


def predict(made, store, out, **options):
    summary = lsm.predict(made, store, out, progress=False, **options)
    found = {name: np.load(each["file"]) for name, each in summary["outputs"].items()}
    return summary, found


def close(found, expected):
    expected = expected.detach()
    return (torch.from_numpy(found) - expected).abs().max() <= RELATIVE * expected.abs().max()


def inputs(data, model=None):
    """The rows that PyG's forward takes."""
    x = {name: data[name].x.float() for name in data.node_types if "x" in data[name]}
    return x if model is None else x | {"topic": model.embeddings["topic"].weight}


@pytest.mark.parametrize("name", ["WithSkips", "Attention"])
def test_rows_are_those_of_the_whole_graph(name, data, store, tmp_path, monkeypatch):
    model = build(store, name)
    with torch.no_grad():
        expected = model.network(inputs(data, model), data.edge_index_dict)
    summary, found = predict(model, store, tmp_path / "out", num_threads=3)
    assert summary["route"] == "gather"
    assert summary["node_type"] == "paper"
    assert close(found["scores"], expected)
    assert found["embeddings"].shape == (400, WIDTH)
    monkeypatch.setattr(driver, "_own_bytes", lambda: 0)
    for number, memory in enumerate((40_000, 70_000, 1 << 30)):
        out = tmp_path / f"memory{number}"
        _, again = predict(model, store, out, num_threads=1, memory_bytes=memory)
        for key, rows in found.items():
            assert rows.tobytes() == again[key].tobytes(), key
    with pytest.raises(ValueError, match=r"--memory-bytes: expected at least"):
        predict(model, store, tmp_path / "little", memory_bytes=1000)


def test_some_nodes_have_the_same_rows(data, store, tmp_path):
    model, ids = build(store, "WithSkips"), torch.tensor([3, 77, 399])
    _, found = predict(model, store, tmp_path / "out", nodes=ids, route="gather")
    with torch.no_grad():
        expected = model.network(inputs(data, model), data.edge_index_dict)
    assert close(found["scores"], expected[ids])


def test_a_layer_computes_only_types_that_later_layers_need(tmp_path, monkeypatch):
    data, run, stages = untimed(), gather.GatherStage.run, []
    del data[RARELY]  # which no other edges of topics replace
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store")

    def watched(stage, *args):
        stages.append(stage.name)
        return run(stage, *args)

    monkeypatch.setattr(gather.GatherStage, "run", watched)
    model = build(store, "WithSkips")
    _, found = predict(model, store, tmp_path / "out")
    assert stages == ["layer 1 of paper", "layer 1 of author", "layer 2 of paper"]
    with torch.no_grad():
        assert close(found["scores"], model.network(inputs(data, model), data.edge_index_dict))


def test_a_layer_gets_every_type_as_in_a_batch(store, tmp_path):
    model, seen = build(store, "WithSkips"), set()
    whole = model.network.inference_per_layer

    def watched(layer, x_dict, edge_index_dict, batch_size_dict):
        ((name, size),) = batch_size_dict.items()
        assert [*x_dict] == ["paper", "author", "topic"]
        assert {*edge_index_dict} == {WRITES, CITES, ABOUT, RARELY}
        for each, edges in edge_index_dict.items():
            assert edges.shape[1] == 0 or (each[2] == name and edges[1].max() < size)
            assert edges.shape[1] == 0 or edges[0].max() < len(x_dict[each[0]])
        seen.add((layer, name, edge_index_dict[RARELY].shape[1]))
        return whole(layer, x_dict, edge_index_dict, batch_size_dict)

    model.network.inference_per_layer = watched
    predict(model, store, tmp_path / "out")
    assert {(0, "topic", 0), (0, "author", 0), (1, "paper", 0), (1, "paper", 1)} < seen


def sage(widths, out, *edge_types):
    return {each: SAGEConv((widths[each[0]], widths[each[2]]), out) for each in edge_types}


def test_a_list_of_convolutions_is_a_model(data, store, tmp_path):
    torch.manual_seed(0)
    widths = {"paper": 7, "author": 3}
    back = ("paper", "cites", "paper")
    first = HeteroConv({**sage(widths, WIDTH, WRITES), CITES: GATConv(7, WIDTH)}, aggr="mean")
    last = HeteroConv({back: SAGEConv(WIDTH, CLASSES, aggr="max")})
    options = {"node_type": "paper", "outputs": ["scores"]}
    _, found = predict(nn.ModuleList([first, last]), store, tmp_path / "out", **options)
    edges = data.edge_index_dict
    with torch.no_grad():
        expected = last(first(inputs(data), edges), edges)["paper"]
    assert close(found["scores"], expected)


def test_layers_may_be_functions_and_take_all_types_at_once(tmp_path):
    data = untimed()
    data["topic"].x = torch.randn(5, 4)
    del data[RARELY]
    data = ToUndirected()(data)
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store")
    widths = {"paper": 7, "author": 3, "topic": 4}
    torch.manual_seed(0)
    first = HGTConv(widths, WIDTH, data.metadata(), heads=2)
    last = HGTConv(WIDTH, WIDTH, data.metadata(), heads=2)

    def hidden(x_dict, edge_index_dict):
        return {name: rows.relu() for name, rows in first(x_dict, edge_index_dict).items()}

    options = {"node_type": "author", "outputs": ["scores"]}
    _, found = predict([hidden, last], store, tmp_path / "out", **options)
    edges = data.edge_index_dict
    with torch.no_grad():
        expected = last(hidden(inputs(data), edges), edges)["author"]
    assert close(found["scores"], expected)


def test_a_type_without_rows_is_an_error_as_it_is_in_pyg(data, store, tmp_path):
    """No edges come into authors, so the first layer drops them."""
    widths = {"paper": 7, "author": 3}
    first = HeteroConv(sage(widths, WIDTH, WRITES, CITES))
    last = HeteroConv(sage(dict.fromkeys(widths, WIDTH), CLASSES, WRITES))
    with pytest.raises(AttributeError):
        last(first(inputs(data), data.edge_index_dict), data.edge_index_dict)
    message = r"layer 2 of paper: .*; there are none of author, topic"
    with pytest.raises(ValueError, match=message) as told:
        predict([first, last], store, tmp_path / "out", node_type="paper")
    assert "torch_geometric" not in str(told.value)  # no place in files that PyG removes


def bad_models():
    paper = {"paper": 7, "author": 3}
    of_paper = {"node_type": "paper"}
    one = [HeteroConv(sage(paper, CLASSES, WRITES))]
    yield one, {}, "--node-type: expected one of paper, author, topic"
    yield one, {"node_type": "author"}, "layer 1 gives no rows of author, which outputs need"
    yield one, {"node_type": "topic"}, "topic has no features, and a list of layers no rows"
    yield one, of_paper | {"route": "intervals"}, "layer 1 of paper .* use --route gather"
    wide = [HeteroConv(sage({"paper": 7, "author": 4}, CLASSES, WRITES))]
    yield wide, of_paper, r"layer 1 of paper: .*shapes.*; it takes rows of paper \[n, 7\], author"
    degrees = [HeteroConv({CITES: GCNConv(7, CLASSES)})]
    yield degrees, of_paper, "layer 1 of paper depends on more than the in-edges of a node"
    authors = [lambda x, _: x | {"author": x["author"] + x["paper"].sum()}, *one]
    yield authors, of_paper, "layer 1 of author depends on more than the in-edges of a node"
    tensor = [lambda x, _: x["paper"]]
    yield tensor, of_paper, "layer 1 of paper: TypeError: expected a dict of rows by type"
    yield nn.Linear(7, 3), of_paper, "Linear cannot .* give it num_layers and inference_per_layer"
    yield "Whole", {}, r"inference_per_layer\(layer, x_dict, .* --route sampled takes the model"
    yield (
        "Uncut",
        {},
        r"model\.name: own_typed_networks:Uncut: layer 1 of paper: expected a row for",
    )
    yield "Wider", {}, r"model\.name: .*:Wider: layer 2 of paper: expected rows of 3 values, got 6"
    yield "Failing", {}, r"Failing: layer 1 of .*KeyError: 'nothing'.*own_typed_networks\.py:\d+"


@pytest.mark.parametrize("number", range(13))
def test_a_model_that_does_not_fit_is_named(number, store, tmp_path):
    cases = [*bad_models()]
    assert len(cases) == 13
    made, options, message = cases[number]
    made = build(store, made) if isinstance(made, str) else made
    with pytest.raises(ValueError, match=message) as caught:
        predict(made, store, tmp_path / "out", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_values_of_edges_are_refused(tmp_path):
    data = untimed()
    data[CITES].edge_attr = torch.randn(300, 2)
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store")
    with pytest.raises(ValueError, match=r"weights or attributes of edges.* --route sampled takes"):
        predict(build(store, "WithSkips"), store, tmp_path / "out")


def test_a_run_is_predicted_and_evaluated_over_all_neighbours(tmp_path):
    data = untimed()
    lsm.GraphStore.from_pyg(data, tmp_path / "store")
    name = f"model.name={NETWORKS.stem}:WithSkips"
    more = (name, "sampler.num_neighbors=[4,3]", "train.batch_size=8", "train.eval.exact=true")
    found = train(config(tmp_path / "store", tmp_path / "run", *more))
    model = lsm.load_model(tmp_path / "run")
    with torch.no_grad():
        expected = model.network(inputs(data, model), data.edge_index_dict)
    _, rows = predict(tmp_path / "run", None, tmp_path / "out")
    assert close(rows["scores"], expected)
    mask = data["paper"].test_mask
    right = (expected.argmax(1) == data["paper"].y)[mask].float().mean()
    assert found["test_accuracy"] == pytest.approx(float(right))
