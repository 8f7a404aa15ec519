"""Forms of a LinkNeighborLoader's arguments, and those that it refuses."""

import pytest
import torch

import lsm
from support.link_graphs import CITES, REV_WRITES, WRITES, link_stores, pairs_of, plain_graph


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return link_stores(tmp_path_factory.mktemp("links"))


def test_a_plain_topology_takes_times_as_the_store_does(stores):
    options = {"neg_sampling": "binary", "batch_size": 40}
    for more in (
        {},
        {"disjoint": True},
        {"time_attr": "time", "edge_label_time": torch.arange(40)},
    ):
        pairs = pairs_of(stores["plain"])[:, :40]
        found = []
        for topology in (None, stores["plain"].topology()):
            with lsm.LinkNeighborLoader(
                *(stores["plain"], [3], pairs), topology=topology, **options, **more
            ) as loader:
                found.append(next(iter(loader)))
        assert torch.equal(found[0].n_id, found[1].n_id)
        assert torch.equal(found[0].e_id, found[1].e_id)
    with pytest.raises(ValueError, match="topology: expected a TypedTopology"):
        lsm.LinkNeighborLoader(stores["typed"], [3], CITES, topology=stores["plain"].topology())


LONG = torch.zeros(2, 3, dtype=torch.int64)
BAD = {
    "unknown node": (
        {"edge_label_index": torch.tensor([[0, 1], [0, 60]])},
        "link 1: destination 60",
    ),
    "shape": (
        {"edge_label_index": torch.zeros(3, 3, dtype=torch.int64)},
        r"expected integers \[2, n\]",
    ),
    "split": ({"edge_label_index": "train"}, "give links=, the directory"),
    "type": ({"edge_label_index": (CITES, LONG)}, "of a graph without types"),
    "labels": ({"edge_label_index": LONG, "edge_label": torch.ones(2)}, "one for each of 3 links"),
    "triplet labels": (
        {"edge_label_index": LONG, "edge_label": torch.ones(3), "neg_sampling": "triplet"},
        "expected None with triplets",
    ),
    "times": ({"edge_label_index": LONG, "time_attr": "time"}, "expected a time for each link"),
    "mode": ({"neg_sampling": "some"}, "expected binary or triplet"),
    "amount": ({"neg_sampling": ("triplet", 1.5)}, "expected a whole number"),
    "no negatives": (
        {"neg_sampling": {"mode": "triplet", "nodes": torch.tensor([4])}},
        "no negatives are possible: 1 node",
    ),
    "one node twice": (
        {"neg_sampling": {"mode": "triplet", "nodes": torch.tensor([4, 4])}},
        "no negatives are possible: 1 node",
    ),
    "no node": (
        {"neg_sampling": {"mode": "triplet", "nodes": torch.tensor([], dtype=torch.int64)}},
        "no negatives are possible: 0 node",
    ),
    "nodes of another type": (
        {"neg_sampling": {"mode": "triplet", "nodes": torch.rand(4)}},
        r"nodes: expected \[n\] int64 or a mask of 60 destination nodes, got torch.float32",
    ),
    "short mask": (
        {"neg_sampling": {"mode": "triplet", "nodes": torch.ones(4, dtype=torch.bool)}},
        "or a mask of 60 destination nodes, got torch.bool",
    ),
    "degrees and weights": (
        {"neg_sampling": {"mode": "triplet", "kind": "degree", "dst_weight": torch.ones(60)}},
        "dst_weight: expected kind uniform or joint, got degree",
    ),
    "no weights": (
        {"neg_sampling": {"mode": "triplet", "dst_weight": torch.zeros(60)}},
        "no negatives are possible",
    ),
    "infinite amount": (
        {"neg_sampling": ("binary", float("inf"))},
        "amount: expected a finite number above 0, got inf",
    ),
    "unknown kind": (
        {"neg_sampling": {"mode": "triplet", "kind": "hard"}},
        "kind: expected uniform, degree, joint, inbatch, resident or given, got 'hard'",
    ),
    "no candidates": (
        {"neg_sampling": {"mode": "triplet", "kind": "given"}},
        "expected candidates",
    ),
    "shared and disjoint": (
        {"neg_sampling": {"mode": "triplet", "kind": "joint"}, "disjoint": True},
        "links share negatives",
    ),
    "no group": (
        {"neg_sampling": {"mode": "triplet", "kind": "resident", "iterations": 0}},
        "iterations: expected at least 1, got 0",
    ),
    "resident and disjoint": (
        {"neg_sampling": {"mode": "triplet", "kind": "resident"}, "disjoint": True},
        "links share negatives",
    ),
    "ladies": ({"sampling": "ladies"}, "ladies"),
    "iterations": (
        {"neg_sampling": {"mode": "triplet", "kind": "resident", "iterations": "8"}},
        "iterations: expected a whole number, got '8'",
    ),
    "missing splits": ({"links": "/nothing/there"}, "no such store directory"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_named(stores, case):
    options, message = BAD[case]
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        lsm.LinkNeighborLoader(stores["plain"], [2], **options)


def test_arguments_of_pyg_alone_are_answered(stores):
    with pytest.raises(TypeError, match="LinkNeighborLoader: replace of PyG's loader"):
        lsm.LinkNeighborLoader(stores["plain"], [2], replace=True)
    with pytest.raises(TypeError, match="did you mean neg_sampling"):
        lsm.LinkNeighborLoader(stores["plain"], [2], neg_samplin="binary")


@pytest.mark.parametrize(("given", "told"), [(None, "none"), ("writes", "'writes'")])
def test_a_store_with_types_needs_an_edge_type(stores, given, told):
    message = rf"edge_label_index: expected an edge type, .* of a store with .*, got {told}$"
    with pytest.raises(ValueError, match=message):
        lsm.LinkNeighborLoader(stores["typed"], [2], given)


def test_a_list_is_an_edge_type(stores, tmp_path):
    store = stores["typed"]
    found = []
    for given in (WRITES, list(WRITES)):
        with lsm.LinkNeighborLoader(store, [2], given, reverse_type=list(REV_WRITES)) as loader:
            found.append(next(iter(loader)).links.edge_label_index)
    assert torch.equal(*found)
    splits = lsm.LinkSplits.make(
        store, tmp_path / "l", edge_type=list(WRITES), reverse_type=list(REV_WRITES)
    )
    assert (splits.edge_type, splits.reverse_type) == (WRITES, REV_WRITES)


def test_all_edges_are_in_the_order_of_the_source_if_it_is_kept(tmp_path):
    """Labels and times of the source belong to them, as in PyG."""
    data, labels = plain_graph(), torch.arange(500) + 1
    kept = lsm.GraphStore.from_pyg(data, tmp_path / "kept", keep_order=True)
    options = {"exclude_seed_edges": False, "batch_size": 64, "time_attr": "time"}
    for times in (None, data.edge_time):
        with lsm.LinkNeighborLoader(
            kept, [2], None, labels, edge_label_time=times, **options
        ) as loader:
            for batch in loader:
                found, ids = batch.links, batch.input_id
                ends = batch.n_id[found.edge_label_index]
                assert torch.equal(ends, data.edge_index[:, ids])
                assert torch.equal(found.edge_label, labels[ids])
                assert torch.equal(found.edge_label_time, data.edge_time[ids])
    unkept = lsm.GraphStore.from_pyg(data, tmp_path / "unkept")
    with lsm.LinkNeighborLoader(unkept, [2], **options) as loader:
        batch = next(iter(loader))
        assert torch.equal(
            batch.n_id[batch.links.edge_label_index], pairs_of(unkept)[:, batch.input_id]
        )
        assert torch.equal(batch.links.edge_label_time, unkept.edges().times()[batch.input_id])
    for name, values in (("edge_label", labels), ("edge_label_time", data.edge_time)):
        with pytest.raises(ValueError, match=f"{name}: the store does not keep the order"):
            lsm.LinkNeighborLoader(unkept, [2], **{name: values}, **options)


def test_arrays_and_lists_are_labels_and_times(stores):
    pairs = pairs_of(stores["plain"])[:, :40]
    labels, times = torch.arange(40) % 3, torch.arange(40)
    options = {"neg_sampling": "binary", "time_attr": "time", "batch_size": 40}
    found = []
    for form in (lambda each: each, lambda each: each.numpy(), lambda each: each.tolist()):
        given = {"edge_label": form(labels), "edge_label_time": form(times)}
        with lsm.LinkNeighborLoader(stores["plain"], [2], pairs, **given, **options) as loader:
            found.append(next(iter(loader)).links)
    for each in found[1:]:
        assert torch.equal(each.edge_label, found[0].edge_label)
        assert torch.equal(each.edge_label_time, found[0].edge_label_time)
    with pytest.raises(ValueError, match="neg_sampling: amount: expected a number, got 'a'"):
        lsm.LinkNeighborLoader(stores["plain"], [2], pairs, neg_sampling_ratio="a")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "triplet", "amout": 2}, "unknown argument amout; did you mean amount"),
        ({"mode": "triplet", "number": 2}, "unknown argument number; expected mode, amount, src_"),
        ({"amount": 2}, "expected mode, binary or triplet, in the dict"),
        ({"mode": "triplet", "dst_weight": [1.0] * 60}, "dst_weight: expected a tensor, got list"),
        (
            {"mode": "triplet", "kind": "given", "candidates": [1, 2]},
            "candidates: expected a tensor, got list",
        ),
    ],
)
def test_wrong_keys_of_negatives_are_answered(stores, given, message):
    with pytest.raises(TypeError, match=f"neg_sampling: {message}"):
        lsm.LinkNeighborLoader(stores["plain"], [2], neg_sampling=given)


def test_an_open_store_is_no_path_of_splits(stores):
    with pytest.raises(TypeError, match="links: expected a path, got GraphStore"):
        lsm.LinkNeighborLoader(stores["plain"], [2], links=stores["plain"])
