"""Arrays by type become a store; the carried graph of Debian has the counts of its page."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

import lsm
from lsm.cli.data import app
from lsm.data.convert.npy import convert_npy
from lsm.data.verify import verify_store
from support.typed_graphs import WRITES, typed_graph

CARRIED = Path(__file__).parents[1] / "datasets/debian"

TOO_LARGE = np.uint64(2**63)  # for int64


def save(folder, arrays):
    folder.mkdir(parents=True)
    for name, array in arrays.items():
        if array is not None:
            np.save(folder / f"{name}.npy", array.numpy())


@pytest.fixture
def source(tmp_path):
    """The files of typed_graph()."""
    data = typed_graph()
    for name in data.node_types:
        of_type = data[name]
        arrays = {
            "node_feat": of_type.get("x"),
            "node_label": of_type.get("y"),
            "node_time": of_type.get("time"),
            "train_idx": of_type.train_mask.nonzero().view(-1) if "y" in of_type else None,
            "val_mask": of_type.get("val_mask"),
            "test_mask": of_type.get("test_mask"),
        }
        save(tmp_path / "source/nodes" / name, arrays)
    (tmp_path / "source/nodes/topic/num_nodes.txt").write_text("5\n")
    names = [f"{i} é" for i in range(25)]
    lines = "\n".join(names) + "\n"
    (tmp_path / "source/nodes/author/names.txt").write_text(lines, encoding="utf-8-sig")  # a BOM
    for edge_type in data.edge_types:
        of_type = data[edge_type]
        arrays = {f"edge_{key}": of_type.get(f"edge_{key}") for key in ("index", "weight", "attr")}
        arrays["edge_time"] = of_type.get("time")
        save(tmp_path / "source/edges" / ",".join(edge_type), arrays)
    return tmp_path / "source"


def test_values_of_a_graph_of_one_type_are_kept(tmp_path):
    """The same files as from_pyg's. Labels may be floats, NaN where unknown."""
    torch.manual_seed(4)
    data = Data(x=torch.randn(50, 3), edge_index=torch.randint(50, (2, 300)))
    data.y, data.time = torch.randint(-1, 4, (50,)), torch.randint(9, (50,))
    data.train_mask = (torch.rand(50) < 0.5) & (data.y >= 0)
    data.val_mask = ~data.train_mask & (data.y >= 0)
    data.edge_weight, data.edge_attr = torch.rand(300), torch.randn(300, 2)
    data.edge_time, data.names = torch.randint(9, (300,)), [f"node {i}" for i in range(50)]
    labels = data.y.double()
    labels[data.y < 0] = torch.nan
    arrays = {
        "node_feat": data.x,
        "node_label": labels,
        "node_time": data.time,
        "train_mask": data.train_mask,
        "valid_idx": data.val_mask.nonzero().view(-1),
    }
    arrays |= {f"edge_{name}": data[f"edge_{name}"] for name in ("index", "weight", "time", "attr")}
    save(tmp_path / "source", arrays)
    (tmp_path / "source/names.txt").write_text("\n".join(data.names) + "\n")
    store = convert_npy(tmp_path / "source", tmp_path / "store")
    expected = lsm.GraphStore.from_pyg(data, tmp_path / "pyg")
    sums = {name: file.sha256 for name, file in expected.meta.files.items()}
    assert {name: file.sha256 for name, file in store.meta.files.items()} == sums
    assert not store.is_typed
    assert verify_store(store.path) == []
    for message, change in (
        ("edge 0: expected a finite weight", {"edge_weight": torch.full((300,), -1.0)}),
        ("one of the splits val and valid", {"val_idx": torch.arange(0)}),
    ):
        save(tmp_path / message, arrays | change)
        with pytest.raises(ValueError, match=message):
            convert_npy(tmp_path / message, tmp_path / "other")


def test_values_without_features_are_for_embeddings(tmp_path):
    arrays = {"edge_index": torch.randint(50, (2, 300)), "edge_weight": torch.rand(300)}
    save(tmp_path / "source", arrays)
    for size in (False, True):
        if size:
            (tmp_path / "source/num_nodes.txt").write_text("50\n")
        with pytest.raises(FileNotFoundError, match=r"node_feat\.npy: missing; a graph without"):
            convert_npy(tmp_path / "source", tmp_path / "store")


def test_values_without_labels_are_warned_of(tmp_path, caplog):
    arrays = {
        "edge_index": torch.randint(50, (2, 300)),
        "edge_weight": torch.rand(300),
        "node_feat": torch.randn(50, 3),
    }
    save(tmp_path / "source", arrays)
    convert_npy(tmp_path / "source", tmp_path / "store")
    assert "no node_label.npy: the store has no labels" in caplog.text
    assert "lsm train needs train nodes" in caplog.text


def test_the_store_is_that_of_pyg(source, tmp_path):
    """The same files as from_pyg's, but for the names."""
    data = typed_graph()
    data["author"].names = [f"{i} é" for i in range(25)]
    expected = lsm.GraphStore.from_pyg(data, tmp_path / "pyg")
    store = convert_npy(source, tmp_path / "store")
    assert store.meta.files == expected.meta.files
    assert verify_store(store.path) == []


def test_reversed_edges_keep_their_values(source, tmp_path):
    done = CliRunner().invoke(
        app, ["convert", "npy", str(source), "--out", str(tmp_path / "store"), "--add-reverse"]
    )
    assert "90 nodes, 940 edges, 3 and 6 types" in done.output
    store = lsm.GraphStore.open(tmp_path / "store")
    data = typed_graph()
    edges = data[WRITES].edge_index
    back = store.edges(("paper", "rev_writes", "author"))
    order = np.lexsort((np.arange(90), data["paper"].time[edges[1]].numpy(), edges[0].numpy()))
    assert torch.equal(back.topology().indices.long(), edges[1][order])
    assert torch.equal(back.weights(), data[WRITES].edge_weight[order])
    assert store.edges(("paper", "rev_cites", "paper")).has_attr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: (s / "nodes/topic/num_nodes.txt").unlink(), "num_nodes.txt: missing"),
        (lambda s: (s / "nodes/topic/num_nodes.txt").write_text("x"), "one whole number"),
        (lambda s: (s / "edges/a,b").mkdir(), "a folder SOURCE,RELATION,DESTINATION"),
        (lambda s: (s / "nodes/paper/train_mask.npy").write_bytes(b""), "remove one"),
        (lambda s: (s / "nodes/paper/node_feat.npy").write_bytes(b"text"), "not a .npy file"),
        (
            lambda s: np.save(s / "nodes/paper/train_idx.npy", np.array([1, 60])),
            "split train: node 60 does not exist",
        ),
        (
            lambda s: np.save(s / "nodes/paper/train_idx.npy", np.array([1, 4, 1])),
            "split train: node 1 is in it twice",
        ),
        (
            lambda s: np.save(s / "edges/paper,cites,paper/edge_index.npy", np.zeros((2, 0), int)),
            "has no edges",
        ),
        (
            lambda s: np.save(s / "edges/paper,cites,paper/edge_time.npy", np.zeros(3, int)),
            r"cites,paper/edge_time\.npy: expected one for each of 300 edges, got 3",
        ),
        (
            lambda s: np.save(s / "nodes/paper/node_label.npy", np.full(60, 10**9)),
            r"paper/node_label\.npy: node 0: expected a whole number",
        ),
        (
            lambda s: np.save(s / "nodes/topic/node_time.npy", np.array(3)),
            r"topic/node_time\.npy: expected a time each, \[n\], got \[\]",
        ),
        (
            lambda s: np.save(
                s / "nodes/paper/node_time.npy", np.arange(60, dtype="u8") + TOO_LARGE
            ),
            r"paper/node_time\.npy: position 0: .* below 2\^63, got 9223372036854775808",
        ),
        (
            lambda s: np.save(s / "edges/paper,cites,paper/edge_time.npy", np.full(300, TOO_LARGE)),
            r"cites,paper/edge_time\.npy: position 0: expected integers below 2\^63",
        ),
        (
            lambda s: np.save(s / "nodes/paper/node_label.npy", np.full(60, 2**64 - 1, "u8")),
            r"paper/node_label\.npy: position 0: expected integers below 2\^63",
        ),
        (
            lambda s: np.save(s / "nodes/paper/node_label.npy", np.full(60, 1e30)),
            r"paper/node_label\.npy: node 0: expected a whole number",
        ),
        (
            lambda s: shutil.copytree(s / "nodes/topic", s / "nodes/%74opic"),
            r"nodes/topic: another folder has this type",
        ),
    ],
)
def test_bad_arrays_are_named(source, tmp_path, change, message):
    change(source)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        convert_npy(source, tmp_path / "store")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda whole: whole[:-40], r"node_feat\.npy: .*truncated"),
        (lambda whole: whole[:20], r"node_feat\.npy: "),
        (lambda whole: b"1 2 3", r"node_feat\.npy: not a \.npy file; save it with numpy\.save"),
    ],
)
def test_a_damaged_array_is_told_without_words_of_pickles(source, tmp_path, content, message):
    path = source / "nodes/paper/node_feat.npy"
    path.write_bytes(content(path.read_bytes()))
    with pytest.raises(ValueError, match=message) as caught:
        convert_npy(source, tmp_path / "out")
    assert "pickle" not in str(caught.value)


def test_reversed_edges_replace_none(source, tmp_path):
    shutil.copytree(source / "edges/author,writes,paper", source / "edges/paper,rev_writes,author")
    np.save(
        source / "edges/paper,rev_writes,author/edge_index.npy", np.zeros((2, 90), dtype=np.int64)
    )
    convert_npy(source, tmp_path / "store")  # a type as any other
    with pytest.raises(
        ValueError, match=r"rev_writes,author: --add-reverse .*=True\) would replace"
    ):
        convert_npy(source, tmp_path / "other", add_reverse=True)


def test_hidden_folders_are_no_types(source, tmp_path):
    (source / "nodes/.ipynb_checkpoints").mkdir()
    (source / "edges/.cache").mkdir()
    assert convert_npy(source, tmp_path / "store").node_types == ("author", "paper", "topic")


def test_features_are_warned_of_as_those_without_values(source, tmp_path, caplog):
    rows = np.ones((60, 4))
    rows[[3, 7], 1] = np.nan
    np.save(source / "nodes/paper/node_feat.npy", rows)
    convert_npy(source, tmp_path / "store")
    assert "paper/node_feat.npy: float64: the store's features take" in caplog.text
    assert "paper/node_feat.npy: rows with NaN or infinite features: 2 (first: 3, 7)" in caplog.text


@pytest.mark.parametrize("shape", ["vectors", "numbers"])
def test_attributes_of_edges_that_are_not_finite_are_warned_of(source, tmp_path, caplog, shape):
    folder = source / "edges/paper,cites,paper"
    num_edges = np.load(folder / "edge_index.npy").shape[1]
    attr = np.full((num_edges, 2) if shape == "vectors" else num_edges, 6e4, np.float16)
    np.save(folder / "edge_attr.npy", attr)
    convert_npy(source, tmp_path / "finite")
    assert "attributes" not in caplog.text  # sums may overflow
    attr[2], attr[5] = np.inf, np.nan
    np.save(folder / "edge_attr.npy", attr)
    convert_npy(source, tmp_path / "store")
    told = "edge_attr.npy: edges with NaN or infinite attributes: 2 (first: 2, 5)"
    assert told in caplog.text


@pytest.mark.parametrize("features", [np.uint16, np.int32, np.float16])
def test_rows_in_bfloat16_have_the_values_of_the_source(source, tmp_path, features):
    rows = np.arange(240).reshape(60, 4).astype(features)
    np.save(source / "nodes/paper/node_feat.npy", rows)
    store = convert_npy(source, tmp_path / "store", dtype="bfloat16")
    found = store.to_pyg()["paper"].x
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, torch.from_numpy(rows.astype(np.float32)).bfloat16())


def test_a_mask_may_have_the_name_of_ids(source, tmp_path):
    ids = np.load(source / "nodes/paper/train_idx.npy")
    mask = np.isin(np.arange(60), ids)
    np.save(source / "nodes/paper/train_idx.npy", mask)
    store = convert_npy(source, tmp_path / "store")
    assert store.nodes("paper").split("train").tolist() == np.flatnonzero(mask).tolist()


def test_names_in_another_encoding_name_the_line(source, tmp_path):
    path = source / "nodes/author/names.txt"
    path.write_bytes(path.read_bytes().replace("7 é".encode(), "7 é".encode("latin1")))
    with pytest.raises(ValueError, match=r"author/names\.txt: line 8: expected text in UTF-8, got"):
        convert_npy(source, tmp_path / "store")


def test_arrays_with_unknown_names_are_warned_of(source, tmp_path, caplog):
    np.save(source / "nodes/paper/node_year.npy", np.zeros(60))
    convert_npy(source, tmp_path / "store")
    assert "nodes/paper: not converted: node_year.npy: unknown names" in caplog.text


@pytest.fixture(scope="module")
def debian(tmp_path_factory):
    folder = tmp_path_factory.mktemp("debian")
    shutil.unpack_archive(CARRIED / "debian.tar.xz", folder)
    return folder / "debian"


def test_the_carried_graph_has_the_counts_of_its_page(debian, tmp_path):
    store = convert_npy(debian, tmp_path / "store")
    rows = re.findall(
        r"^\| (\w+) \| (?:\w+ \| )?([\d,]+) \|", (CARRIED / "README.md").read_text(), re.M
    )
    counts = {name: int(count.replace(",", "")) for name, count in rows}
    found = {name: store.nodes(name).num_nodes for name in store.node_types}
    found |= {each[1]: store.edges(each).num_edges for each in store.edge_types}
    assert found == counts
    packages = store.nodes("package")
    assert (packages.known_features.dim, packages.known_features.dtype) == (256, "int8")
    assert (
        packages.num_classes == 58 == len(json.loads((debian / "meta.json").read_text())["classes"])
    )
    assert sum(len(packages.split(split)) for split in packages.splits) == packages.num_nodes


def test_no_source_of_the_carried_graph_is_in_two_splits(debian):
    packages, sources = np.load(debian / "edges/package,built_from,source/edge_index.npy")
    assert (packages == np.arange(len(packages))).all()
    seen: set[int] = set()
    for split in ("train", "val", "test"):
        of_split = set(sources[np.load(debian / f"nodes/package/{split}_idx.npy")].tolist())
        assert not of_split & seen
        seen |= of_split
