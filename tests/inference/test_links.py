"""The rows of a run of links aggregate over no edge of validation and test."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import lsm
from lsm.train.trainer import train
from support.training import config

WRITES, REV_WRITES = ("author", "writes", "paper"), ("paper", "rev_writes", "author")
NUM_NODES = 300


def without(edge_index, *splits):
    """``edge_index`` [2, e] without the pairs of ``splits``, in either direction."""
    hidden = {pair for split in splits for pair in map(tuple, split.t().tolist())}
    keep = [(a, b) not in hidden and (b, a) not in hidden for a, b in edge_index.t().tolist()]
    return edge_index[:, torch.tensor(keep)]


def settings(store, run, *more):
    hops = "sampler.num_neighbors=[4, 4]"
    links = ("train.task=link", "links.eval_candidates=50", "train.epochs=1", hops)
    return config(store.path, run, *links, *more)


def full_batch(store, seeds):
    with lsm.NeighborLoader(store, [-1, -1], seeds, batch_size=NUM_NODES) as loader:
        return next(iter(loader))


def close(found, expected):
    return np.abs(np.load(found) - expected.numpy()).max() <= 1e-5 * expected.abs().max()


@pytest.fixture(scope="module")
def both_ways(tmp_path_factory):
    """A store with each edge in both directions, its splits and its data."""
    folder = tmp_path_factory.mktemp("links")
    draw = torch.Generator().manual_seed(0)
    ends = torch.randint(NUM_NODES, (2, 1500), generator=draw)
    ends = torch.cat((ends, ends.flip(0)), 1)
    data = Data(x=torch.randn(NUM_NODES, 8, generator=draw), edge_index=ends)
    store = lsm.GraphStore.from_pyg(data, folder / "g")
    return store, data


@pytest.mark.parametrize(
    ("rule", "route", "hidden"),
    [
        ("train", "intervals", ("valid", "test")),
        ("train", "gather", ("valid", "test")),
        ("earlier", "intervals", ("test",)),
        ("all", "intervals", ()),
    ],
)
def test_rows_of_links_see_their_message_graph(both_ways, tmp_path, rule, route, hidden):
    store, data = both_ways
    splits = lsm.LinkSplits.make(store, tmp_path / "s", valid=0.2, test=0.2, message_edges=rule)
    run, out = tmp_path / "run", tmp_path / "out"
    train(settings(store, run, f"data.links={splits.path}", "model.hidden_dim=12"))
    summary = lsm.predict(run, None, out, route=route, progress=False)
    assert sorted(each.name for each in out.iterdir()) == ["embeddings.npy", "inference.json"]
    assert summary["outputs"]["embeddings"]["shape"] == [NUM_NODES, 12]
    seen = without(data.edge_index, *(splits.edges(name) for name in hidden))
    assert (seen.size(1) < data.edge_index.size(1)) == bool(hidden)
    graph = lsm.GraphStore.from_pyg(Data(x=data.x, edge_index=seen), tmp_path / "seen")
    with torch.no_grad():
        expected = lsm.load_model(run).network(full_batch(graph, torch.arange(NUM_NODES)))
    assert close(out / "embeddings.npy", expected)


@pytest.mark.parametrize("name", ["rsage", "rgat"])
def test_rows_of_both_types_see_their_message_graph(tmp_path, name):
    draw = torch.Generator().manual_seed(1)
    data, ends = HeteroData(), torch.randint(80, (2, 600), generator=draw)
    data["author"].x = torch.randn(80, 5, generator=draw)
    data["paper"].x = torch.randn(90, 7, generator=draw)
    for each, both in ((WRITES, ends), (REV_WRITES, ends.flip(0))):
        data[each].edge_index, data[each].edge_attr = both, ends.sum(0).float()[:, None] / 80
    data["topic"].x = torch.randn(3, 2)
    store = lsm.GraphStore.from_pyg(data, tmp_path / "g")
    splits = lsm.LinkSplits.make(store, edge_type=WRITES, valid=0.2, test=0.2)
    run = tmp_path / "run"
    train(settings(store, run, f"model.name={name}", "model.hidden_dim=12", "links.out_dim=9"))
    hidden = {tuple(pair) for part in ("valid", "test") for pair in splits.edges(part).t().tolist()}
    keep = torch.tensor([tuple(pair) not in hidden for pair in ends.t().tolist()])
    for each in (WRITES, REV_WRITES):
        data[each].edge_index = data[each].edge_index[:, keep]
        data[each].edge_attr = data[each].edge_attr[keep]
    graph = lsm.GraphStore.from_pyg(data, tmp_path / "seen")
    for node_type in ("author", "paper"):
        out = tmp_path / node_type
        route = "intervals" if name == "rsage" else "gather"  # rgat takes the attributes
        lsm.predict(run, None, out, node_type=node_type, route=route, progress=False)
        ids = torch.arange(graph.nodes(node_type).num_nodes)
        with torch.no_grad():
            network = lsm.load_model(run).network
            expected = network.outputs(full_batch(graph, (node_type, ids)), (node_type,))
        assert close(out / node_type / "embeddings.npy", expected[node_type])
        assert expected[node_type].size(1) == 9
    with pytest.raises(ValueError, match="--node-type: expected paper or author, got topic"):
        lsm.predict(run, None, tmp_path / "bad", node_type="topic")
    assert not (tmp_path / "bad").exists()


def test_links_have_no_scores_of_nodes(both_ways, tmp_path):
    store, _ = both_ways
    lsm.LinkSplits.make(store, force=True)
    train(settings(store, tmp_path / "run"))
    for name in ("scores", "predictions"):
        with pytest.raises(ValueError, match=r"a model of links .* give --outputs embeddings"):
            lsm.predict(tmp_path / "run", None, tmp_path / "out", outputs=[name])
    with pytest.raises(ValueError, match="give its run's directory"):
        lsm.predict(lsm.load_model(tmp_path / "run"), store, tmp_path / "out")
    assert not (tmp_path / "out").exists()
