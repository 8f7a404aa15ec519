"""Embeddings of a run are the features of a network, with the losses of a store that holds them."""

import json

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import lsm
from lsm.data.info import describe
from lsm.data.triples.convert import convert_triples
from lsm.embed import open_run
from lsm.embed.trainer import train as train_embeddings
from lsm.run.record import STARTS_NAME
from lsm.train.trainer import train
from support import triples
from support.training import config, losses

NUM_NODES = 240
DOT = ("embed.model=dot", "embed.partitions=4", "embed.buffer=3", "embed.dim=12")


def graph(*, named):
    """A graph whose neighbours are near one another in a ring, in which classes are arcs."""
    draw = np.random.default_rng(0)
    sources = np.concatenate((np.arange(NUM_NODES), draw.integers(NUM_NODES, size=1400)))
    destinations = (sources + draw.integers(1, 6, size=len(sources))) % NUM_NODES
    order = draw.permutation(NUM_NODES)
    data = Data(edge_index=torch.from_numpy(np.stack((order[sources], order[destinations]))))
    data.y = torch.from_numpy(np.argsort(order) * 4 // NUM_NODES)
    role = torch.from_numpy(draw.integers(4, size=NUM_NODES))
    data.train_mask, data.val_mask, data.test_mask = role < 2, role == 2, role == 3
    data.num_nodes = NUM_NODES
    if named:
        data.names = [f"node {number * 7 % NUM_NODES}" for number in range(NUM_NODES)]
    return data


def embed(data, folder, *more, num_edges=None):
    """A finished run on the edges of ``data``."""
    names = getattr(data, "names", None) or [str(number) for number in range(NUM_NODES)]
    pairs = data.edge_index[:, :num_edges].t().tolist()
    folder.mkdir()
    source = folder / "edges.tsv"
    source.write_text("".join(f"{names[head]}\t{names[tail]}\n" for head, tail in pairs))
    convert_triples(source, folder / "triples", progress=False)
    train_embeddings(triples.config(folder / "triples", folder / "run", *DOT, *more))
    return folder / "run"


@pytest.fixture(scope="module", params=[False, True], ids=["ids", "names"])
def graphs(request, tmp_path_factory):
    """A store with other features, a store with the embeddings as its own, and the run."""
    folder = tmp_path_factory.mktemp("graphs")
    data = graph(named=request.param)
    run = embed(data, folder / "embed")
    keys = data.names if request.param else [str(number) for number in range(NUM_NODES)]
    data.x = torch.full((NUM_NODES, 3), torch.nan)
    given = lsm.GraphStore.from_pyg(data, folder / "given")
    data.x = open_run(run).entities(keys)
    own = lsm.GraphStore.from_pyg(data, folder / "own")
    return given, own, run


def test_a_graph_without_features_has_no_types_either(graphs, tmp_path):
    """Also where its store names them. It trains as one with features of its own."""
    _, own, run = graphs
    data = own.to_pyg()
    del data.x
    bare = lsm.GraphStore.from_pyg(data, tmp_path / "bare")
    assert not bare.is_typed
    assert "no features" in repr(bare)
    common = ("train.epochs=1", "storage.engine=posix")
    train(config(own.path, tmp_path / "own", *common))
    train(config(bare.path, tmp_path / "run", *common, f"data.features={run}"))
    assert losses(tmp_path / "run") == losses(tmp_path / "own")
    lsm.predict(tmp_path / "run", None, tmp_path / "rows", progress=False)
    assert describe(bare.path)["num_nodes"] == NUM_NODES


@pytest.mark.parametrize(
    "options",
    [
        ("storage.engine=posix", "cache.policy=none"),
        ("storage.engine=memory", "cache.policy=none"),
        ("storage.engine=io_uring", "cache.policy=lookahead", "cache.bytes=4KiB"),
        (),
    ],
    ids=str,
)
def test_losses_are_those_of_a_store_with_the_embeddings(graphs, tmp_path, options):
    given, own, run = graphs
    summary = train(
        config(given.path, tmp_path / "given", f"data.features={run}", "train.epochs=4", *options)
    )
    expected = train(config(own.path, tmp_path / "own", "train.epochs=4"))
    assert losses(tmp_path / "given") == losses(tmp_path / "own")
    assert summary["test_accuracy"] == expected["test_accuracy"]
    assert summary["test_accuracy"] > 0.4


def test_a_run_of_it_opens_predicts_and_continues(graphs, tmp_path):
    given, own, run = graphs
    for name, store, options in (("given", given, (f"data.features={run}",)), ("own", own, ())):
        train(config(store.path, tmp_path / name, *options))
        lsm.predict(tmp_path / name, None, tmp_path / f"{name}-intervals", route="intervals")
        lsm.predict(tmp_path / name, None, tmp_path / f"{name}-gather", route="gather")
    for route in ("intervals", "gather"):
        found, expected = (
            np.load(tmp_path / f"{name}-{route}" / "embeddings.npy") for name in ("given", "own")
        )
        assert np.array_equal(found, expected)
    weights = lsm.load_model(tmp_path / "given").state_dict()
    for name, value in lsm.load_model(tmp_path / "own").state_dict().items():
        assert torch.equal(weights[name], value)
    train(config(given.path, tmp_path / "given", f"data.features={run}", "train.epochs=3"))
    train(config(own.path, tmp_path / "own", "train.epochs=3"))
    assert losses(tmp_path / "given") == losses(tmp_path / "own")


def test_types_without_features_take_their_entities(tmp_path):
    """Of a run whose entities are of two types, one of which has features of its own."""
    data, draw = HeteroData(), torch.Generator().manual_seed(0)
    plain = graph(named=True)
    pairs = plain.edge_index % 120
    data["item"].num_nodes = 120
    data["item"].names = [f"item {number}" for number in range(120)]
    data["item"].y = torch.arange(120) * 3 // 120
    role = torch.randint(3, (120,), generator=draw)
    data["item"].train_mask, data["item"].val_mask = role == 0, role == 1
    data["item"].test_mask = role == 2
    data["user"].names = [f"user {number}" for number in range(120)]
    data["user"].x = torch.randn(120, 5, generator=draw)
    data["user", "likes", "item"].edge_index = pairs
    data["item", "rev_likes", "user"].edge_index = pairs.flip(0)
    joined = Data(edge_index=pairs + torch.tensor([[120], [0]]))
    joined.names = data["item"].names + data["user"].names
    run = embed(joined, tmp_path / "embed")
    given = lsm.GraphStore.from_pyg(data, tmp_path / "given")
    data["item"].x = open_run(run).entities(data["item"].names)
    own = lsm.GraphStore.from_pyg(data, tmp_path / "own")
    options = ("model.name=rsage", "storage.engine=posix")
    cache = ("cache.policy=lookahead", "cache.bytes=4KiB")
    train(config(given.path, tmp_path / "a", f"data.features={run}", *options, *cache))
    train(config(own.path, tmp_path / "b", *options, "cache.policy=none"))
    assert losses(tmp_path / "a") == losses(tmp_path / "b")


def test_other_embeddings_are_refused(graphs, tmp_path):
    given, _, run = graphs
    embeddings = tmp_path / "again"
    data = graph(named=given.nodes().has_names)
    again = embed(data, embeddings, "train.seed=5")
    train(config(given.path, tmp_path / "run", f"data.features={run}"))
    with pytest.raises(ValueError, match=r"data\.features \(") as caught:
        train(config(given.path, tmp_path / "run", f"data.features={again}", "train.epochs=3"))
    assert "data.path" not in str(caught.value)
    text = (tmp_path / "run" / "config.yaml").read_text()
    (tmp_path / "run" / "config.yaml").write_text(text.replace(str(run), str(again)))
    with pytest.raises(
        ValueError, match=r"is not the store that .*; or data\.features have, as by"
    ):
        lsm.load_model(tmp_path / "run")


BAD = {
    "missing": ("nothing", "data.features: .*nothing: no run of `lsm embed train`"),
    "another number": ("smaller", "has 1?[0-9]?[0-9] entities, and .* 240 nodes"),
    "other names": ("renamed", "is of another graph, and a node has no embedding: 'node 0'"),
    "unfinished": ("unfinished", "the run has not finished"),
    "state in rows": ("row_adagrad", "train with embed.optimizer=adagrad"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_run_that_does_not_fit_is_named(tmp_path, case):
    kind, message = BAD[case]
    data = graph(named=True)
    path = tmp_path / kind
    if kind != "nothing":
        made = graph(named=True)
        if kind == "renamed":
            made.names = [f"{name}?" for name in made.names]
        more = ("embed.optimizer=row_adagrad",) if kind == "row_adagrad" else ()
        path = embed(made, path, *more, num_edges=60 if kind == "smaller" else None)
    if kind == "unfinished":
        record = json.loads((path / STARTS_NAME).read_text())
        record["starts"][-1]["ended"] = None
        (path / STARTS_NAME).write_text(json.dumps(record))
    data.x = torch.zeros(NUM_NODES, 3)
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train(config(store.path, tmp_path / "out", f"data.features={path}"))
    assert not (tmp_path / "out" / "config.yaml").exists()
