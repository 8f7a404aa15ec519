"""Conversions of graphs that lack labels or splits, or have more than a store holds."""

import logging

import numpy as np
import pytest
import torch

from lsm.data.convert.igb import convert_igb
from lsm.data.convert.npy import convert_npy
from lsm.data.verify import verify_store
from lsm.loader.neighbor_loader import NeighborLoader
from support.command import lsm
from support.store_files import SPLIT_FILES, feature_bytes, random_graph, save_npy


def convert(tmp_path, arrays, **options):
    return convert_npy(save_npy(tmp_path / "graph", arrays), tmp_path / "out", **options)


def warnings_of(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


@pytest.fixture
def train(monkeypatch, capsys, tmp_path):
    """The error of `lsm train` on the store at tmp_path / "out"."""

    def run():
        options = (f"data.path={tmp_path / 'out'}", f"run.dir={tmp_path / 'run'}")
        assert lsm(monkeypatch, "train", "base", *options) == 1
        return capsys.readouterr().err

    return run


def test_a_complete_graph_gives_no_warning(tmp_path, caplog):
    convert(tmp_path, random_graph())
    assert warnings_of(caplog) == []


def test_no_labels_and_no_splits(tmp_path, caplog, train):
    arrays = random_graph()
    kept = {name: arrays[name] for name in ("edge_index", "node_feat")}
    store = convert(tmp_path, kept)
    of_labels, of_splits = warnings_of(caplog)
    assert "no node_label.npy" in of_labels
    assert "no train_idx.npy, val_idx.npy, test_idx.npy (nor masks)" in of_splits
    assert store.num_classes == 0
    assert verify_store(store.path) == []
    with NeighborLoader(store, [-1], None, 150) as loader:
        batches = list(loader)
    assert [batch.y for batch in batches] == [None, None]
    for batch in batches:
        assert (batch.x.numpy() == arrays["node_feat"][batch.n_id]).all()
    assert "has no labels, and lsm train classifies nodes; convert" in train()


def test_splits_of_a_graph_without_labels_are_kept(tmp_path):
    arrays = random_graph()
    del arrays["node_label"]
    store = convert(tmp_path, arrays)
    for split, file in SPLIT_FILES.items():
        assert (store.split(split).numpy() == arrays[file]).all()
    assert verify_store(store.path) == []


@pytest.mark.parametrize("missing", ["train", "val", "test"])
def test_one_missing_split(tmp_path, caplog, missing, train):
    arrays = random_graph()
    del arrays[f"{missing}_idx"]
    store = convert(tmp_path, arrays)
    assert len(warnings_of(caplog)) == 1
    assert f"no {missing}_idx.npy (nor masks)" in caplog.text
    for split, file in SPLIT_FILES.items():
        assert store.split(split).tolist() == list(arrays.get(file, []))
    assert verify_store(store.path) == []
    if missing == "train":
        assert "has no training nodes; convert" in train()
    if missing == "val":
        assert "set train.select=last" in train()


def test_valid_stands_for_val(tmp_path, caplog):
    arrays = random_graph()
    arrays["valid_idx"] = arrays.pop("val_idx")
    store = convert(tmp_path, arrays)
    assert (store.split("valid").numpy() == arrays["valid_idx"]).all()
    assert warnings_of(caplog) == []
    np.save(tmp_path / "graph/val_mask.npy", np.zeros(300, bool))
    with pytest.raises(ValueError, match=r"expected one of val_mask\.npy and valid_idx\.npy"):
        convert_npy(tmp_path / "graph", tmp_path / "out", force=True)


def test_a_number_of_classes_without_labels_is_refused(tmp_path):
    arrays = random_graph()
    del arrays["node_label"]
    with pytest.raises(ValueError, match="num_classes: expected none for a graph without labels"):
        convert(tmp_path, arrays, num_classes=3)


def test_a_graph_without_features_is_sent_to_embeddings(tmp_path):
    arrays = random_graph()
    del arrays["node_feat"]
    with pytest.raises(FileNotFoundError, match="lsm data convert triples"):
        convert(tmp_path, arrays)


def test_arrays_that_are_not_converted_are_named(tmp_path, caplog):
    extra = {
        "edge_feat": np.ones(2000),
        "edge_year": np.arange(2000),
        "node_year": np.arange(300),
        "labels": np.arange(300),
    }
    convert(tmp_path, random_graph() | extra)
    of_edges, of_nodes, unknown = warnings_of(caplog)
    assert "not converted: edge_feat.npy, edge_year.npy: " in of_edges
    assert "batch.e_id" in of_edges
    assert "not converted: node_year.npy: " in of_nodes
    assert "batch.n_id" in of_nodes
    assert "not converted: labels.npy: unknown names; the converter reads edge_index" in unknown


def test_types_of_igbh_are_named(tmp_path, caplog):
    arrays = random_graph(num_nodes=60, dim=1024)
    processed = tmp_path / "tiny/processed"
    edges = {"edge_index": arrays["edge_index"].T, "edge_year": np.arange(2000)}
    save_npy(processed / "paper__cites__paper", edges)
    nodes = {"node_feat": arrays["node_feat"], "paper_id_index_mapping": np.arange(60)}
    labels = arrays["node_label"].astype(np.float32)
    save_npy(processed / "paper", nodes | {"node_label_19": labels, "node_label_2K": labels})
    (processed / "author").mkdir()
    (processed / "paper__written_by__author").mkdir()
    convert_igb(tmp_path, tmp_path / "out", size="tiny", num_nodes=60)
    of_types, of_edges = warnings_of(caplog)
    assert "not converted: author/, paper__written_by__author/: " in of_types
    assert "graphs of several types are not supported" in of_types
    assert "not converted: edge_year.npy: " in of_edges


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_eight_bytes_a_value_are_warned_of(tmp_path, caplog, dtype):
    arrays = random_graph(num_nodes=128, dim=1024)
    arrays["node_feat"] = (arrays["node_feat"] * 10).astype(dtype)
    convert(tmp_path, arrays)
    (warned,) = warnings_of(caplog)
    assert f"node_feat.npy: {np.dtype(dtype)}: the store's features take 1 MiB" in warned
    remedy = "--dtype float32 (in Python dtype='float32') makes them 512 KiB, float16 or "
    assert f"{remedy}bfloat16 256 KiB" in warned
    caplog.clear()
    convert(tmp_path, arrays, force=True, dtype="float32")
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("dtype", [None, "float16", "bfloat16"])
def test_rows_that_are_not_finite_are_counted(tmp_path, caplog, monkeypatch, dtype):
    monkeypatch.setattr("lsm.data.convert.array_file.ArrayFile.chunks.__defaults__", (37 * 4 * 50,))
    arrays = random_graph()
    bad = [3, 49, 50, 120, 121, 299]
    arrays["node_feat"][bad, 5] = [np.nan, np.inf, -np.inf, np.nan, np.nan, np.inf]
    arrays["node_feat"][7] = 60_000  # the sum of the row overflows float16, none of its values does
    store = convert(tmp_path, arrays, dtype=dtype)
    (warned,) = warnings_of(caplog)
    assert "rows with NaN or infinite features: 6 (first: 3, 49, 50, 120, 121, ...)" in warned
    stored = torch.frombuffer(bytearray(feature_bytes(store.path)), dtype=store.feature_dtype)
    is_bad = ~stored.view(-1, 37).isfinite().all(dim=1)
    assert is_bad.nonzero().view(-1).tolist() == bad
