"""lsm.pyg.FeatureStore gives what PyG's own store gives of the same values."""

import logging
import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch_geometric.data import TensorAttr
from torch_geometric.loader import NodeLoader
from torch_geometric.testing import MyFeatureStore

import lsm
import lsm.pyg
from support.typed_graphs import typed_graph

COUNTS = {"paper": 60, "author": 25, "topic": 5}
STORED = {
    "paper": ["x", "y", "time", "train_mask", "val_mask", "test_mask"],
    "author": ["x"],
    "topic": [],
}
ENGINES = {
    "posix": {"storage": {"engine": "posix"}},
    "memory": {"storage": {"engine": "memory"}},
    "cache": {"storage": {"engine": "posix"}, "cache": {"policy": "lru", "bytes": "200B"}},
}


@pytest.fixture(scope="module")
def graph():
    return typed_graph()


@pytest.fixture(scope="module")
def path(graph, tmp_path_factory):
    path = tmp_path_factory.mktemp("pyg") / "store"
    lsm.GraphStore.from_pyg(graph, path)
    return path


@pytest.fixture(scope="module")
def plain(graph, tmp_path_factory):
    return lsm.GraphStore.from_pyg(
        graph.node_type_subgraph(["paper"]).to_homogeneous(add_node_type=False),
        tmp_path_factory.mktemp("pyg") / "plain",
    )


def reference(graph):
    """PyG's own store of the same values."""
    store = MyFeatureStore()
    for name, names in STORED.items():
        for each in names:
            store[name, each, None] = graph[name][each]
    return store


INDEX = torch.tensor([3, 0, 24, 3, 7])
REQUESTS = {
    "all": lambda store, name, each: store[name, each, None],
    "view": lambda store, name, each: store[name][each][:],
    "attribute": lambda store, name, each: getattr(store.view(name), each)[:],
    "call": lambda store, name, each: store[name, each](),
    "index": lambda store, name, each: store[name, each, INDEX],
    "nothing": lambda store, name, each: store[name, each][INDEX[:0]],
    "get": lambda store, name, each: store.get_tensor(
        TensorAttr(name, each, INDEX), convert_type=True
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_form_of_request_is_as_in_pyg(graph, path, engine):
    theirs = reference(graph)
    with lsm.pyg.FeatureStore(path, **ENGINES[engine]) as ours:
        assert ours.get_all_tensor_attrs() == theirs.get_all_tensor_attrs()
        for name, names in STORED.items():
            for each in names:
                for form, request in REQUESTS.items():
                    found, expected = request(ours, name, each), request(theirs, name, each)
                    assert found.dtype == expected.dtype, (name, each, form)
                    assert torch.equal(found, expected), (name, each, form)
                assert ours.get_tensor_size(name, each) == graph[name][each].shape


def test_other_indices_are_those_of_tensors(graph, path):
    x = graph["author"].x
    with lsm.pyg.FeatureStore(path) as store:
        assert torch.equal(store["author", "x", slice(2, 20, 3)], x[2:20:3])
        assert torch.equal(store["author", "x", slice(-3, None)], x[-3:])
        assert torch.equal(store["author", "x", np.array([4], np.int32)], x[[4]])
        assert torch.equal(store["author", "x", 7], x[7])
        assert torch.equal(store["author", "x", torch.tensor(7)], x[7])
        assert torch.equal(store["paper", "y", np.int64(7)], graph["paper"].y[7])
        assert torch.equal(store["author", "x", x[:, 0] > 50], x[x[:, 0] > 50])
        assert torch.equal(store["paper", "y", 3], graph["paper"].y[3])
        assert isinstance(
            store.get_tensor("author", "x", np.array([1]), convert_type=True), np.ndarray
        )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_wave_reads_all_types(graph, path, engine):
    """Types of rows of two sizes, one of them twice, next to values in memory."""
    indices = [torch.tensor(each) for each in ([5, 1], [24, 0, 24], [2], [9, 9])]
    with lsm.pyg.FeatureStore(path, **ENGINES[engine]) as store:
        found = store.multi_get_tensor(
            [
                TensorAttr("paper", "x", indices[0]),
                TensorAttr("author", "x", indices[1]),
                TensorAttr("paper", "y", indices[2]),
                TensorAttr("paper", "x", indices[3]),
            ]
        )
    expected = [graph["paper"].x, graph["author"].x, graph["paper"].y, graph["paper"].x]
    for one, values, index in zip(found, expected, indices, strict=True):
        assert torch.equal(one, values[index])


def test_attributes_are_fresh_objects(path):
    """PyG's loaders write the index of each batch into them."""
    store = lsm.pyg.FeatureStore(path)
    for attr in store.get_all_tensor_attrs():
        attr.index = torch.arange(3)
    assert not any(attr.is_set("index") for attr in store.get_all_tensor_attrs())


def test_a_graph_without_types_has_the_group_none(graph, plain):
    with lsm.pyg.FeatureStore(plain) as store:
        assert {attr.group_name for attr in store.get_all_tensor_attrs()} == {None}
        names = [attr.attr_name for attr in store.get_all_tensor_attrs()]
        assert names == STORED["paper"]
        assert torch.equal(store[None, "x", None], graph["paper"].x)
        assert torch.equal(store.view(group_name=None).y[:], graph["paper"].y)
        assert torch.equal(store[None, "val_mask", None], graph["paper"].val_mask)


def test_only_splits_that_are_stored_have_masks(graph, tmp_path):
    papers = graph.clone()
    del papers["paper"].val_mask
    store = lsm.GraphStore.from_pyg(papers, tmp_path / "store")
    with lsm.pyg.parts(store, [2], ("paper", "train"), batch_size=8) as parts:
        for batch in NodeLoader(**parts):
            found = batch["paper"]
            assert torch.equal(found.train_mask, papers["paper"].train_mask[found.n_id])
            assert torch.equal(found.test_mask, papers["paper"].test_mask[found.n_id])
            assert "val_mask" not in found


@pytest.mark.parametrize(
    ("request_of", "error", "told"),
    [
        (("paper", "z", None), KeyError, "z of nodes of type paper: expected one of x, y, time"),
        (("topic", "x", None), KeyError, "x of nodes of type topic"),
        (("venue", "x", None), KeyError, "group 'venue': expected a node type: paper, author"),
        (("author", "x", torch.tensor([0, 25])), IndexError, r"author in \[0, 25\), got 25 at pos"),
        (("paper", "x", torch.tensor([-1])), IndexError, "got -1"),
        (("paper", "y", torch.tensor([60])), IndexError, r"paper in \[0, 60\), got 60 at pos"),
        (("paper", "time", torch.tensor([3, -2])), IndexError, "got -2 at position 1"),
    ],
)
def test_bad_requests_are_errors(path, request_of, error, told):
    with lsm.pyg.FeatureStore(path) as store, pytest.raises(error, match=told):
        store[request_of]


@pytest.mark.parametrize("length", [2, 61])
def test_a_mask_is_of_all_nodes(path, length):
    mask = torch.zeros(length, dtype=torch.bool)
    with lsm.pyg.FeatureStore(path) as store:
        for name in ("x", "y"):
            with pytest.raises(IndexError, match="expected a mask of 60 nodes of type paper"):
                store["paper", name, mask]


@pytest.mark.parametrize("policy", ["lru", "lookahead"])
def test_threads_share_a_cache(graph, path, policy):
    cache = {"policy": policy, "bytes": "200B"}
    draws = [torch.Generator().manual_seed(number) for number in range(4)]

    def read(draw):
        for _ in range(50):
            index = torch.randint(25, (9,), generator=draw)
            names = ("paper", "author")
            rows = store.multi_get_tensor([TensorAttr(name, "x", index) for name in names])
            for name, own in zip(names, rows, strict=True):
                assert torch.equal(own, graph[name].x[index])

    with (
        lsm.pyg.FeatureStore(path, storage={"engine": "posix"}, cache=cache) as store,
        ThreadPoolExecutor(4) as threads,
    ):
        store["paper", "x", 0]
        for done in [threads.submit(read, draw) for draw in draws]:
            done.result(60)


def test_rows_that_do_not_fit_in_memory_are_an_error(path, monkeypatch):
    monkeypatch.setattr("lsm.core.host_memory.available_bytes", lambda: 60 * 14 - 1)
    with lsm.pyg.FeatureStore(path) as store:
        with pytest.raises(MemoryError, match="60 rows of type paper would take 840 B of memory"):
            store["paper", "x", None]
        assert len(store["paper", "x", slice(59)]) == 59


def test_values_can_be_added_and_taken_away(path, caplog):
    store = lsm.pyg.FeatureStore(path)
    embedding = torch.randn(5, 2)
    assert store.put_tensor(embedding, "topic", "embedding", None)
    assert TensorAttr("topic", "embedding") in store.get_all_tensor_attrs()
    assert torch.equal(store["topic", "embedding", torch.tensor([4, 1])], embedding[[4, 1]])
    assert store.get_tensor_size("topic", "embedding") == (5, 2)
    assert store.update_tensor(embedding + 1, "topic", "embedding", None)
    assert torch.equal(store["topic"].embedding[:], embedding + 1)
    with pytest.raises(ValueError, match="expected values of all 5 nodes of type topic"):
        store.put_tensor(embedding[1:], "topic", "other", None)
    with pytest.raises(ValueError, match="with index None"):
        store.put_tensor(embedding, "topic", "other", torch.arange(5))
    del store["topic", "embedding"]
    assert store.get_tensor_size("topic", "embedding") is None
    assert not store.remove_tensor("topic", "embedding", None)
    before = store["paper", "y", None].clone()
    with caplog.at_level(logging.ERROR):
        assert not store.put_tensor(before + 1, "paper", "y", None)
        assert not store.remove_tensor("paper", "y", None)
    assert "y of nodes of type paper are read only" in caplog.text
    assert torch.equal(store["paper", "y", None], before)


def _send_rows(store, queue):
    queue.put(store["author", "x", torch.tensor([2, 0])].tolist())


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("engine", ["posix", "cache"])
def test_another_process_reads_by_itself(graph, path, method, engine):
    """The engine of the parent is open, and has no threads in the child."""
    context = multiprocessing.get_context(method)
    with lsm.pyg.FeatureStore(path, **ENGINES[engine]) as store:
        expected = store["author", "x", torch.tensor([2, 0])]
        queue = context.Queue()
        child = context.Process(target=_send_rows, args=(store, queue))
        child.start()
        assert queue.get(timeout=60) == expected.tolist()
        child.join(60)
        assert child.exitcode == 0
        assert torch.equal(store["author", "x", torch.tensor([2, 0])], expected)


def test_a_pickle_opens_the_store_again(graph, path):
    with lsm.pyg.FeatureStore(path, storage={"engine": "posix"}) as store:
        store["paper", "x", 0]
        store.put_tensor(torch.arange(5), "topic", "number", None)
        with pickle.loads(pickle.dumps(store)) as other:
            assert torch.equal(other["paper", "x", None], graph["paper"].x)
            assert torch.equal(other["topic", "number", None], torch.arange(5))
    assert torch.equal(store["paper", "x", None], graph["paper"].x)  # opened again
    store.close()
