"""lsm.pyg.GraphStore gives the edges that PyG's own stores give."""

import logging
import pickle

import pytest
import torch
from torch_geometric.data import EdgeAttr
from torch_geometric.testing import MyGraphStore

import lsm
import lsm.pyg
from support.typed_graphs import typed_graph


@pytest.fixture(scope="module")
def graph():
    return typed_graph()


@pytest.fixture(scope="module")
def stores(graph, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pyg")
    plain = graph.node_type_subgraph(["paper"]).to_homogeneous(add_node_type=False)
    return {
        "typed": lsm.GraphStore.from_pyg(graph, folder / "typed"),
        "plain": lsm.GraphStore.from_pyg(plain, folder / "plain"),
    }


def ordered(edge_index):
    """The edges, in one order."""
    return sorted(map(tuple, edge_index.t().tolist()))


def test_edges_by_type_are_those_of_the_graph(graph, stores):
    store, theirs = lsm.pyg.GraphStore(stores["typed"]), MyGraphStore()
    counts = {"paper": 60, "author": 25, "topic": 5}
    for each in graph.edge_types:
        size = (counts[each[0]], counts[each[2]])
        theirs.put_edge_index(graph[each].edge_index, each, layout="coo", size=size)
    attrs = store.get_all_edge_attrs()
    assert {attr.edge_type: attr.size for attr in attrs} == {
        attr.edge_type: attr.size for attr in theirs.get_all_edge_attrs()
    }
    rows, bounds, permutation = store.csc()
    expected_rows, expected_bounds, _ = theirs.csc()
    assert set(permutation.values()) == {None}
    for each in graph.edge_types:
        assert rows[each].dtype == bounds[each].dtype == torch.int64
        assert torch.equal(bounds[each], expected_bounds[each])
        degrees = bounds[each].diff()
        own = torch.stack((rows[each], torch.repeat_interleave(degrees)))
        other = torch.stack((expected_rows[each], torch.repeat_interleave(degrees)))
        assert ordered(own) == ordered(other) == ordered(graph[each].edge_index)
    sources, destinations, _ = store.coo()
    each = graph.edge_types[0]
    pairs = torch.stack((sources[each], destinations[each]))
    assert ordered(pairs) == ordered(graph[each].edge_index)


def test_a_graph_without_types_has_the_type_none(stores):
    store = lsm.pyg.GraphStore(stores["plain"].path)
    assert [(each.edge_type, each.size) for each in store.get_all_edge_attrs()] == [
        (None, (60, 60))
    ]
    rows, bounds, permutation = store.csc()
    topology = stores["plain"].topology()
    assert permutation is None
    assert torch.equal(rows, topology.indices.long())
    assert torch.equal(bounds, topology.indptr)


def test_edges_are_read_only_and_others_are_missing(stores, caplog):
    store = lsm.pyg.GraphStore(stores["typed"])
    each = store.get_all_edge_attrs()[0]
    before = store.get_edge_index(each)
    with caplog.at_level(logging.ERROR):
        assert not store.put_edge_index((before[0], before[1]), each)
        assert not store.remove_edge_index(each)
    assert "are read only; make the store again" in caplog.text
    for attr in (
        EdgeAttr(("paper", "is", "paper"), "csc"),
        EdgeAttr(None, "csc"),
        EdgeAttr(each.edge_type, "coo"),
    ):
        with pytest.raises(KeyError, match="not found"):
            store.get_edge_index(attr)


def test_edges_that_do_not_fit_in_memory_are_an_error(stores, monkeypatch):
    store = lsm.pyg.GraphStore(stores["plain"])
    num_edges = stores["plain"].num_edges
    monkeypatch.setattr("lsm.core.host_memory.available_bytes", lambda: 8 * num_edges - 1)
    with pytest.raises(MemoryError, match=r"sources of \('node', 'to', 'node'\) as int64 would"):
        store.csc()


def test_a_pickle_opens_the_store_again(stores):
    store = pickle.loads(pickle.dumps(lsm.pyg.GraphStore(stores["typed"])))
    assert store.get_all_edge_attrs() == lsm.pyg.GraphStore(stores["typed"]).get_all_edge_attrs()
