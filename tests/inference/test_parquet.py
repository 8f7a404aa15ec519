"""Outputs as Parquet hold the arrays, with the ids and the names of nodes."""

import sys

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn.models import GraphSAGE

import lsm
from lsm.inference import parquet
from lsm.train.trainer import train
from support.training import config

NUM_NODES = 90
NAMES = [f"paper\t{i} \u00e4" for i in range(NUM_NODES)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parquet")
    draw, data = torch.Generator().manual_seed(0), HeteroData()
    data["paper"].x = torch.randn(NUM_NODES, 6, generator=draw)
    data["paper"].y = torch.randint(3, (NUM_NODES,), generator=draw)
    for number, split in enumerate(("train", "val", "test")):
        data["paper"][f"{split}_mask"] = torch.arange(NUM_NODES) % 3 == number
    data["paper"].names = NAMES
    ends = torch.randint(NUM_NODES, (2, 300), generator=draw)
    data["paper", "cites", "paper"].edge_index = ends
    store = lsm.GraphStore.from_pyg(data, folder / "store")
    train(config(store.path, folder / "run", "model.name=rsage", "train.epochs=1"))
    return folder / "run"


@pytest.mark.parametrize("nodes", ["all", "test"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_file_holds_the_arrays_with_names(trained, tmp_path, monkeypatch, nodes, dtype):
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    monkeypatch.setattr(parquet, "_MOST_ROWS", 32)  # several groups of rows
    same = {"nodes": nodes, "dtype": dtype, "progress": False}
    lsm.predict(trained, None, tmp_path / "npy", **same)
    summary = lsm.predict(trained, None, tmp_path / "parquet", format="parquet", **same)
    path = tmp_path / "parquet" / "paper" / "nodes.parquet"
    assert {each["file"] for each in summary["outputs"].values()} == {str(path)}
    assert sorted(each.name for each in path.parent.iterdir()) == ["nodes.parquet"]
    assert pq.ParquetFile(path).num_row_groups == (3 if nodes == "all" else 1)
    table = pq.read_table(path).to_pydict()
    assert [*table] == ["id", "name", "embeddings", "scores", "predictions"]
    ids = np.arange(NUM_NODES)
    assert table["id"] == (ids if nodes == "all" else ids[ids % 3 == 2]).tolist()
    assert table["name"] == [NAMES[number] for number in table["id"]]
    for name in ("embeddings", "scores", "predictions"):
        expected = np.load(tmp_path / "npy" / "paper" / f"{name}.npy")
        assert np.array_equal(np.array(table[name], expected.dtype), expected)


def test_without_pyarrow_an_error_names_the_remedy(trained, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(parquet.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"^--format: parquet needs pyarrow.*pip install pyarrow"):
        lsm.predict(trained, None, tmp_path / "out", format="parquet")
    with pytest.raises(ValueError, match="--format: expected npy or parquet, got 'csv'"):
        lsm.predict(trained, None, tmp_path / "out", format="csv")
    assert not (tmp_path / "out").exists()


def test_a_graph_without_names_has_ids_alone(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    data = torch.randn(40, 4), torch.randint(40, (2, 90))
    graph = HeteroData()
    graph["node"].x, graph["node", "to", "node"].edge_index = data
    store = lsm.GraphStore.from_pyg(graph.to_homogeneous(), tmp_path / "store")
    made = GraphSAGE(4, 8, 1, 3)
    out = tmp_path / "out"
    lsm.predict(made, store, out, format="parquet", outputs=["scores"], progress=False)
    assert pq.read_table(out / "nodes.parquet").column_names == ["id", "scores"]
