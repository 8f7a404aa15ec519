"""Typed stores: damage is found and named, information and scores know the types."""

import json
import os
import re

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import lsm
from lsm.cache.scores import compute_score
from lsm.cli.data import app
from lsm.data.verify import verify_store
from support.store_files import list_again
from support.typed_graphs import ABOUT, CITES, WRITES, typed_graph

PAPERS = "nodes/paper"
CITED = "edges/paper,cites,paper"
WRITTEN = "edges/author,writes,paper"


@pytest.fixture
def store(tmp_path):
    return lsm.GraphStore.from_pyg(typed_graph(), tmp_path / "store", keep_order=True)


def edit(path, change):
    meta = json.loads((path / "meta.json").read_text())
    change(meta)
    (path / "meta.json").write_text(json.dumps(meta))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("node_types"), "node_types: Field required"),
        (lambda m: m.update(node_types={}), "node_types: "),
        (lambda m: m.update(schema_version=2), "made by a newer LSM-GNN"),
        (lambda m: m["node_types"]["paper"].update(num_nodes=-1), "node_types.paper.num_nodes"),
        (lambda m: m["node_types"]["paper"].update(num_nodes=600), "expected .* for 600 rows"),
        (
            lambda m: m["node_types"]["topic"].update(num_nodes=99),
            r"at least 800 bytes for \d+ nodes and 80 edges",
        ),
        (lambda m: m["node_types"]["paper"]["features"].update(dtype="int3"), "expected one of"),
        (lambda m: m["node_types"].pop("author"), "author is no node type"),
        (lambda m: m["edge_types"].append(m["edge_types"][0]), "is there twice"),
        (lambda m: m["edge_types"][0].update(relation="topic"), "topic is a node type, too"),
        (lambda m: m["edge_types"][0].update(relation="x"), r"author,x,paper/.* is not listed"),
        (lambda m: m["edge_types"][1].update(num_edges=400), "expected at least 1600 bytes"),
        (lambda m: m["files"].pop(f"{PAPERS}/labels.npy"), "paper/labels.npy is not listed"),
        (lambda m: m["files"].pop(f"{PAPERS}/features.bin"), "features.bin is not listed"),
        (lambda m: m["files"].update({"../x": m["files"].popitem()[1]}), "outside the store"),
    ],
)
def test_a_damaged_meta_is_one_line_with_a_remedy(store, change, message):
    edit(store.path, change)
    with pytest.raises(ValueError, match=message) as raised:
        lsm.GraphStore.open(store.path)
    assert "\n" not in str(raised.value)
    assert "meta.json: " in str(raised.value)
    assert "convert the data again" in str(raised.value)
    assert verify_store(store.path) == [str(raised.value)]


@pytest.mark.parametrize("text", ["", "{", '{"kind": "typed"', '{"kind": "typed"}', "[1]"])
def test_a_meta_that_is_none(store, text):
    (store.path / "meta.json").write_text(text)
    with pytest.raises(ValueError, match=r"meta\.json: .*; convert the data again"):
        lsm.GraphStore.open(store.path)


def test_features_of_one_type_are_missing(store):
    os.unlink(store.path / "nodes/author/features.bin")
    message = r"nodes/author/features\.bin: missing; convert the data again"
    with pytest.raises(FileNotFoundError, match=message):
        lsm.GraphStore.open(store.path)
    (problem,) = verify_store(store.path)
    assert "nodes/author/features.bin: missing" in problem


def damage(store, name, change):
    """Changes an array of the store, which meta.json then lists as it is."""
    array = np.load(store.path / name)
    array = change(array)
    np.save(store.path / name, array)
    list_again(store.path, name)


def put(place, value):
    def change(array):
        array[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (f"{WRITTEN}/indices.npy", put(3, 25), r"source ids out of range \[0, 25\): 1"),
        (f"{CITED}/indices.npy", put(3, -1), r"source ids out of range \[0, 60\): 1"),
        (f"{CITED}/indptr.npy", put(4, 900), "indptr falls at node"),
        (f"{WRITTEN}/weights.npy", put(3, -1), "weights below 0, NaN or infinite: 1"),
        (f"{WRITTEN}/weights.npy", put(slice(None), 0), "all weights are 0"),
        (
            f"{WRITTEN}/weights.npy",
            lambda a: a.astype("f8"),
            r"expected float32 \[90\], got float64",
        ),
        (f"{CITED}/attr.npy", put((7, 1), np.inf), r"NaN or infinite attributes: 1 .*: 7\)"),
        (f"{CITED}/order.npy", put(3, 4), "expected each of 0 to 299 once, and "),
        ("edges/paper,about,topic/times.npy", lambda a: a[::-1].copy(), "not in order of time"),
        (f"{PAPERS}/times.npy", lambda a: a[::-1].copy(), r"cites,paper: .* not in order of time"),
        (f"{PAPERS}/labels.npy", put(0, 3), r"labels out of range \[-1, 3\): 1"),
        (f"{PAPERS}/split/train.npy", put(0, 60), r"node ids out of range \[0, 60\): 1"),
    ],
)
def test_verify_finds_damage(store, name, change, message):
    assert verify_store(store.path) == []
    damage(store, name, change)
    problems = verify_store(store.path)
    assert any(re.search(message, problem) for problem in problems), problems


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("name", "folder"), [(f"{PAPERS}/times.npy", CITED), ("edges/paper,about,topic/times.npy", "")]
)
def test_verify_names_edges_out_of_order(store, monkeypatch, step, name, folder):
    """However many are compared at a time; times as far from each other as int64 has."""
    monkeypatch.setattr("lsm.data.verify_edges._STEP", step)
    folder = folder or name.rsplit("/", 1)[0]
    draw = np.random.default_rng(3)
    largest = np.iinfo(np.int64).max
    damage(store, name, lambda a: draw.choice([-largest, 0, largest], len(a)))
    times = np.load(store.path / name)
    if folder == CITED:
        times = times[np.load(store.path / folder / "indices.npy")]
    starts = set(np.load(store.path / folder / "indptr.npy").tolist())
    out = [k for k in range(1, len(times)) if int(times[k]) < int(times[k - 1]) and k not in starts]
    problems = [each for each in verify_store(store.path) if folder in each]
    assert len(out) > 9
    told = f"not in order of time: {len(out)} (first edges: {out[0]}, {out[1]}, "
    assert any(told in problem for problem in problems), problems


def test_verify_counts_names(store):
    path = store.path / "nodes/author/names.tsv"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    list_again(store.path, "nodes/author/names.tsv")
    (problem,) = verify_store(store.path)
    assert "names.tsv: expected 25 names, got 24" in problem


def test_a_store_without_types_has_the_same_checks(tmp_path):
    data = typed_graph()
    data = data.to_homogeneous(node_attrs=[], edge_attrs=[])
    data.x, data.edge_weight = torch.randn(90, 2), torch.rand(470)
    del data.node_type, data.edge_type
    store = lsm.GraphStore.from_pyg(data, tmp_path / "plain")
    damage(store, "topology/weights.npy", put(9, np.nan))
    (problem,) = verify_store(store.path)
    assert "topology/weights.npy: weights below 0, NaN or infinite: 1 (first edges: 9)" in problem


def test_info_shows_each_type(store):
    done = CliRunner().invoke(app, ["info", str(store.path), "--json"])
    info = json.loads(done.output)
    assert (info["kind"], info["num_nodes"], info["num_edges"]) == ("typed", 90, 470)
    papers = info["node_types"]["paper"]
    assert (papers["num_nodes"], papers["num_classes"], papers["first_id"]) == (60, 3, 0)
    assert papers["features"]["row_bytes"] == 14
    assert papers["values"] == ["times"]
    assert info["node_types"]["topic"]["features"] is None
    edges = {tuple(each["type"]): each for each in info["edge_types"]}
    assert list(edges) == [WRITES, CITES, ABOUT]
    assert edges[WRITES]["values"] == ["weights"]
    degrees = torch.bincount(typed_graph()[ABOUT].edge_index[1], minlength=5)
    assert edges[ABOUT]["in_degree"]["max"] == int(degrees.max())
    table = CliRunner().invoke(app, ["info", str(store.path)]).output
    assert "nodes paper" in table
    assert "edges paper, about, topic" in table


def test_scores_are_over_all_types(store):
    data = typed_graph()
    score = compute_score(store, "in_degree")
    expected = torch.zeros(90)
    for edge_type in data.edge_types:
        destinations = data[edge_type].edge_index[1]
        first = store.node_space.offsets[edge_type[2]]
        expected.index_add_(0, destinations + first, torch.ones(len(destinations)))
    assert torch.equal(score, expected)
    rank = compute_score(store, "reverse_pagerank")
    assert rank.sum() == pytest.approx(1, abs=1e-5)
    assert (rank[60:85] > 0).any()  # authors, in whom no walk starts
    requests = compute_score(store, "presample", num_neighbors=[-1], batch_size=1000)
    seeds = data["paper"].train_mask.nonzero().view(-1)
    expected = torch.zeros(90)
    expected[seeds] = 1  # all in one batch, with all of their neighbours
    for source, relation, destination in data.edge_types:
        if destination == "paper":
            sources, papers = data[source, relation, destination].edge_index
            expected[sources[torch.isin(papers, seeds)] + store.node_space.offsets[source]] = 1
    assert torch.equal(requests, expected)
    stored = ["in_degree", "presample", "reverse_pagerank"]
    assert lsm.GraphStore.open(store.path).scores == stored
    assert verify_store(store.path) == []


def test_use_that_takes_one_type_says_so(store):
    with pytest.raises(ValueError, match=r"several types \(nodes: paper, author, topic; 3"):
        lsm.open_features(store)
