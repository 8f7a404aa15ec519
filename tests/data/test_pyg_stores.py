"""Graphs of PyG go to stores and come back: equal with the order kept, sorted without it."""

import logging
from functools import partial

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import lsm
from lsm.data.convert.topology import InEdgeLists
from lsm.data.verify import verify_store
from support.typed_graphs import ABOUT, CITES, WRITES, typed_graph


def plain_graph(num_nodes=50, num_edges=300):
    draw = torch.Generator().manual_seed(1)
    part = torch.randint(3, (num_nodes,), generator=draw)
    return Data(
        x=torch.randn(num_nodes, 5, generator=draw),
        edge_index=torch.randint(num_nodes, (2, num_edges), generator=draw),
        y=torch.randint(3, (num_nodes,), generator=draw),
        train_mask=part == 0,
        val_mask=part == 1,
        test_mask=part == 2,
    )


def assert_equal(store, data):
    """Two mappings of PyG's attributes are equal, with their dtypes."""
    assert set(store.keys()) == set(data.keys())
    for name, value in data.items():
        if isinstance(value, torch.Tensor):
            assert store[name].dtype == value.dtype, name
            assert torch.equal(store[name], value), name
        else:
            assert store[name] == value, name


def sorted_edges(edge_index, times=None):
    """The documented order, by NumPy."""
    destinations = edge_index[1].numpy()
    keys = (destinations,) if times is None else (times.numpy(), destinations)
    return torch.from_numpy(np.lexsort((np.arange(len(destinations)), *keys)))


@pytest.fixture(params=[1, 300, 1 << 30])
def sort_bytes(request, monkeypatch):
    """The memory of a pass over the edges: the least takes a pass for each destination."""
    in_passes = partial(InEdgeLists, sort_bytes=request.param)
    monkeypatch.setattr("lsm.data.write_graph.InEdgeLists", in_passes)
    monkeypatch.setattr("lsm.data.graph_parts._STEP", 100)
    monkeypatch.setattr("lsm.data.write_graph._STEP", 70)


@pytest.mark.usefixtures("sort_bytes")
def test_a_graph_without_types_comes_back(tmp_path):
    data = plain_graph()
    data.edge_weight = torch.rand(300)
    data.edge_attr = torch.randint(9, (300,))
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store", keep_order=True)
    assert_equal(store.to_pyg()._store, data._store)
    assert (store.is_typed, store.node_types, store.num_classes) == (False, ("node",), 3)
    assert verify_store(store.path) == []
    order = sorted_edges(data.edge_index)
    assert torch.equal(store.topology().indices.long(), data.edge_index[0][order])
    assert torch.equal(store.edges().weights(), data.edge_weight[order])
    assert torch.equal(store.edges().order(), order)


def test_the_store_is_that_of_the_converter(tmp_path):
    """A graph without values of edges makes the files that `lsm data convert npy` makes."""
    from lsm.data.convert.npy import convert_npy

    data = plain_graph()
    source = tmp_path / "arrays"
    source.mkdir()
    np.save(source / "edge_index.npy", data.edge_index.numpy())
    np.save(source / "node_feat.npy", data.x.numpy())
    np.save(source / "node_label.npy", data.y.numpy())
    for mask in ("train_mask", "val_mask", "test_mask"):
        np.save(source / f"{mask}.npy", data[mask].numpy())
    converted = convert_npy(source, tmp_path / "converted", stripes=2)
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store", stripes=2)
    assert store.meta.files == converted.meta.files
    assert store.identity() == converted.identity()


@pytest.mark.usefixtures("sort_bytes")
@pytest.mark.parametrize("times", ["time", "edge_time"])
def test_edges_of_a_destination_are_in_order_of_time(tmp_path, times):
    data = plain_graph()
    data[times] = torch.randint(6, (50 if times == "time" else 300,))
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store")
    of_edges = data.edge_time if times == "edge_time" else data.time[data.edge_index[0]]
    order = sorted_edges(data.edge_index, of_edges)
    back = store.to_pyg()
    assert torch.equal(back.edge_index, data.edge_index[:, order])
    assert torch.equal(back[times], data.time if times == "time" else data.edge_time[order])
    assert verify_store(store.path) == []


@pytest.mark.usefixtures("sort_bytes")
@pytest.mark.parametrize("seed", range(3))
def test_a_typed_graph_comes_back(tmp_path, seed):
    data = typed_graph(seed)
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store", keep_order=True)
    back = store.to_pyg()
    assert isinstance(back, HeteroData)
    assert back.metadata() == data.metadata()
    for part in (*data.node_types, *data.edge_types):
        assert_equal(back[part], data[part])
    assert verify_store(store.path) == []


def test_the_parts_of_a_typed_store(tmp_path):
    data = typed_graph()
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store")
    assert store.node_types == ("paper", "author", "topic")
    assert store.edge_types == (WRITES, CITES, ABOUT)
    assert store.node_space.offsets == {"paper": 0, "author": 60, "topic": 85}
    assert (store.num_nodes, store.num_edges) == (90, 470)
    papers, authors, topics = (store.nodes(name) for name in store.node_types)
    assert (papers.num_classes, authors.num_classes) == (3, 0)
    assert papers.splits == ("train", "valid", "test")
    assert torch.equal(papers.split("val"), data["paper"].val_mask.nonzero().view(-1))
    assert torch.equal(papers.times(), data["paper"].time)
    assert authors.names_of([3, 0]) == [data["author"].names[3], data["author"].names[0]]
    assert authors.find([data["author"].names[7]]) == [7]
    assert authors.feature_files.row_bytes == 3
    order = sorted_edges(data[WRITES].edge_index)
    writes = store.edges(WRITES)
    assert torch.equal(writes.topology().indices.long(), data[WRITES].edge_index[0][order])
    degrees = torch.bincount(data[WRITES].edge_index[1], minlength=60)
    assert torch.equal(writes.topology().indptr.diff(), degrees)
    assert torch.equal(writes.weights(), data[WRITES].edge_weight[order])
    of_sources = data["paper"].time[data[CITES].edge_index[0]]
    order = sorted_edges(data[CITES].edge_index, of_sources)
    assert torch.equal(store.edges(CITES).attr(), data[CITES].edge_attr[order])
    order = sorted_edges(data[ABOUT].edge_index, data[ABOUT].time)
    assert torch.equal(store.edges(ABOUT).times(), data[ABOUT].time[order])
    for missing in (
        lambda: topics.feature_files,
        topics.labels,
        topics.times,
        papers.names,
        lambda: authors.split("train"),
        writes.times,
        writes.attr,
        store.edges(CITES).weights,
        writes.order,
    ):
        with pytest.raises(ValueError, match=r"store: (nodes|edges) of type .* have no "):
            missing()


def test_bfloat16_and_conversions(tmp_path):
    data = typed_graph()
    data["paper"].x = data["paper"].x.bfloat16()
    data["author"].x = data["author"].x.float()
    kept = lsm.GraphStore.from_pyg(data, tmp_path / "kept").to_pyg()
    assert torch.equal(kept["paper"].x, data["paper"].x)
    half = lsm.GraphStore.from_pyg(data, tmp_path / "half", dtype="float16").to_pyg()
    for name in ("paper", "author"):
        assert torch.equal(half[name].x, data[name].x.half())


def test_one_type_of_nodes_and_several_of_edges(tmp_path):
    data = HeteroData()
    data["page"].x = torch.randn(10, 2)
    data["page", "links", "page"].edge_index = torch.randint(10, (2, 30))
    data["page", "cites", "page"].edge_index = torch.randint(10, (2, 30))
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store")
    assert store.nodes("page").features.dim == 2
    with pytest.raises(ValueError, match=r"nodes: page; 2 types of edges"):
        store.topology()


def test_names_of_types_with_any_characters(tmp_path):
    data = HeteroData()
    for name in ("a/b", "..", "a,b"):
        data[name].num_nodes = 3
    types = [("a/b", "x,y", ".."), ("a/b", "x", ".."), ("a,b", "*/ é", "..")]
    for edge_type in types:
        data[edge_type].edge_index = torch.randint(3, (2, 4))
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store", keep_order=True)
    assert list(store.edge_types) == types
    back = store.to_pyg()
    for edge_type in types:
        assert torch.equal(back[edge_type].edge_index, data[edge_type].edge_index)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_a_graph_without_features_or_labels(tmp_path):
    data = Data(edge_index=torch.tensor([[0, 1], [2, 2]]), num_nodes=4)
    back = lsm.GraphStore.from_pyg(data, tmp_path / "store").to_pyg()
    assert isinstance(back, Data)
    assert_equal(back._store, data._store)


def test_a_warning_names_attributes_that_are_not_kept(tmp_path, caplog):
    data = typed_graph()
    data["paper"].year_of_print = torch.zeros(60)
    data[CITES].kind = torch.zeros(300)
    data.comment = "a graph"
    with caplog.at_level(logging.WARNING):
        lsm.GraphStore.from_pyg(data, tmp_path / "store")
    assert "not kept: data['paper'].year_of_print, data['paper', 'cites', 'paper'].kind, " in (
        caplog.text
    )
    assert "data.comment" in caplog.text
    caplog.clear()
    lsm.GraphStore.from_pyg(typed_graph(), tmp_path / "other")
    assert caplog.text == ""


def rename(data):
    data["paper", "author", "paper"].edge_index = data[CITES].edge_index


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d[CITES].update(edge_index=torch.empty(2, 0).long()), "has no edges; remove"),
        (
            lambda d: d[WRITES].edge_index[0].__setitem__(7, 25),
            r"'paper'\]\.edge_index: edge 7: source 25 is not a node: expected an id in \[0, 25\)",
        ),
        (lambda d: d[WRITES].edge_index[1].__setitem__(4, -1), "edge 4: destination -1"),
        (rename, r"edge type \(paper, author, paper\): author is a node type, too"),
        (lambda d: d[WRITES].edge_weight.__setitem__(3, -0.5), "edge 3: .* at least 0, got -0.5"),
        (lambda d: d[WRITES].edge_weight.zero_(), "edge_weight: all are 0"),
        (lambda d: d[WRITES].edge_weight.__setitem__(3, np.nan), "edge 3: expected a finite"),
        (lambda d: d[ABOUT].update(time=torch.zeros(79).long()), "expected one for each of 80"),
        (lambda d: d[ABOUT].update(time=torch.zeros(80)), "time: expected integers"),
        (lambda d: d["paper"].update(time=torch.zeros(3).long()), r"time: expected \[60\]"),
        (lambda d: d["paper"].update(x=torch.zeros(60)), r"x: expected \[60, dim\]"),
        (lambda d: d["paper"].update(x=torch.zeros(60, 2).bool()), r"\['paper'\]\.x: dtype"),
        (
            lambda d: d["paper"].update(x=torch.zeros(60, 2).cfloat()),
            "save real and imaginary parts",
        ),
        (lambda d: d["paper"].update(y=torch.zeros(60, 2, 2)), "expected a class of each"),
        (lambda d: d["paper"].y.__setitem__(5, -3), r"y: node 5: .* got -3"),
        (lambda d: d["paper"].y.fill_(-1), "has no label"),
        (lambda d: d["paper"].val_mask.copy_(d["paper"].train_mask), "in another split already"),
        (lambda d: d["paper"].update(val_mask=torch.zeros(60, 2).bool()), r"bool \[60\]"),
        (lambda d: d["author"].update(names=["one"]), r"names: expected 25, got 1"),
        (lambda d: d["author"].update(names=[1] * 25), r"names: node 0: expected a string, got 1"),
        (lambda d: d["author"].update(names="n" * 25), r"expected a list of strings, got str"),
        (lambda d: d["author"].update(names=3), r"names: expected a list of strings, got int"),
        (
            lambda d: d["author"].update(names=["fine", "\udcff"] + ["n"] * 23),
            r"\['author'\]\.names: node 1: '\\udcff' has no form in UTF-8",
        ),
        (
            lambda d: d["paper"].update(x=torch.eye(60).to_sparse()),
            r"\['paper'\]\.x: expected a dense tensor, got a sparse one; give its \.to_dense\(\)",
        ),
        (
            lambda d: d["paper"].update(x=[[1.0]] * 60, num_nodes=60),
            r"\.x: expected a dense tensor, got list",
        ),
        (lambda d: d[CITES].update(edge_attr=torch.zeros(300, 1, 1)), r"expected \[E, dim\]"),
        (
            lambda d: d["author", "knows", "reader"].update(edge_index=torch.zeros(2, 1).long()),
            "reader is no node type",
        ),
    ],
)
def test_bad_graphs_name_the_attribute(tmp_path, change, message):
    data = typed_graph()
    change(data)
    with pytest.raises(ValueError, match=message):
        lsm.GraphStore.from_pyg(data, tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_no_dtype_drops_imaginary_parts(tmp_path):
    data = typed_graph()
    data["paper"].x = torch.zeros(60, 2).cfloat()
    with pytest.raises(ValueError, match="got complex64; save real and imaginary parts"):
        lsm.GraphStore.from_pyg(data, tmp_path / "store", dtype="float32")


def test_what_is_no_graph_of_pyg(tmp_path):
    with pytest.raises(TypeError, match=r"Data or HeteroData, got dict"):
        lsm.GraphStore.from_pyg({}, tmp_path / "store")
    with pytest.raises(TypeError, match="path: expected a path, got Data"):
        lsm.GraphStore.from_pyg(tmp_path / "store", plain_graph())


def test_an_unknown_option_is_refused(tmp_path):
    with pytest.raises(TypeError, match="from_pyg: unknown argument dtyp; did you mean dtype"):
        lsm.GraphStore.from_pyg(plain_graph(), tmp_path / "store", dtyp="float16")
    assert list(tmp_path.iterdir()) == []


def test_a_graph_that_does_not_fit(tmp_path, monkeypatch):
    store = lsm.GraphStore.from_pyg(typed_graph(), tmp_path / "store")
    monkeypatch.setattr("lsm.core.host_memory.available_bytes", lambda: 10_000)
    with pytest.raises(MemoryError, match=r"the whole graph would take .* 9\.8 KiB are free"):
        store.to_pyg()


def test_names_are_found_in_lists_of_them(tmp_path):
    data = plain_graph(num_nodes=4)
    data.names = np.array(["a", "b", "ab", "c"])
    nodes = lsm.GraphStore.from_pyg(data, tmp_path / "store").nodes()
    assert nodes.find(["ab", "a"]) == [2, 0]
    assert nodes.names_of(torch.tensor([2, 0])) == nodes.names_of([2, 0]) == ["ab", "a"]
    assert nodes.look_up(["c", "\udcff"]) == [3, -1]
    for look in (nodes.find, nodes.look_up):
        with pytest.raises(TypeError, match=r"expected a list of names, got 'ab'; give \['ab'\]"):
            look("ab")
        with pytest.raises(TypeError, match="names: expected strings, got 2"):
            look([2])
    for bad in (4, -1):
        with pytest.raises(ValueError, match=rf"ids: expected ids in \[0, 4\), got {bad}"):
            nodes.names_of([1, bad])


def test_features_that_overflow_name_the_argument(tmp_path):
    data = plain_graph()
    data.x[3, 2] = 1e6
    told = r"row 3 .* float16; leave out --dtype float16 \(in Python dtype='float16'\)"
    with pytest.raises(ValueError, match=told):
        lsm.GraphStore.from_pyg(data, tmp_path / "store", dtype="float16")


def test_an_existing_store_is_replaced_on_demand_only(tmp_path):
    path = tmp_path / "store"
    lsm.GraphStore.from_pyg(plain_graph(), path)
    with pytest.raises(FileExistsError, match="exists"):
        lsm.GraphStore.from_pyg(typed_graph(), path)
    assert lsm.GraphStore.from_pyg(typed_graph(), path, force=True).is_typed
    assert not lsm.GraphStore.from_pyg(plain_graph(), path, force=True).is_typed


def test_times_of_edges_by_the_name_of_nodes_are_told_apart(tmp_path):
    data = Data(x=torch.ones(3, 1), edge_index=torch.ones(2, 4).long(), time=torch.arange(4))
    with pytest.raises(ValueError, match=r"data.time: expected \[3\], .* got \[4\], .*edge_time"):
        lsm.GraphStore.from_pyg(data, tmp_path / "store")
    data.time = torch.tensor(5)
    with pytest.raises(ValueError, match=r"data\.time: expected"):
        lsm.GraphStore.from_pyg(data, tmp_path / "store")
