"""`lsm data verify` finds each kind of damage and names the file, the place and the remedy."""

import errno
import json

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

from lsm.cli.data import app
from lsm.data.convert.npy import convert_npy
from lsm.data.graph_store import GraphStore
from lsm.data.verify import verify_store
from support.store_files import list_again, random_graph, save_npy


@pytest.fixture
def store(tmp_path):
    arrays = random_graph(num_nodes=2000, num_edges=5000)
    return convert_npy(save_npy(tmp_path / "graph", arrays), tmp_path / "out", stripes=2).path


def replace(store, name, array):
    """Puts ``array`` in place of the file ``name``, with the right checksum in meta.json."""
    np.save(store / name, array)
    list_again(store, name)


def only_problem(store):
    problems = verify_store(store)
    assert len(problems) == 1, problems
    return problems[0]


def test_a_good_store_has_no_problems(store):
    assert verify_store(store) == []
    result = CliRunner().invoke(app, ["verify", str(store)])
    assert (result.exit_code, result.output) == (0, f"{store}: no problems\n")


@pytest.mark.parametrize("position", [0, 100, -5])
def test_a_flipped_byte(store, position):
    path = store / "features.1.bin"
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    problem = only_problem(store)
    assert problem.startswith(f"{path}: wrong checksum")
    assert "convert the data again" in problem


def test_truncated_and_missing_files(store):
    features, labels = store / "features.0.bin", store / "labels.npy"
    features.write_bytes(features.read_bytes()[:-4096])
    labels.unlink()
    problems = sorted(verify_store(store))
    assert len(problems) == 2
    assert problems[0].startswith(f"{features}: truncated: expected ")
    assert problems[1].startswith(f"{labels}: missing")
    result = CliRunner().invoke(app, ["verify", str(store)])
    assert result.exit_code == 1
    assert sorted(result.output.splitlines()) == problems


def test_wrong_schema_version(store):
    meta = json.loads((store / "meta.json").read_text())
    (store / "meta.json").write_text(json.dumps(meta | {"schema_version": 99}))
    newer = "made by a newer LSM-GNN: expected schema_version 1, got 99; update lsm-gnn"
    assert newer in only_problem(store)
    (store / "meta.json").write_text(json.dumps(meta | {"schema_version": 0}))
    assert "expected schema_version 1, got 0; convert the data again" in only_problem(store)


def test_a_kind_of_a_newer_version(store):
    meta = json.loads((store / "meta.json").read_text())
    (store / "meta.json").write_text(json.dumps(meta | {"kind": "tables"}))
    assert "kind graph, typed, triples, links, got 'tables'; update" in only_problem(store)
    with pytest.raises(ValueError, match="made by a newer LSM-GNN"):
        GraphStore.open(store)


def test_a_missing_stripe_may_be_on_a_disk_that_is_not_mounted(tmp_path):
    source = save_npy(tmp_path / "graph", random_graph())
    convert_npy(source, tmp_path / "store", stripes=2)
    stripe = tmp_path / "store/features.1.bin"
    stripe.unlink()
    problem = only_problem(tmp_path / "store")
    assert "features.1.bin: missing; is its disk not mounted, or the link to it gone?" in problem
    assert problem.endswith("If the file is lost, convert the data again")
    stripe.symlink_to(tmp_path / "nvme1/features.1.bin")
    problem = only_problem(tmp_path / "store")
    assert f"a link to {tmp_path}/nvme1/features.1.bin: is that disk not mounted?" in problem
    (tmp_path / "store/labels.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"labels\.npy: missing; convert the data again"):
        GraphStore.open(tmp_path / "store")


def test_a_link_to_a_store_that_is_not_mounted(tmp_path):
    (tmp_path / "store").symlink_to("/mnt/absent/store")
    expected = "a link to /mnt/absent/store, which is not there: is its disk not mounted?"
    assert expected in only_problem(tmp_path / "store")


def test_no_store(tmp_path):
    assert "no such store directory" in only_problem(tmp_path / "absent")
    assert "no meta.json" in only_problem(tmp_path)


def test_index_out_of_range(store):
    indices = np.load(store / "topology/indices.npy")
    indices[[17, 4000]] = [2000, -1]
    replace(store, "topology/indices.npy", indices)
    problem = only_problem(store)
    assert "topology/indices.npy: source ids out of range [0, 2000): 2" in problem
    assert "first at positions 17, 4000; the first is 2000" in problem


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda indptr: indptr.__setitem__(900, indptr[901] + 1), "indptr falls at node 901"),
        (
            lambda indptr: indptr.__setitem__(slice(4, 6), [2**63 - 1, -2]),  # differences wrap
            "indptr falls at node 5",
        ),
        (lambda indptr: indptr.__setitem__(0, 1), "expected indptr[0] = 0, got 1"),
        (lambda indptr: indptr.__setitem__(slice(-4, None), 4999), "expected the last value 5000"),
    ],
)
def test_bad_indptr(store, change, message):
    indptr = np.load(store / "topology/indptr.npy")
    indptr[:3], indptr[-4:] = [0, 1, 2], 5000
    change(indptr)
    replace(store, "topology/indptr.npy", indptr)
    problems = verify_store(store)
    assert any(f"topology/indptr.npy: {message}" in problem for problem in problems), problems


def test_label_out_of_range(store):
    labels = np.load(store / "labels.npy")
    labels[[5, 6]] = [5, 77]
    replace(store, "labels.npy", labels)
    expected = "labels.npy: labels out of range [-1, 5): 2 (first at positions 5, 6"
    assert expected in only_problem(store)


def test_rows_with_nan_or_infinity_are_counted_and_named(store):
    # Row r begins at logical byte 148 r; with 4 KiB pages over two files it is found by hand here.
    for row, value in ((0, np.nan), (1000, np.inf), (1999, -np.inf), (3, np.nan)):
        offset = row * 37 * 4 + 36 * 4
        page, within = divmod(offset, 4096)
        name = f"features.{page % 2}.bin"
        content = bytearray((store / name).read_bytes())
        begin = page // 2 * 4096 + within
        content[begin : begin + 4] = np.float32(value).tobytes()
        (store / name).write_bytes(content)
        list_again(store, name)
    problem = only_problem(store)
    assert "features.1.bin: rows with NaN or infinite features: 4 " in problem
    assert "(first: 0, 3, 1000, 1999)" in problem


def test_large_finite_features_are_no_problem(tmp_path):
    arrays = random_graph()
    arrays["node_feat"][:, :2] = 3e38  # their sum overflows
    source = save_npy(tmp_path / "graph", arrays)
    assert verify_store(convert_npy(source, tmp_path / "out").path) == []


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (lambda ids: np.append(ids, 2000), "node ids out of range [0, 2000): 1 "),
        (lambda ids: np.append(ids, ids[7]), "nodes that are in it twice: 1 (first: {ids[7]})"),
        (lambda ids: ids.astype(np.int32), "expected int64 [n], got int32 [1000]"),
        (lambda ids: ids.reshape(2, -1), "expected int64 [n], got int64 [2, 500]"),
    ],
)
def test_bad_split(store, ids, message):
    train = np.load(store / "split/train.npy")
    replace(store, "split/train.npy", ids(train))
    assert f"split/train.npy: {message.format(ids=train)}" in only_problem(store)


def test_splits_that_overlap(store):
    train, valid = np.load(store / "split/train.npy"), np.load(store / "split/valid.npy")
    replace(store, "split/valid.npy", np.append(valid, train[:2]))
    first = ", ".join(map(str, sorted(train[:2])))
    expected = f"split/valid.npy: nodes that are in another split: 2 (first: {first})"
    assert expected in only_problem(store)


def test_split_node_without_label(store):
    labels, test = np.load(store / "labels.npy"), np.load(store / "split/test.npy")
    labels[test[3]] = -1
    replace(store, "labels.npy", labels)
    assert f"split/test.npy: nodes without a label: 1 (first: {test[3]})" in only_problem(store)


def test_score_that_is_not_finite(store):
    score = np.zeros(2000, np.float32)
    score[9] = np.nan
    (store / "scores").mkdir()
    replace(store, "scores/mine.npy", score)
    assert "scores/mine.npy: NaN or infinite scores: 1 (first nodes: 9)" in only_problem(store)
    replace(store, "scores/mine.npy", score[:5])
    assert "scores/mine.npy: expected float32 [2000], got float32 [5]" in only_problem(store)


def test_names_that_cannot_be_read_are_one_problem(tmp_path, monkeypatch):
    def broken(path):
        raise OSError(errno.EIO, "Input/output error", str(path))

    edges = torch.tensor([[0, 1], [1, 0]])
    data = Data(x=torch.ones(2, 3), edge_index=edges, names=["a", "b"])
    store = GraphStore.from_pyg(data, tmp_path / "store").path
    monkeypatch.setattr("lsm.data.checks.read_names", broken)
    assert only_problem(store) == f"Input/output error: {store / 'names.tsv'}"
