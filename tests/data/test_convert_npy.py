"""`lsm data convert npy` keeps every byte, sorts edges like SciPy, and names faults of the
input."""

import hashlib
import itertools
import json

import numpy as np
import pytest
import scipy.sparse
import torch
from typer.testing import CliRunner

from lsm import native
from lsm.cli.data import app
from lsm.data.convert.array_file import ArrayFile
from lsm.data.convert.npy import convert_npy
from lsm.data.convert.topology import InEdgeLists, write_topology
from lsm.data.graph_store import GraphStore
from lsm.data.verify import verify_store
from lsm.data.writer import StoreWriter
from support.store_files import (
    SPLIT_FILES,
    feature_bytes,
    in_lists,
    random_graph,
    save_npy,
)


def check_against(store, arrays):
    """Compares all that a store holds with the arrays that it was made from."""
    num_nodes = len(arrays["node_feat"])
    topology = store.topology()
    indptr, indices = topology.indptr.tolist(), topology.indices.tolist()
    lists = [indices[begin:end] for begin, end in itertools.pairwise(indptr)]
    assert lists == in_lists(arrays["edge_index"], num_nodes)
    assert feature_bytes(store.path) == np.ascontiguousarray(arrays["node_feat"]).tobytes()
    assert (store.labels().numpy() == arrays["node_label"]).all()
    for split, file in SPLIT_FILES.items():
        assert (store.split(split).numpy() == arrays[file]).all()


@pytest.mark.parametrize("options", [{}, {"stripes": 3}, {"stripes": 2, "stripe_bytes": 8192}])
def test_round_trip(tmp_path, options):
    arrays = random_graph()
    store = convert_npy(save_npy(tmp_path / "graph", arrays), tmp_path / "out", **options)
    check_against(store, arrays)
    assert (store.name, store.num_classes, store.feature_dim) == ("graph", 5, 37)
    assert len(store.feature_paths) == options.get("stripes", 1)
    assert all(path.stat().st_size % 4096 == 0 for path in store.feature_paths)
    assert verify_store(store.path) == []


def check_real_graph(source, out):
    described = json.loads((source / "meta.json").read_text())
    for name, listed in described["files"].items():
        assert hashlib.sha256((source / name).read_bytes()).hexdigest() == listed["sha256"]
    arrays = {file.stem: np.load(file) for file in source.glob("*.npy")}
    store = convert_npy(source, out, stripes=2)
    check_against(store, arrays)
    assert (store.name, store.num_classes) == (described["name"], described["counts"]["classes"])
    # SciPy sorts within a row; these edge lists are sorted, so the orders agree.
    edges = arrays["edge_index"]
    ones = np.ones(edges.shape[1])
    reference = scipy.sparse.csc_matrix((ones, (edges[0], edges[1])))
    assert (store.topology().indices.numpy() == reference.indices).all()


def test_round_trip_of_the_carried_graph(carried_graph, tmp_path):
    check_real_graph(carried_graph, tmp_path / "out")


@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    "feature_dtype", [np.float16, np.float64, np.int8, np.uint8, np.int16, np.int32, np.int64]
)
def test_dtypes_are_kept(tmp_path, index_dtype, feature_dtype):
    arrays = random_graph(num_nodes=60, num_edges=100)
    arrays["edge_index"] = arrays["edge_index"].astype(index_dtype)
    arrays["node_feat"] = (arrays["node_feat"] * 10).astype(feature_dtype)
    store = convert_npy(save_npy(tmp_path / "graph", arrays), tmp_path / "out")
    check_against(store, arrays)
    assert store.feature_dtype == torch.from_numpy(arrays["node_feat"]).dtype
    assert store.topology().indices.dtype == torch.int32


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_features_can_be_converted(tmp_path, dtype):
    arrays = random_graph()
    arrays["node_feat"] = arrays["node_feat"].astype(np.float64)
    store = convert_npy(save_npy(tmp_path / "graph", arrays), tmp_path / "out", dtype=dtype)
    kind = getattr(torch, dtype)
    stored = torch.frombuffer(bytearray(feature_bytes(store.path)), dtype=kind)
    assert store.feature_dtype == kind
    assert store.row_bytes == 37 * kind.itemsize
    assert torch.equal(stored.view(-1, 37), torch.from_numpy(arrays["node_feat"]).to(kind))


def test_a_conversion_that_overflows_is_refused(tmp_path):
    arrays = random_graph()
    arrays["node_feat"][7, 3] = 1e6
    source = save_npy(tmp_path / "graph", arrays)
    with pytest.raises(ValueError, match="row 7 has values too large for float16"):
        convert_npy(source, tmp_path / "out", dtype="float16")


def test_fortran_order_is_read(tmp_path):
    arrays = random_graph()
    arrays["node_feat"] = np.asfortranarray(arrays["node_feat"])
    arrays["edge_index"] = np.asfortranarray(arrays["edge_index"])
    check_against(convert_npy(save_npy(tmp_path / "graph", arrays), tmp_path / "out"), arrays)


@pytest.mark.parametrize("order", ["C", "F"])
def test_big_endian_arrays_are_read(tmp_path, order):
    arrays = random_graph()
    swapped = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in arrays.items()}
    swapped = {name: np.asarray(array, order=order) for name, array in swapped.items()}
    source = save_npy(tmp_path / "graph", swapped)
    check_against(convert_npy(source, tmp_path / "out"), arrays)
    assert np.load(source / "node_feat.npy").dtype == ">f4"
    assert verify_store(tmp_path / "out") == []


@pytest.mark.parametrize("name", ["idx", "mask"])
def test_splits_may_be_masks(tmp_path, monkeypatch, name):
    arrays = random_graph()
    given = dict(arrays)
    for split in ("train", "val", "test"):
        mask = np.zeros(300, bool)
        mask[given.pop(f"{split}_idx")] = True
        given[f"{split}_{name}"] = mask
        arrays[f"{split}_idx"] = np.sort(arrays[f"{split}_idx"])
    monkeypatch.setattr("lsm.data.convert.labels.CHUNK_BYTES", 8 * 64)  # five chunks
    check_against(convert_npy(save_npy(tmp_path / "graph", given), tmp_path / "out"), arrays)
    assert verify_store(tmp_path / "out") == []


def test_unlabelled_nodes_get_minus_one(tmp_path):
    arrays = random_graph()
    arrays["train_idx"] = np.setdiff1d(arrays["train_idx"], [3, 4])
    arrays["val_idx"] = np.setdiff1d(arrays["val_idx"], [3, 4])
    arrays["test_idx"] = np.setdiff1d(arrays["test_idx"], [3, 4])
    labels = arrays["node_label"].astype(np.float32)
    labels[3], labels[4] = np.nan, -1
    source = save_npy(tmp_path / "graph", arrays | {"node_label": labels[:, None]})
    arrays["node_label"][[3, 4]] = -1
    check_against(convert_npy(source, tmp_path / "out"), arrays)


def test_a_graph_without_edges_or_splits(tmp_path):
    arrays = random_graph()
    arrays["edge_index"] = np.empty((2, 0), np.int64)
    arrays["val_idx"] = np.empty(0, np.int64)
    store = convert_npy(save_npy(tmp_path / "graph", arrays), tmp_path / "out")
    check_against(store, arrays)
    assert verify_store(store.path) == []


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("num_edges", [0, 1, 2, 3])
def test_graphs_of_few_edges(tmp_path, num_edges, order):
    arrays = random_graph(num_edges=num_edges)
    arrays["edge_index"] = np.asarray(arrays["edge_index"], order=order)
    store = convert_npy(save_npy(tmp_path / "graph", arrays), tmp_path / "out")
    check_against(store, arrays)
    assert verify_store(store.path) == []


@pytest.mark.parametrize("sort_bytes", [1, 40, 4000, 1 << 20])
def test_several_passes_give_the_same_topology(tmp_path, sort_bytes):
    arrays = random_graph()
    path = save_npy(tmp_path / "graph", arrays) / "edge_index.npy"
    done = []
    with ArrayFile(path) as edges, StoreWriter(tmp_path / "out") as writer:
        edges.expect_edges(edges_first=False)
        lists = InEdgeLists(edges, str(path), 300, 300, done.append, sort_bytes)
        write_topology(writer, "topology/", lists)
        directory = next(tmp_path.glob(".out.tmp-*"))
        for sink in writer._sinks.values():
            sink.close()
        indptr = np.load(directory / "topology/indptr.npy")
        indices = np.load(directory / "topology/indices.npy")
    lists = [part.tolist() for part in np.split(indices, indptr[1:-1])]
    assert lists == in_lists(arrays["edge_index"], 300)
    assert sum(done) == 2 * arrays["edge_index"].nbytes


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("bad", [-1, 300])
@pytest.mark.parametrize("row", [0, 1])
def test_native_counting_names_the_first_bad_edge(num_threads, bad, row):
    edges = random_graph()["edge_index"]
    edges[row, [700, 1900]] = bad
    degrees = np.zeros(300, np.int64)
    side = ["source", "destination"][row]
    pool = native.ThreadPool(num_threads)
    with pytest.raises(ValueError, match=f"edge 1000700: {side} {bad} is not a node"):
        native.count_degrees(pool, edges, 300, 1_000_000, degrees)
    assert not degrees.any()


def test_native_counting_checks_each_side_by_its_own_nodes():
    pool, edges = native.ThreadPool(2), np.array([[4, 2], [0, 1]])
    degrees = np.zeros(2, np.int64)
    native.count_degrees(pool, edges, 5, 0, degrees)
    assert degrees.tolist() == [1, 1]
    with pytest.raises(ValueError, match=r"edge 0: source 4 is not a node: .* in \[0, 4\)"):
        native.count_degrees(pool, edges, 4, 0, degrees)
    with pytest.raises(ValueError, match=r"edge 1: destination 1 is not a node: .* in \[0, 1\)"):
        native.count_degrees(pool, edges, 5, 0, degrees[:1])


@pytest.mark.parametrize(
    ("fill", "dtype"), [(native.fill_csc, np.int32), (native.fill_csc_order, np.int64)]
)
def test_native_fill_stays_inside_when_the_edges_changed(fill, dtype):
    pool = native.ThreadPool(2)
    edges = np.array([[0, 1], [1, 1]])
    with pytest.raises(ValueError, match="edge 1: the edge list changed"):
        fill(pool, edges, 2, 0, np.zeros(2, np.int64), 0, 2, 0, np.empty(1, dtype))


@pytest.mark.parametrize("num_threads", [1, 3])
def test_native_lists_are_sorted_by_key(num_threads):
    """Against NumPy: lists of any length, equal keys by value."""
    draw = np.random.default_rng(2)
    sizes = draw.integers(0, 6, 5000)
    ends = 40 + np.cumsum(sizes)
    keys = draw.integers(-3, 3, ends[-1] - 40)
    values = draw.permutation(len(keys))
    expected = values[np.lexsort((values, keys, np.repeat(np.arange(5000), sizes)))]
    native.sort_lists(native.ThreadPool(num_threads), ends, 40, keys, values)
    assert (values == expected).all()


@pytest.mark.parametrize(
    ("ends", "keys", "message"),
    [
        ([1, 4], 3, r"ends: expected ascending ones in \[0, 3\], got 4"),
        ([2, 1], 3, r"ends: expected ascending ones in \[0, 3\], got 1"),
        ([1, 3], 2, "keys: expected 3, got 2"),
    ],
)
def test_native_lists_lie_inside(ends, keys, message):
    with pytest.raises(ValueError, match=message):
        native.sort_lists(
            native.ThreadPool(1), np.array(ends), 0, np.zeros(keys, np.int64), np.arange(3)
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edge_index": np.zeros((3, 5), int)}, r"edge_index\.npy: expected shape \[2, E\]"),
        ({"edge_index": np.zeros((5, 2), int)}, "transpose it"),
        ({"edge_index": np.zeros((2, 5))}, "expected dtype int32 or int64, got float64"),
        ({"edge_index": np.array([[0, 1], [2, 300]])}, "edge 1: destination 300 is not a node"),
        ({"node_feat": np.zeros(300)}, r"node_feat\.npy: expected features \[nodes, dim\]"),
        ({"node_feat": np.zeros((300, 2), complex)}, "expected integers or floats"),
        ({"node_feat": np.zeros((300, 2), bool)}, "expected integers or floats, got bool"),
        ({"node_feat": np.zeros((300, 2), "g")}, "expected integers or floats, got float128"),
        (
            {"node_feat": np.zeros((300, 2), "u4")},
            r"node_feat\.npy: .* got uint32; --dtype float32",
        ),
        ({"node_label": np.zeros(300, bool)}, "expected integers or floats, got bool"),
        ({"node_label": np.zeros(299, int)}, r"node_label\.npy: expected labels for each of"),
        ({"node_label": np.full(300, np.inf)}, "node 0: expected a whole number"),
        ({"node_label": np.full(300, -2)}, "node 0: expected a whole number"),
        ({"node_label": np.full(300, -1)}, "has no label"),
        (
            {"node_label": np.full((300, 2), 2**63, "u8")},
            "node 0: expected int64, or -1 for no label",
        ),
        ({"train_idx": np.array([0, 300])}, r"train_idx\.npy: position 1: node 300 does not exist"),
        ({"train_idx": np.array([-1])}, "node -1 does not exist"),
        ({"train_idx": np.array([5, 6, 5])}, "position 2: node 5 is in this or another split"),
        ({"train_idx": np.arange(300)}, r"val_idx\.npy: position 0: .* splits must be disjoint"),
        ({"train_idx": np.zeros(3)}, "expected node ids"),
        ({"train_idx": np.ones(299, bool)}, r"train_idx\.npy: expected a mask, bool \[300\]"),
        ({"train_idx": np.ones((300, 20), bool)}, "of several masks, save the column of one"),
        ({"train_idx": np.arange(300) < 9, "val_idx": np.arange(300) > 7}, "position 8: node 8 is"),
        (
            {"train_mask": np.zeros(300, bool)},
            r"expected one of train_idx\.npy and train_mask\.npy",
        ),
    ],
)
def test_bad_input_is_named_and_nothing_is_left(tmp_path, change, message):
    source = save_npy(tmp_path / "graph", random_graph() | change)
    with pytest.raises(ValueError, match=message):
        convert_npy(source, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("mask", [np.ones(300, np.uint8), np.array([5, 6])], ids=["0/1", "ids"])
def test_a_mask_of_numbers_is_no_list_of_nodes(tmp_path, mask):
    graph = random_graph()
    graph["train_mask"] = mask
    del graph["train_idx"]
    source = save_npy(tmp_path / "graph", graph)
    told = r"train_mask\.npy: expected a mask, bool \[300\], got .*astype\(bool\), and node ids as"
    with pytest.raises(ValueError, match=told):
        convert_npy(source, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float8"}, "dtype: expected one of"),
        ({"stripes": 0}, "stripes: expected 1 to 256, got 0"),
        ({"stripes": 257}, "stripes: expected 1 to 256, got 257"),
        ({"stripe_bytes": 1000}, "multiple of 4096"),
        ({"num_classes": 3}, r"expected a whole number in \[0, 3\)"),
    ],
)
def test_bad_options_are_named(tmp_path, options, message):
    source = save_npy(tmp_path / "graph", random_graph())
    with pytest.raises(ValueError, match=message):
        convert_npy(source, tmp_path / "out", **options)


def test_missing_truncated_and_foreign_files_are_named(tmp_path):
    source = save_npy(tmp_path / "graph", random_graph())
    features = source / "node_feat.npy"
    content = features.read_bytes()
    features.write_bytes(content[:-4])
    with pytest.raises(ValueError, match=r"node_feat\.npy: truncated"):
        convert_npy(source, tmp_path / "out")
    features.write_bytes(content[:20])
    with pytest.raises(ValueError, match=r"node_feat\.npy: bad \.npy header"):
        convert_npy(source, tmp_path / "out")
    features.write_bytes(b"PK" + content)
    with pytest.raises(ValueError, match=r"node_feat\.npy: not a \.npy file"):
        convert_npy(source, tmp_path / "out")
    features.unlink()
    with pytest.raises(FileNotFoundError, match=r"node_feat\.npy: missing"):
        convert_npy(source, tmp_path / "out")


def test_command_line(tmp_path):
    source = save_npy(tmp_path / "graph", random_graph())
    out = tmp_path / "out"
    command = ["convert", "npy", str(source), "--out", str(out), "--stripes", "2"]
    result = CliRunner().invoke(app, [*command, "--stripe-bytes", "8KiB", "--name", "mine"])
    assert result.exit_code == 0, result.output
    store = GraphStore.open(out)
    assert (store.name, store.stripe_bytes, len(store.feature_paths)) == ("mine", 8192, 2)
    assert isinstance(CliRunner().invoke(app, command).exception, FileExistsError)
    assert CliRunner().invoke(app, [*command, "--force"]).exit_code == 0
    info = json.loads(CliRunner().invoke(app, ["info", str(out), "--json"]).output)
    assert (info["num_nodes"], info["splits"]["train"]) == (300, 150)
    assert info["in_degree"]["max"] == max(map(len, in_lists(random_graph()["edge_index"], 300)))
    assert "2,000" in CliRunner().invoke(app, ["info", str(out)]).output
