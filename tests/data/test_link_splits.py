"""Splits of edges: each edge in one of them, and none of validation or test in a message graph."""

import json

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import lsm
from lsm.data.info import describe
from lsm.data.links import make, parts
from lsm.data.links.format import REMEDY
from lsm.data.verify import verify_store

CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")
REV_WRITES = ("paper", "rev_writes", "author")


def graph(num_nodes=40, num_edges=600, seed=0, times=False):
    """Parallel edges, self loops, and many edges in both directions."""
    draw = torch.Generator().manual_seed(seed)
    ends = torch.randint(num_nodes, (2, num_edges), generator=draw)
    data = Data(edge_index=ends, x=torch.randn(num_nodes, 3), num_nodes=num_nodes)
    if times:
        data.edge_time = torch.randint(1000, (num_edges,), generator=draw)
    return data


def typed_graph():
    draw = torch.Generator().manual_seed(1)
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.randn(50, 4), torch.randn(30, 4)
    data[CITES].edge_index = torch.randint(50, (2, 200), generator=draw)
    writes = torch.stack(
        (torch.randint(30, (400,), generator=draw), torch.randint(50, (400,), generator=draw))
    )
    data[WRITES].edge_index = writes
    data[REV_WRITES].edge_index = writes.flip(0)[:, torch.randperm(400, generator=draw)]
    return data


@pytest.fixture
def store(tmp_path):
    return lsm.GraphStore.from_pyg(graph(), tmp_path / "g")


def pairs_of(topology):
    """The edges of a topology, [E, 2], in its order."""
    destinations = torch.repeat_interleave(topology.indptr.diff())
    return torch.stack((topology.indices.long(), destinations), 1)


def as_set(edges):
    return set(map(tuple, edges.tolist()))


def test_each_edge_is_in_one_split_with_its_parallels_and_its_reverses(store):
    splits = lsm.LinkSplits.make(store, valid=0.2, test=0.3, seed=3)
    parts = {name: splits.edges(name).t() for name in splits.num_edges}
    everything = torch.cat(list(parts.values()))
    assert sorted(everything.tolist()) == sorted(pairs_of(store.topology()).tolist())
    unordered = {name: as_set(own.sort(1).values) for name, own in parts.items()}
    assert not unordered["train"] & unordered["valid"]
    assert not unordered["train"] & unordered["test"]
    assert not unordered["valid"] & unordered["test"]
    shares = {name: len(own) / len(everything) for name, own in parts.items()}
    assert shares["valid"] == pytest.approx(0.2, abs=0.06)
    assert shares["test"] == pytest.approx(0.3, abs=0.06)
    assert splits.path == store.path.with_name("g.links")


def test_splits_are_a_function_of_the_seed(store, tmp_path):
    def split(seed, name):
        return lsm.LinkSplits.make(store, tmp_path / name, seed=seed).edges("test")

    assert torch.equal(split(1, "a"), split(1, "b"))
    assert not torch.equal(split(1, "c"), split(2, "d"))


@pytest.mark.parametrize("times", [False, True])
def test_splits_do_not_depend_on_the_edges_that_are_read_at_once(tmp_path, monkeypatch, times):
    store = lsm.GraphStore.from_pyg(graph(times=times), tmp_path / "g")
    made = []
    for name in ("in one", "in ten"):
        shares = {"valid": 0.2, "test": 0.2, "message_edges": "earlier"}
        path = lsm.LinkSplits.make(store, tmp_path / name, **shares).path
        files = {file.relative_to(path): file.read_bytes() for file in path.rglob("*.npy")}
        assert len(files) == (12 if times else 9)
        made.append(files)
        monkeypatch.setattr(parts, "_CHUNK_EDGES", 64)
        monkeypatch.setattr(make, "_COPIED_EDGES", 64)
    assert made[0] == made[1]


@pytest.mark.parametrize("rule", ["train", "earlier", "all"])
def test_a_message_graph_has_the_edges_of_its_rule(store, rule):
    splits = lsm.LinkSplits.make(store, valid=0.2, test=0.2, message_edges=rule)
    edge_type = splits.edge_type
    whole = pairs_of(store.topology())
    for split in ("train", "valid", "test"):
        kept = {"train": ["train"], "all": ["train", "valid", "test"], "earlier": ["train"]}[rule]
        if rule == "earlier" and split == "test":
            kept = ["train", "valid"]
        expected = torch.cat([splits.edges(name).t() for name in kept])
        found = splits.message_graph(store, split)
        if rule == "all":
            assert found == {}
            continue
        own = pairs_of(found[edge_type].topology)
        assert sorted(own.tolist()) == sorted(expected.tolist())
        positions = found[edge_type].positions(torch.arange(len(own)))
        assert torch.equal(whole[positions], own)
        assert torch.equal(found[edge_type].kept(whole), own)


def test_the_latest_edges_are_of_test(tmp_path):
    data = graph(times=True)
    store = lsm.GraphStore.from_pyg(data, tmp_path / "g")
    splits = lsm.LinkSplits.make(store, valid=0.1, test=0.2)
    assert splits.meta.order == "time"
    times = {name: splits.times(name) for name in splits.num_edges}
    assert times["train"].max() < times["valid"].min()
    assert times["valid"].max() < times["test"].min()
    assert len(times["test"]) / 600 == pytest.approx(0.2, abs=0.01)
    whole = pairs_of(store.topology()).tolist()
    stored = {
        (*pair, time) for pair, time in zip(whole, store.edges().times().tolist(), strict=True)
    }
    for name, own in times.items():
        pairs = splits.edges(name).t().tolist()
        assert {(*pair, time) for pair, time in zip(pairs, own.tolist(), strict=True)} <= stored


def test_shares_of_times_are_exact(tmp_path):
    """Although 1 - 0.05 - 0.05 is less than 0.9 as a float."""
    edge_index = torch.stack((torch.arange(100), torch.arange(100).roll(1)))
    data = Data(edge_index=edge_index, edge_time=torch.randperm(100), num_nodes=100)
    splits = lsm.LinkSplits.make(lsm.GraphStore.from_pyg(data, tmp_path / "g"))
    assert splits.num_edges == {"train": 90, "valid": 5, "test": 5}


@pytest.mark.parametrize("latest", [99, 2**63 - 1])
def test_no_edge_is_of_a_split_without_a_share(tmp_path, latest):
    """Also if no time is later than the latest."""
    edge_index = torch.stack((torch.arange(100), torch.arange(100).roll(1)))
    times = torch.arange(100)
    times[-1] = latest
    data = Data(edge_index=edge_index, edge_time=times, num_nodes=100)
    store = lsm.GraphStore.from_pyg(data, tmp_path / "g")
    splits = lsm.LinkSplits.make(store, valid=0.1, test=0)
    assert splits.num_edges == {"train": 90, "valid": 10, "test": 0}


@pytest.mark.parametrize("chosen", [WRITES, REV_WRITES])
def test_the_reverse_type_loses_the_same_edges(tmp_path, chosen):
    store = lsm.GraphStore.from_pyg(typed_graph(), tmp_path / "g")
    splits = lsm.LinkSplits.make(store, edge_type=chosen, valid=0.1, test=0.2)
    other = REV_WRITES if chosen == WRITES else WRITES
    assert splits.reverse_type == other
    message = splits.message_graph(store, "train")
    assert set(message) == {WRITES, REV_WRITES}
    held = as_set(torch.cat([splits.edges(name).t() for name in ("valid", "test")]))
    assert not as_set(pairs_of(message[chosen].topology)) & held
    assert not as_set(pairs_of(message[other].topology).flip(1)) & held
    assert message[other].topology.num_edges == splits.num_edges["train"]
    alone = lsm.LinkSplits.make(store, tmp_path / "alone", edge_type=chosen, reverse_type=None)
    assert set(alone.message_graph(store, "valid")) == {chosen}
    assert verify_store(splits.path, progress=False) == []


def test_given_pairs_and_candidates(store, tmp_path):
    """In the form of ogbl-citation2: pairs, and for each of them destinations to rank."""
    whole = pairs_of(store.topology()).numpy()
    given = tmp_path / "given"
    given.mkdir()
    np.save(given / "valid.npy", whole[5:9].T)
    np.save(given / "test.npy", whole[20:23])
    candidates = np.arange(12).reshape(3, 4)
    np.save(given / "test_candidates.npy", candidates)
    splits = lsm.LinkSplits.make(store, given=given)
    assert splits.edges("valid").t().tolist() == whole[5:9].tolist()
    assert splits.candidates("test").tolist() == candidates.tolist()
    assert splits.candidates("valid") is None
    held = as_set(torch.from_numpy(np.sort(np.concatenate((whole[5:9], whole[20:23])), 1)))
    message = pairs_of(splits.message_graph(store, "test")[splits.edge_type].topology)
    assert not as_set(message.sort(1).values) & held
    assert as_set(message.sort(1).values) | held == as_set(torch.from_numpy(np.sort(whole, 1)))
    assert splits.edges("train").t().tolist() == message.tolist()
    assert describe(splits.path)["candidates"] == {"test": 4}
    np.save(given / "test.npy", np.array([[0, 40]]))
    with pytest.raises(ValueError, match="destination 40 of pair 0 is no node"):
        lsm.LinkSplits.make(store, tmp_path / "bad", given=given)
    (given / "valid.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"valid\.npy: no such file"):
        lsm.LinkSplits.make(store, tmp_path / "bad", given=given)
    assert not (tmp_path / "bad").exists()


def test_a_damaged_file_is_found(store):
    splits = lsm.LinkSplits.make(store)
    assert verify_store(splits.path, progress=False) == []
    file = splits.path / "split/test.npy"
    pairs = np.load(file)
    pairs[0, 1] = 40
    np.save(file, pairs)
    problems = verify_store(splits.path, progress=False)
    assert any("wrong checksum" in problem for problem in problems)
    assert any("edge 0 has an id that is no node" in problem for problem in problems)
    assert all(problem.endswith(REMEDY) for problem in problems)
    damaged = lsm.LinkSplits.open(splits.path)
    assert damaged.edges("train").size(1) == damaged.num_edges["train"]
    message = r"split/test\.npy: pair 0: node 40 does not exist: expected an id in \[0, 40\); split"
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            damaged.edges("test")
    with pytest.raises(ValueError, match=message):
        lsm.LinkNeighborLoader(store, [2], "test", links=damaged)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=f"test.npy: missing; {REMEDY}"):
        lsm.LinkSplits.open(splits.path)


@pytest.mark.parametrize("change", [[1, 0], [0, 600], [-1, 0], [5, 5]])
def test_damaged_positions_of_a_message_graph_are_refused(store, change):
    splits = lsm.LinkSplits.make(store)
    file = splits.path / "message/train/topology/left_out.npy"
    positions = np.load(file)
    places = [0, 1] if change[0] > 0 else [0, -1]
    positions[places] = change
    np.save(file, positions)
    message = rf"left_out\.npy: expected positions of edges in \[0, 600\).*; {REMEDY}"
    with pytest.raises(ValueError, match=message):
        lsm.LinkSplits.open(splits.path).message_graph(store, "train")


def test_an_array_of_splits_with_another_shape_tells_to_split_again(store):
    splits = lsm.LinkSplits.make(store)
    file = splits.path / "message/train/topology/indptr.npy"
    damaged = file.read_bytes().replace(b"(41,)", b"(40,)")
    file.write_bytes(damaged)
    with pytest.raises(ValueError, match=rf"indptr\.npy: expected int64 \[41\], .*; {REMEDY}"):
        lsm.LinkSplits.open(splits.path).message_graph(store, "train")


def test_splits_of_another_store_are_refused(store, tmp_path):
    splits = lsm.LinkSplits.make(store)
    splits.check_store(store)
    other = lsm.GraphStore.from_pyg(graph(seed=5), tmp_path / "other")
    with pytest.raises(ValueError, match="splits of another store: SHA-256 of topology"):
        splits.check_store(other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valid": 0.7, "test": 0.4}, "expected shares"),
        ({"valid": 1e-9, "test": 0.1}, "valid: no edge is left for it"),
        ({"order": "time"}, "have no times; split with --order random .*order='random'"),
        ({"edge_type": CITES}, "edge type: expected one of node,to,node"),
        ({"edge_type": "node"}, "edge type: expected one of node,to,node of .*, got 'node'"),
        ({"order": "tim"}, "order: expected one of auto, random, time, got 'tim'"),
        ({"message_edges": "tra"}, "message_edges: expected one of train, earlier, all, got 'tra'"),
        ({"seed": 2**64}, r"seed: expected 0 to \d+, got 18446744073709551616"),
        ({"valid": "0.1"}, "valid, test: expected shares of .*, got '0.1' and 0.05"),
        ({"reverse_type": WRITES}, "reverse type: expected edges from node to node"),
    ],
)
def test_bad_options_are_named_and_leave_nothing(store, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        lsm.LinkSplits.make(store, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    assert list(tmp_path.glob(".out*")) == []


def test_splits_and_stores_are_told_apart(store):
    splits = lsm.LinkSplits.make(store)
    with pytest.raises(ValueError, match="got splits of its edges"):
        lsm.GraphStore.open(splits.path)
    with pytest.raises(ValueError, match="expected splits of edges, got a store"):
        lsm.LinkSplits.open(store.path)
    with pytest.raises(FileNotFoundError, match="split-links"):
        lsm.LinkSplits.open(store.path / "nothing")
    with pytest.raises(FileExistsError):
        lsm.LinkSplits.make(store)
    for kind, opened in (
        (lsm.GraphStore, store),
        (lsm.LinkSplits, store),
        (lsm.LinkSplits, splits),
    ):
        told = f"path: expected a path, got {type(opened).__name__}, which is open; its path is "
        with pytest.raises(TypeError, match=told + str(opened.path)):
            kind.open(opened)


def test_arguments_of_make_are_checked(store, tmp_path):
    by_path = lsm.LinkSplits.make(store.path, tmp_path / "by-path", seed=3)
    expected = lsm.LinkSplits.make(store, tmp_path / "by-store", seed=3)
    assert torch.equal(by_path.edges("test"), expected.edges("test"))
    with pytest.raises(TypeError, match="make: unknown argument vald; did you mean valid"):
        lsm.LinkSplits.make(store, tmp_path / "other", vald=0.1)
    with pytest.raises(TypeError, match="store: expected a GraphStore or its path, got LinkSplits"):
        lsm.LinkSplits.make(expected, tmp_path / "other")


def test_force_replaces_no_store_by_its_splits(tmp_path):
    store = lsm.GraphStore.from_pyg(graph(), tmp_path / "g")
    with pytest.raises(FileExistsError, match="holds a graph, so it is not replaced by splits"):
        lsm.LinkSplits.make(store, store.path, force=True)
    assert lsm.GraphStore.open(store.path).num_edges == store.num_edges
    splits = lsm.LinkSplits.make(store, tmp_path / "links")
    with pytest.raises(FileExistsError, match="splits of edges, so it is not replaced by a graph"):
        lsm.GraphStore.from_pyg(graph(), splits.path, force=True)
    assert lsm.LinkSplits.make(store, splits.path, force=True).num_edges == splits.num_edges


def test_a_full_disk_names_the_file_of_the_splits(tmp_path, disk):
    store = lsm.GraphStore.from_pyg(graph(num_edges=700_000), tmp_path / "g")
    told = r"disk full: .*; free some space or choose another path: '.*/disk/links/\w"
    with pytest.raises(OSError, match=told) as error:
        lsm.LinkSplits.make(store, disk / "links", order="random")
    assert error.value.filename.startswith(f"{disk}/links/")
    assert list(disk.iterdir()) == []


def test_the_command_writes_splits(store, capsys):
    from typer.testing import CliRunner

    from lsm.cli import app

    runner = CliRunner()
    found = runner.invoke(app, ["data", "split-links", str(store.path), "--test", "0.25"])
    assert found.exit_code == 0, found.output
    assert "g.links: node,to,node, train" in found.output
    info = runner.invoke(app, ["data", "info", "--json", f"{store.path}.links"])
    assert json.loads(info.output)["splits"]["test"] > 100
    for option in ("--order", "--message-edges"):
        wrong = runner.invoke(app, ["data", "split-links", str(store.path), option, "x"])
        assert wrong.exit_code == 2
        assert option in wrong.output
