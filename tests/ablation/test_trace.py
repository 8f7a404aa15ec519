"""Traces: the requests of training, in a file that is checked when it is read."""

import numpy as np
import pytest
import torch

from lsm.ablation.trace import Trace
from lsm.ablation.trace_sampling import sample_trace
from lsm.comm.owners import owners
from lsm.data.graph_store import GraphStore
from lsm.data.synth import synthesize
from lsm.loader.neighbor_loader import NeighborLoader
from lsm.sampler.options import Sampling
from lsm.storage.options import StorageOptions
from reference import unique_relabel
from reference.hashing import owner
from support.command import lsm
from support.shared_sets import make_typed_store

FANOUT = [3, 2]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """210 training nodes in 2 ranks of 16: seven iterations per epoch, the last one short."""
    path = tmp_path_factory.mktemp("trace") / "store"
    return synthesize(
        path,
        nodes=300,
        dim=2,
        classes=3,
        train_fraction=0.7,
        valid_fraction=0.3,
        test_fraction=0.0,
        seed=5,
        progress=False,
    )


def make_trace(lists, num_nodes=10, num_ranks=1, **more):
    """A trace of the request lists, iteration by iteration and in it rank by rank."""
    return Trace(
        ids=np.array([node for one in lists for node in one], np.int64),
        offsets=np.cumsum([0, *map(len, lists)]),
        num_nodes=num_nodes,
        num_ranks=num_ranks,
        **more,
    )


@pytest.mark.parametrize(
    "sampling", ["neighbor", "labor", Sampling("labor", True, batch_dependency=5)], ids=str
)
def test_a_sampled_trace_is_what_the_loaders_of_all_ranks_request(store, sampling):
    per_epoch = -(-len(store.split("train")) // 32)
    iterations = per_epoch + 2
    trace = sample_trace(
        store,
        FANOUT,
        16,
        ranks=2,
        iterations=iterations,
        seed=3,
        sampling=sampling,
        num_threads=2,
        progress=False,
    )
    assert (trace.num_ranks, trace.num_iterations) == (2, iterations)
    for rank in range(2):
        with NeighborLoader(
            store,
            FANOUT,
            "train",
            16,
            shuffle=True,
            seed=3,
            rank=rank,
            world_size=2,
            sampling=sampling,
            storage=StorageOptions(engine="memory"),
        ) as loader:
            assert len(loader) == per_epoch
            batches = [batch.n_id for epoch in range(2) for batch in loader.iterate(epoch)]
        for t, n_id in enumerate(batches[:iterations]):
            assert trace.request_list(t, rank).tolist() == n_id.tolist()


def test_the_trace_does_not_depend_on_threads(store):
    one, many = (
        sample_trace(store, FANOUT, 16, ranks=3, seed=1, num_threads=threads, progress=False)
        for threads in (1, 5)
    )
    assert np.array_equal(one.ids, many.ids)
    assert np.array_equal(one.offsets, many.offsets)


def test_a_saved_trace_reads_back(store, tmp_path):
    trace = sample_trace(store, FANOUT, 16, ranks=2, score="in_degree", progress=False)
    assert np.array_equal(trace.static_score, store.score("in_degree").numpy())
    trace.save(tmp_path / "t.npz")
    read = Trace.load(tmp_path / "t.npz")
    for key in ("ids", "offsets", "static_score"):
        assert np.array_equal(getattr(read, key), getattr(trace, key)), key
    assert (read.num_nodes, read.num_ranks) == (300, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["t.npz"]


def test_owners_see_the_union_of_the_lists_in_request_order():
    lists = [[4, 1, 2, 7], [7, 2, 3, 0], [5], []]
    trace = make_trace(lists, num_ranks=2)
    assert trace.mean_list == 9 / 4
    assert [ids.tolist() for ids in trace.owner_batches(0)] == [[4, 2, 0], []]
    assert [ids.tolist() for ids in trace.owner_batches(1)] == [[1, 7, 3], [5]]
    independent = [ids.tolist() for ids in trace.owner_batches(1, shared=False)]
    assert independent == [[7, 2, 3, 0], []]
    assert all(ids.dtype == torch.int64 for ids in trace.owner_batches(0))


@pytest.mark.parametrize("hash", ["stride", "mix64"])
def test_every_request_has_one_owner(store, hash):
    trace = sample_trace(store, FANOUT, 16, ranks=3, progress=False)
    parts = [trace.owner_batches(rank, hash) for rank in range(3)]
    for t, of_owners in enumerate(zip(*parts, strict=True)):
        requested = np.concatenate([trace.request_list(t, rank) for rank in range(3)])
        everything = unique_relabel(requested)[0]
        for rank, ids in enumerate(of_owners):
            expected = everything[owners(everything, 3, hash) == rank]
            assert ids.tolist() == expected.tolist()


def test_owners_are_those_of_the_reference():
    ids = [0, 1, 17, 2**31, 2**40 - 1]
    for hash in ("stride", "mix64"):
        expected = [owner(node, 7, hash) for node in ids]
        assert owners(np.array(ids), 7, hash).tolist() == expected
    with pytest.raises(ValueError, match="hash: expected one of stride, mix64, got 'md5'"):
        owners(np.array(ids), 7, "md5")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"ids": np.array([0, 1, 2, 10, 3])},
            r"list 1 \(iteration 0, rank 1\), position 1: expected an id of 0 to 9, got 10",
        ),
        ({"ids": np.array([0, -1, 2, 4, 3])}, r"list 0 .*, position 1: .* got -1"),
        (
            {"ids": np.array([0, 1, 2, 2, 3])},
            r"list 1 \(iteration 0, rank 1\), position 1: expected no id twice in a list, got 2, "
            "which is at position 0 too",
        ),
        ({"ids": np.zeros(5, np.int32)}, r"ids: expected int64 \[n\], got int32 \[5\]"),
        ({"offsets": np.array([0, 2, 4, 4])}, r"offsets: expected T \* 2 \+ 1 of them.* got 4"),
        ({"offsets": np.array([0])}, "offsets: expected T"),
        (
            {"offsets": np.array([0, 2**63 - 1, -2, 4, 5])},  # differences wrap around
            r"offsets: expected not to fall, got 9223372036854775807 then -2 at position 2",
        ),
        ({"offsets": np.array([0, 2, 4, 4, 4])}, r"offsets: expected to go from 0 to .*\(5\)"),
        ({"offsets": np.array([0, 4, 2, 4, 5])}, "got 4 then 2 at position 2"),
        ({"num_nodes": 0}, "num_nodes: expected at least 1, got 0"),
        ({"num_ranks": 0}, "num_ranks: expected at least 1, got 0"),
        ({"num_nodes": np.zeros(2, np.int64)}, r"num_nodes: expected one integer, got int64 \[2\]"),
        ({"static_score": np.zeros(4, np.float32)}, r"static_score: expected float32 \[10\]"),
        ({"static_score": np.zeros(10)}, r"static_score: expected float32 \[10\], got float64"),
        (
            {"static_score": np.array([0] * 7 + [np.nan, -1, 0], np.float32)},
            "static_score: expected finite values of at least 0, got nan at node 7",
        ),
        ({"offsets": None}, "offsets: missing from the trace"),
        (
            {"ids": np.zeros(0, np.int64), "offsets": np.zeros(5, np.int64)},
            "ids: expected at least one request, got none",
        ),
    ],
)
def test_a_bad_trace_is_refused_with_the_place_that_is_wrong(tmp_path, change, message):
    arrays = {
        "ids": np.array([0, 1, 2, 4, 3]),
        "offsets": np.array([0, 2, 4, 4, 5]),
        "num_nodes": 10,
        "num_ranks": 2,
    }
    np.savez(tmp_path / "good.npz", **arrays)
    assert Trace.load(tmp_path / "good.npz").num_iterations == 2
    changed = {key: value for key, value in (arrays | change).items() if value is not None}
    np.savez(tmp_path / "bad.npz", **changed)
    with pytest.raises(ValueError, match=message) as caught:
        Trace.load(tmp_path / "bad.npz")
    assert str(caught.value).startswith(f"{tmp_path / 'bad.npz'}: ")


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (lambda trace: b"", "an empty file"),
        (lambda trace: b"0 1 2\n3 4\n", "a file of another kind"),
        (lambda trace: b"\x80\x04N.", "a file of another kind"),  # a pickle
        (lambda trace: trace[: len(trace) // 2], "one that is damaged or cut short"),
        (lambda trace: trace[:-1], "one that is damaged or cut short"),
        (lambda trace: trace[:300] + b"~~~~" + trace[304:], "one that is damaged or cut short"),
        (lambda trace: b"\x93NUMPY" + trace, r"one array \(\.npy\)"),
    ],
)
def test_what_is_no_trace_is_said(tmp_path, content, got):
    path = tmp_path / "t.npz"
    np.savez(path, ids=np.arange(100), offsets=np.array([0, 100]), num_nodes=100, num_ranks=1)
    path.write_bytes(content(path.read_bytes()))
    expected = r"t\.npz: expected a trace \(\.npz\) written by `lsm trace`, got "
    with pytest.raises(ValueError, match=rf"{expected}{got}$"):
        Trace.load(path)


def test_an_array_is_no_trace(tmp_path):
    np.save(tmp_path / "t.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"t\.npy: expected a trace .* got one array \(\.npy\)$"):
        Trace.load(tmp_path / "t.npy")
    with pytest.raises(FileNotFoundError):
        Trace.load(tmp_path / "none.npz")


def test_the_command_writes_the_trace(store, tmp_path, monkeypatch, capsys):
    options = ["--num-neighbors", "3,2", "--batch-size", 16, "--ranks", 2, "--seed", 3]
    out = tmp_path / "t.npz"
    score = ["--score", "reverse_pagerank"]
    assert lsm(monkeypatch, "trace", store.path, "--out", out, *options, *score) == 0
    trace = Trace.load(out)
    expected = sample_trace(store, FANOUT, 16, ranks=2, seed=3, progress=False)
    assert np.array_equal(trace.ids, expected.ids)
    assert trace.static_score.sum() == pytest.approx(1, rel=1e-5)
    assert f"{len(trace.ids):,} requests" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--num-neighbors", "3,x"], "--num-neighbors: expected whole numbers"),
        (["--batch-size", 0], "batch_size: expected at least 1, got 0"),
        (["--ranks", 0], "ranks: expected at least 1, got 0"),
        (["--iterations", 0], "iterations: expected at least 1, got 0"),
        (["--iterations", 2, "--epochs", 1], "expected one of them, got both"),
        (["--score", "luck"], "score: expected one of in_degree, reverse_pagerank, presample"),
        (["--split", "test"], "split 'test' is empty"),
        (["--out", "nowhere/t.npz"], "--out: nowhere: no such directory"),
    ],
)
def test_a_mistake_is_one_line(store, tmp_path, monkeypatch, capsys, options, message):
    monkeypatch.chdir(tmp_path)
    assert lsm(monkeypatch, "trace", store.path, "--out", "t.npz", *options) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(tmp_path, monkeypatch):
    def fail(file, **_arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    trace = Trace(np.arange(3), np.array([0, 3]), num_nodes=3, num_ranks=1)
    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match=r"cannot write .*t\.npz \(No space left on device\)"):
        trace.save(tmp_path / "t.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def typed_store(tmp_path_factory):
    return GraphStore.open(make_typed_store(tmp_path_factory.mktemp("typed") / "store"))


@pytest.mark.parametrize("types", [["paper"], ["editor", "author"], ["paper", "paper"]])
def test_a_trace_of_types_is_what_the_loaders_request_of_them(typed_store, types):
    arguments = {"ranks": 2, "seed": 3, "progress": False}
    trace = sample_trace(typed_store, FANOUT, 16, types=types, score="in_degree", **arguments)
    space = typed_store.node_space
    assert trace.num_nodes == space.num_nodes
    requested = np.zeros(space.num_nodes, bool)
    for rank in range(2):
        with NeighborLoader(
            typed_store,
            FANOUT,
            ("paper", "train"),
            16,
            shuffle=True,
            seed=3,
            rank=rank,
            world_size=2,
            storage={"engine": "memory"},
        ) as loader:
            assert len(loader) == trace.num_iterations
            for t, batch in enumerate(loader):
                of_types = [name for name in space.types if name in types]
                ids = [space.to_global(name, batch.n_id_dict[name]) for name in of_types]
                expected = torch.cat(ids).numpy()
                requested[expected] = True
                assert np.array_equal(trace.request_list(t, rank), expected)
    assert requested.any()
    score = typed_store.score("in_degree").numpy()
    for name, first in space.offsets.items():
        nodes = slice(first, first + space.counts[name])
        assert np.array_equal(trace.static_score[nodes], score[nodes] * (name in types))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "rows of one size, got rows of paper 96 bytes, author 40 bytes"),
        (["--types", "paper,tag"], "got rows of paper 96 bytes, tag no bytes; name some by"),
        (
            ["--types", "papers"],
            "types: expected types of nodes (tag, paper, author, editor",
        ),
        (["--types", "author,writes,paper"], "editor, venue), got 'writes'"),
        (
            ["--types", "paper", "--input-type", "x"],
            "input_type: expected types of nodes (tag",
        ),
        (["--types", "paper", "--split", "valid"], "has no type with split 'valid'; name one by"),
    ],
)
def test_types_that_cannot_be_traced_are_one_line(
    typed_store, tmp_path, monkeypatch, capsys, options, message
):
    monkeypatch.chdir(tmp_path)
    assert lsm(monkeypatch, "trace", typed_store.path, "--out", "t.npz", *options) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not list(tmp_path.iterdir())


def test_types_of_a_store_without_types_are_refused(store):
    with pytest.raises(ValueError, match="has one type of nodes"):
        sample_trace(store, FANOUT, 16, types=["node"])
