"""The route ``sampled``: any model of `lsm train`, over neighbours as its test has."""

import json
import sys

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import lsm
from lsm.inference import driver
from lsm.train.trainer import train
from support.training import LSM, config, run_job
from support.typed_graphs import typed_graph

ALL = [-1, -1]


def run(path, out, **options):
    summary = lsm.predict(path, None, out, route="sampled", progress=False, **options)
    return summary, {n: np.load(each["file"]) for n, each in summary["outputs"].items()}


def close(found, expected):
    expected = np.asarray(expected)
    return np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_all_neighbours_give_the_rows_of_exact_routes(trained, tmp_path):
    _, found = run(trained, tmp_path / "sampled", num_neighbors=ALL)
    for route in ("gather", "intervals"):
        exact = lsm.predict(trained, None, tmp_path / route, route=route, progress=False)
        for name in ("embeddings", "scores"):
            assert close(found[name], np.load(exact["outputs"][name]["file"]))


def test_embeddings_have_the_columns_of_all_heads(store, tmp_path):
    train(config(store, tmp_path / "run", "model.name=gat", "train.epochs=1"))
    _, found = run(tmp_path / "run", tmp_path / "sampled", num_neighbors=ALL)
    exact = lsm.predict(tmp_path / "run", None, tmp_path / "exact", route="gather", progress=False)
    for name in ("embeddings", "scores"):
        expected = np.load(exact["outputs"][name]["file"])
        assert found[name].shape == expected.shape
        assert close(found[name], expected)


def test_all_neighbours_give_the_rows_of_exact_routes_by_type(tmp_path):
    data = typed_graph(seed=3)
    del data["paper"].time, data["paper", "about", "topic"].time
    lsm.GraphStore.from_pyg(data, tmp_path / "store")
    more = ("model.name=rsage", "sampler.num_neighbors=[4,3]", "train.epochs=1")
    train(config(tmp_path / "store", tmp_path / "run", *more, "train.batch_size=8"))
    _, found = run(tmp_path / "run", tmp_path / "sampled", num_neighbors=ALL)
    exact = lsm.predict(tmp_path / "run", None, tmp_path / "exact", progress=False)
    for name in ("embeddings", "scores"):
        assert close(found[name], np.load(exact["outputs"][name]["file"]))


def test_rows_are_those_of_the_batches_of_the_run(trained, store, tmp_path):
    summary, found = run(trained, tmp_path / "out")
    assert summary["route"] == "sampled"
    assert (summary["seed"], summary["num_neighbors"], summary["batch_size"]) == (0, [5, 3], 64)
    model = lsm.load_model(trained)
    with lsm.NeighborLoader(store, [5, 3], None, 64) as loader, torch.no_grad():
        expected = torch.cat([model(batch) for batch in loader])
    assert close(found["scores"], expected)
    assert np.array_equal(found["predictions"], found["scores"].argmax(1))


def test_memory_and_threads_change_no_bit(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "_own_bytes", lambda: 0)
    _, found = run(trained, tmp_path / "a", num_threads=3)
    _, again = run(trained, tmp_path / "b", num_threads=1, memory_bytes=1_500_000)
    for name, rows in found.items():
        assert rows.tobytes() == again[name].tobytes(), name
    _, some = run(trained, tmp_path / "some", nodes=torch.arange(64))
    assert some["scores"].tobytes() == found["scores"][:64].tobytes()  # one whole batch
    with pytest.raises(ValueError, match=r"--memory-bytes: .* batches of 64 nodes .* fewer --num"):
        run(trained, tmp_path / "c", memory_bytes=20_000)
    assert not (tmp_path / "c").exists()


def test_a_model_that_no_exact_route_takes(store, tmp_path):
    jumping = ("model.name=torch_geometric.nn:GraphSAGE", "model.args.jk=cat", "train.epochs=1")
    train(config(store, tmp_path / "run", *jumping))
    with pytest.raises(ValueError, match=r"jk='cat' .* --route sampled takes"):
        lsm.predict(tmp_path / "run", None, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    summary, found = run(tmp_path / "run", tmp_path / "out", num_neighbors=ALL)
    assert sorted(summary["outputs"]) == ["predictions", "scores"]
    data = lsm.GraphStore.open(store).to_pyg()
    with torch.no_grad():
        expected = lsm.load_model(tmp_path / "run").network(data.x, data.edge_index)
    assert close(found["scores"], expected)
    with pytest.raises(ValueError, match=r"a class of your own, has no embeddings"):
        run(tmp_path / "run", tmp_path / "more", outputs=["embeddings"])


NETWORK = """
from torch import nn
from torch_geometric.nn import HeteroConv, SAGEConv


class Network(nn.Module):
    def __init__(self, in_channels, hidden_channels, out_channels, metadata):
        super().__init__()
        self.first = HeteroConv(
            {e: SAGEConv((in_channels[e[0]], in_channels[e[2]]), hidden_channels)
             for e in metadata[1]}
        )
        self.output = nn.Linear(hidden_channels, out_channels)

    def forward(self, batch):
        return self.output(self.first(batch.x_dict, batch.edge_index_dict)["paper"])
"""


def test_an_own_model_of_types_that_takes_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "networks_of_batches.py").write_text(NETWORK)
    data = typed_graph(seed=5)
    del data["paper"].time, data["paper", "about", "topic"].time
    for name in data.node_types:
        data[name].x = torch.randn(data[name].num_nodes, 3)
    lsm.GraphStore.from_pyg(data, tmp_path / "store")
    more = ("model.name=networks_of_batches:Network", "sampler.num_neighbors=[4]")
    train(config(tmp_path / "store", tmp_path / "run", *more, "train.epochs=1"))
    with pytest.raises(ValueError, match="--route sampled takes the model of a run"):
        lsm.predict(tmp_path / "run", None, tmp_path / "out")
    _, found = run(tmp_path / "run", tmp_path / "out", num_neighbors=[-1])
    network = lsm.load_model(tmp_path / "run").network
    with torch.no_grad():
        expected = network(data)
    assert close(found["scores"], expected)


def timed(path):
    """Times are ids, and each node has one edge from a node before it and one from a later one."""
    ids = torch.arange(100)
    edges = torch.stack([torch.cat([ids[:-1], ids[1:]]), torch.cat([ids[1:], ids[:-1]])])
    x = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    data = Data(x=x, edge_index=edges, y=ids % 2, time=ids)
    for number, split in enumerate(("train", "val", "test")):
        data[f"{split}_mask"] = ids % 3 == number
    return lsm.GraphStore.from_pyg(data, path), data


def test_a_timed_run_takes_the_neighbours_of_its_time(tmp_path, caplog):
    store, data = timed(tmp_path / "store")
    more = ("sampler.time_attr=time", "sampler.num_neighbors=[2]", "train.epochs=1")
    train(config(store.path, tmp_path / "run", *more))
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="--route: the run takes the neighbours of a time"):
        lsm.predict(tmp_path / "run", None, out)
    _, found = run(tmp_path / "run", out)
    earlier = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    conv = lsm.load_model(tmp_path / "run").convs[0]
    with torch.no_grad():
        assert close(found["scores"], conv(data.x, earlier))
        lsm.predict(tmp_path / "run", None, tmp_path / "all", route="gather", progress=False)
        assert close(np.load(tmp_path / "all" / "scores.npy"), conv(data.x, data.edge_index))
    assert "exact routes those of all times" in caplog.text


def test_nodes_without_times_have_none_to_sample_at(tmp_path):
    """Times of links are those of edges, and rows are of nodes."""
    draw = torch.Generator().manual_seed(0)
    ends = torch.randint(100, (2, 600), generator=draw)
    data = Data(x=torch.randn(100, 4, generator=draw), edge_index=ends, edge_time=torch.arange(600))
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store")
    splits = lsm.LinkSplits.make(store, tmp_path / "links", order="time", valid=0.1, test=0.1)
    links = ("train.task=link", f"data.links={splits.path}", "links.eval_candidates=20")
    links += ("links.negatives=uniform", "sampler.time_attr=time", "train.epochs=1")
    train(config(store.path, tmp_path / "run", *links))
    with pytest.raises(ValueError, match=r"--route sampled: nodes of .* no times.*--route gather"):
        run(tmp_path / "run", tmp_path / "out")
    lsm.predict(tmp_path / "run", None, tmp_path / "all", route="gather", progress=False)


@pytest.fixture(scope="module")
def of_links(tmp_path_factory):
    """A run of links."""
    folder, draw = tmp_path_factory.mktemp("of_links"), torch.Generator().manual_seed(0)
    ends = torch.randint(200, (2, 900), generator=draw)
    both = torch.cat([ends, ends.flip(0)], 1)
    data = Data(x=torch.randn(200, 8, generator=draw), edge_index=both)
    store = lsm.GraphStore.from_pyg(data, folder / "store")
    splits = lsm.LinkSplits.make(store, folder / "links", valid=0.2, test=0.2)
    links = ("train.task=link", f"data.links={splits.path}", "links.eval_candidates=20")
    train(config(store.path, folder / "run", *links, "train.epochs=1"))
    return folder / "run"


def test_rows_of_links_are_sampled_from_their_message_graph(of_links, tmp_path):
    _, found = run(of_links, tmp_path / "out", num_neighbors=ALL)
    exact = lsm.predict(of_links, None, tmp_path / "exact", progress=False)
    assert close(found["embeddings"], np.load(exact["outputs"]["embeddings"]["file"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"route": "gather", "num_neighbors": [2, 2]}, "--num-neighbors: expected --route sampled"),
        ({"route": "sampled", "num_neighbors": [2]}, "--num-neighbors: expected 2 hops"),
        ({"route": "sampled", "num_neighbors": [2, -3]}, "num_neighbors: expected -1"),
    ],
)
def test_neighbours_that_do_not_fit_are_named(trained, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        lsm.predict(trained, None, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_module_without_its_run_is_named(store, trained, tmp_path):
    with pytest.raises(ValueError, match="--route: sampled takes a run"):
        lsm.predict(
            [torch.nn.Linear(1, 1)], store, tmp_path / "a", route="sampled", num_neighbors=ALL
        )
    with pytest.raises(ValueError, match="--num-neighbors: expected numbers"):
        lsm.predict(lsm.load_model(trained), store, tmp_path / "b", route="sampled")
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_ranks_write_the_same_bits(trained, tmp_path, num_ranks):
    _, alone = run(trained, tmp_path / "alone")
    more = ("--route", "sampled", "--threads", "1", "--num-neighbors", "5,3")
    done = run_job(num_ranks, LSM, "predict", trained, "--out", tmp_path / "ranks", *more)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "ranks" / "inference.json").read_text())["seed"] == 0
    for name, rows in alone.items():
        assert rows.tobytes() == np.load(tmp_path / "ranks" / f"{name}.npy").tobytes()
