"""Labels that are numbers: stores keep them as PyG and NumPy have them, and name their faults."""

import json

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from typer.testing import CliRunner

import lsm
from lsm.cli import app
from lsm.data.convert.npy import convert_npy
from lsm.data.verify import verify_store
from support.store_files import save_npy

NUM_NODES = 60


def numbers(kind):
    """Labels of a kind, of which those of node 3 are unknown and one of node 4."""
    draw = torch.Generator().manual_seed(1)
    if kind == "several":
        labels = torch.randint(2, (NUM_NODES, 5), generator=draw)
        labels[3], labels[4, 0] = -1, -1
        return labels
    shape = (NUM_NODES,) if kind == "value" else (NUM_NODES, 2)
    labels = torch.randn(shape, generator=draw)
    labels[3] = torch.nan
    if kind == "values":
        labels[4, 0] = torch.nan
    return labels


def data_with(labels):
    draw = torch.Generator().manual_seed(0)
    data = Data(
        x=torch.randn(NUM_NODES, 4, generator=draw),
        edge_index=torch.randint(NUM_NODES, (2, 200), generator=draw),
        y=labels,
    )
    data.train_mask = torch.arange(NUM_NODES) >= 10
    return data


def typed_with(labels):
    data, whole = HeteroData(), data_with(labels)
    data["item"].update({name: whole[name] for name in ("x", "y", "train_mask")})
    data["other"].num_nodes = 3
    data["other", "of", "item"].edge_index = torch.tensor([[0, 1, 2], [5, 6, 7]])
    data["item", "to", "item"].edge_index = whole.edge_index
    return data


def npy_of(path, data):
    arrays = {
        "edge_index": data.edge_index.numpy(),
        "node_feat": data.x.numpy(),
        "node_label": data.y.numpy(),
        "train_mask": data.train_mask.numpy(),
    }
    return save_npy(path, arrays)


def same(found, wanted):
    return found.dtype == wanted.dtype and torch.equal(
        found.nan_to_num(-7.5), wanted.nan_to_num(-7.5)
    )


KINDS = ["several", "value", "values"]


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_store_of_pyg_has_them_in_batches_and_back(tmp_path, kind, typed):
    labels = numbers(kind)
    data = (typed_with if typed else data_with)(labels)
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store")
    nodes = store.nodes("item") if typed else store.nodes()
    assert nodes.num_classes == 0
    assert same(nodes.labels(), labels)
    assert same(nodes.labels(in_memory=True), labels)
    back = store.to_pyg()
    assert same((back["item"] if typed else back).y, labels)
    assert verify_store(store.path) == []
    seeds = torch.tensor([9, 2, 30])
    with lsm.NeighborLoader(store, [2], ("item", seeds) if typed else seeds, 3) as loader:
        batch = next(iter(loader))
    assert same(batch.y, labels[seeds])
    whole = batch.to_pyg()
    whole = whole["item"] if typed else whole
    assert same(whole.y, labels[whole.n_id])


@pytest.mark.parametrize("kind", KINDS)
def test_npy_files_have_them(tmp_path, kind):
    data = data_with(numbers(kind))
    if kind == "value":
        data.y = data.y.double().reshape(-1, 1)
    store = convert_npy(npy_of(tmp_path / "graph", data), tmp_path / "out")
    assert same(store.labels(), numbers(kind))
    assert store.num_classes == 0
    assert verify_store(store.path) == []
    meta = json.loads((store.path / "meta.json").read_text())
    assert meta["labels"]["width"] == {"several": 5, "value": 1, "values": 2}[kind]


def test_whole_floats_of_a_file_are_classes_and_leave_no_trace(tmp_path):
    """The file of a store of classes is that of earlier versions."""
    data = data_with(torch.arange(NUM_NODES).float() % 3)
    store = convert_npy(npy_of(tmp_path / "graph", data), tmp_path / "out")
    assert store.num_classes == 3
    assert store.labels().dtype == torch.int64
    assert "labels" not in json.loads((store.path / "meta.json").read_text())


def test_info_tells_them(tmp_path):
    for name, data in {
        "plain": data_with(numbers("several")),
        "typed": typed_with(numbers("several")),
    }.items():
        lsm.GraphStore.from_pyg(data, tmp_path / name)
        table = CliRunner().invoke(app, ["data", "info", str(tmp_path / name)]).output
        assert "numbers, 5 x int64" in " ".join(table.replace("│", " ").split())
        told = json.loads(
            CliRunner().invoke(app, ["data", "info", str(tmp_path / name), "--json"]).output
        )
        told = told["node_types"]["item"] if name == "typed" else told
        assert told["labels"] == {"width": 5, "dtype": "int64"}


def test_splits_need_a_known_label(tmp_path):
    data = data_with(numbers("values"))
    data.train_mask = torch.arange(NUM_NODES) < 10
    with pytest.raises(ValueError, match="node 3 has no label; remove it from the split"):
        lsm.GraphStore.from_pyg(data, tmp_path / "store")
    with pytest.raises(ValueError, match="node 3 has no label; remove it from the split"):
        convert_npy(npy_of(tmp_path / "graph", data), tmp_path / "out")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.where(np.arange(NUM_NODES) == 7, np.inf, 0.5), "node 7.*(expected finite|infinite)"),
        (np.zeros((NUM_NODES, 0)), r"got .*\[60, 0\]"),
    ],
)
def test_bad_labels_are_named(tmp_path, labels, message):
    data = data_with(torch.from_numpy(labels))
    with pytest.raises(ValueError, match=message):
        lsm.GraphStore.from_pyg(data, tmp_path / "store")
    with pytest.raises(ValueError, match=message):
        convert_npy(npy_of(tmp_path / "graph", data), tmp_path / "out")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["graph"]


def test_classes_are_one_of_each_node(tmp_path):
    source = npy_of(tmp_path / "graph", data_with(numbers("several")))
    with pytest.raises(ValueError, match=r"expected labels for each of the 60 .* \[60\], got"):
        convert_npy(source, tmp_path / "out", num_classes=5)


def test_verify_finds_faults(tmp_path):
    store = lsm.GraphStore.from_pyg(data_with(numbers("value")), tmp_path / "store")
    path = store.path / "labels.npy"
    labels = np.load(path)
    labels[7], labels[20] = np.inf, np.nan
    np.save(path, labels)
    problems = "\n".join(verify_store(store.path))
    assert "infinite labels: 1 (first nodes: 7)" in problems
    assert "nodes without a label: 1 (first: 20)" in problems
