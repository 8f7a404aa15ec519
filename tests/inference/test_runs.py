"""Runs of `lsm train` in use: with types, from the command line, after a kill, over ranks."""

import itertools
import json
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import lsm
from lsm import native
from lsm.config.load import parse_config
from lsm.inference import driver, gather, typed_intervals
from lsm.train.prediction import check_route
from lsm.train.trainer import train
from support.training import LSM, config, make_store, run_forked, run_job, run_ranks
from support.typed_graphs import CITES, WRITES, typed_graph


def full_batch(store, ids, input_type=None):
    """One batch with all neighbours of ``ids``."""
    seeds = ids if input_type is None else (input_type, ids)
    with lsm.NeighborLoader(store, [-1, -1], seeds, batch_size=len(ids)) as loader:
        return next(iter(loader))


@pytest.mark.parametrize("name", ["rsage", "rgcn", "rgat", "hgt"])
def test_rows_of_a_graph_with_types_are_those_of_all_neighbours(name, tmp_path, monkeypatch):
    monkeypatch.setattr(gather, "BLOCK_EDGES", 64)
    data = typed_graph(seed=3)
    del data["paper"].time, data["paper", "about", "topic"].time  # all edges count
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store")
    more = [f"model.name={name}", "model.hidden_dim=16", "sampler.num_neighbors=[4,3]"]
    settings = config(
        tmp_path / "store", tmp_path / "run", *more, "train.epochs=1", "train.batch_size=8"
    )
    train(settings)
    model = lsm.load_model(tmp_path / "run")
    summary = lsm.predict(tmp_path / "run", None, tmp_path / "out", progress=False)
    assert summary["node_type"] == "paper"
    scores = torch.from_numpy(np.load(tmp_path / "out" / "paper" / "scores.npy"))
    with torch.no_grad():
        expected = model(full_batch(store, torch.arange(60), "paper"))
    assert (scores - expected).abs().max() <= 1e-5 * expected.abs().max()
    embeddings = torch.from_numpy(np.load(tmp_path / "out" / "paper" / "embeddings.npy"))
    with torch.no_grad():
        assert torch.allclose(model.output(embeddings), scores, atol=1e-5)
    some = torch.tensor([3, 59])
    lsm.predict(tmp_path / "run", store, tmp_path / "some", nodes=some, progress=False)
    found = torch.from_numpy(np.load(tmp_path / "some" / "paper" / "scores.npy"))
    assert (found - expected[some]).abs().max() <= 1e-5 * expected.abs().max()


def untimed_run(name, tmp_path, *removed):
    """A run of a network of types, and its store; all edges count, without values of theirs."""
    data = typed_graph(seed=3, papers=600)
    del data["paper"].time, data["paper", "about", "topic"].time
    for kind, key in removed:
        del data[kind][key]
    store = lsm.GraphStore.from_pyg(data, tmp_path / "store")
    more = [f"model.name={name}", "model.hidden_dim=16", "sampler.num_neighbors=[4,3]"]
    run = tmp_path / "run"
    train(config(store.path, run, *more, "train.epochs=1", "train.batch_size=64"))
    return run, store


@pytest.fixture(scope="module")
def of_types(tmp_path_factory):
    folder = tmp_path_factory.mktemp("of_types")
    return untimed_run("rgat", folder, (WRITES, "edge_weight"), (CITES, "edge_attr"))[0]


@pytest.mark.parametrize("name", ["rsage", "rgcn", "rgat"])
def test_intervals_give_the_rows_of_a_graph_with_types(name, tmp_path, monkeypatch):
    monkeypatch.setattr(typed_intervals, "CHUNK_ROWS", 8)
    monkeypatch.setattr(gather, "BLOCK_EDGES", 64)
    monkeypatch.setattr(driver, "_own_bytes", lambda: 0)
    values = (WRITES, "edge_weight"), (CITES, "edge_attr")
    run, store = untimed_run(name, tmp_path, *values)
    seen = []

    class Recorded(native.IntervalEdges):
        def __init__(self, *args):
            super().__init__(*args)
            seen.append((args[4] - args[3], self.num_batches))

    monkeypatch.setattr(native, "IntervalEdges", Recorded)

    def rows(out, route, memory, num_threads):
        options = {"route": route, "memory_bytes": memory, "num_threads": num_threads}
        summary = lsm.predict(run, store, tmp_path / out, progress=False, **options)
        assert summary["route"] == route
        folder = tmp_path / out / "paper"
        return [np.load(folder / f"{each}.npy") for each in ("embeddings", "scores")]

    found = rows("a", "intervals", 1 << 30, 3)
    assert (600, 1) in seen
    for number, memory in enumerate((140_000, 200_000)):
        again = rows(f"small{number}", "intervals", memory, 1)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found, again, strict=True))
    assert any(size < 600 and batches > 1 for size, batches in seen)
    with torch.no_grad():
        model = lsm.load_model(run)
        expected = model(full_batch(store, torch.arange(600), "paper")).numpy()
    assert np.abs(found[1] - expected).max() <= 1e-5 * np.abs(expected).max()
    for ours, theirs in zip(found, rows("b", "gather", 1 << 30, 2), strict=True):
        assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max()


def test_values_of_edges_are_no_intervals(tmp_path):
    run, store = untimed_run("rgat", tmp_path)
    with pytest.raises(ValueError, match=r"layer 1 of paper of the model .* use --route gather"):
        lsm.predict(run, store, tmp_path / "out", route="intervals")
    assert lsm.predict(run, store, tmp_path / "out", progress=False)["route"] == "gather"


def test_the_command_writes_the_rows_of_a_run(trained, store, tmp_path):
    done = run_forked(LSM, "predict", trained, "--out", tmp_path / "out", "--nodes", "test")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary == json.loads((tmp_path / "out" / "inference.json").read_text())
    opened = lsm.GraphStore.open(store)
    ids = np.load(tmp_path / "out" / "nodes.npy")
    assert ids.tolist() == sorted(opened.split("test").tolist())
    with torch.no_grad():
        expected = lsm.load_model(trained)(full_batch(opened, torch.from_numpy(ids)))
    scores = torch.from_numpy(np.load(tmp_path / "out" / "scores.npy"))
    assert (scores - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "embeddings.npy",
        "inference.json",
        "nodes.npy",
        "predictions.npy",
        "scores.npy",
    ]
    again = run_forked(LSM, "predict", trained, "--out", tmp_path / "out")
    assert again.returncode == 1
    assert again.stderr.startswith("error: --out: ")
    assert len(again.stderr.splitlines()) == 1


@pytest.mark.parametrize("kind", ["several", "values"])
def test_predictions_of_labels_and_numbers(kind, tmp_path):
    draw = torch.Generator().manual_seed(0)
    data = Data(
        x=torch.randn(60, 4, generator=draw), edge_index=torch.randint(60, (2, 200), generator=draw)
    )
    flags, values = torch.randint(2, (60, 3), generator=draw), torch.randn(60, 2, generator=draw)
    data.y = flags if kind == "several" else values
    for number, split in enumerate(("train", "val", "test")):
        data[f"{split}_mask"] = torch.arange(60) % 3 == number
    lsm.GraphStore.from_pyg(data, tmp_path / "store")
    loss = "bce" if kind == "several" else "mse"
    train(config(tmp_path / "store", tmp_path / "run", f"train.loss={loss}", "train.epochs=1"))
    out = tmp_path / "out"
    summary = lsm.predict(tmp_path / "run", None, out, progress=False)
    scores = np.load(out / "scores.npy")
    if kind == "values":
        assert scores.shape == (60, 2)
        assert sorted(summary["outputs"]) == ["embeddings", "scores"]
        with pytest.raises(
            ValueError, match="--outputs: a regression has no predictions but its scores"
        ):
            lsm.predict(tmp_path / "run", None, tmp_path / "more", outputs=["predictions"])
    else:
        predictions = np.load(out / "predictions.npy")
        assert predictions.dtype == np.uint8
        assert np.array_equal(predictions, scores > 0)


def test_a_changed_store_is_refused(trained, store, tmp_path):
    shutil.copytree(store, tmp_path / "store")
    meta = tmp_path / "store" / "meta.json"
    meta.write_text(re.sub(r'("sha256": ")....', r"\g<1>0000", meta.read_text(), count=1))
    with pytest.raises(ValueError, match="has changed since"):
        lsm.predict(trained, tmp_path / "store", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_store_is_refused(trained, tmp_path):
    other = make_store(tmp_path / "other", num_train=90)
    with pytest.raises(ValueError, match=r"is not the store that .* was trained on"):
        lsm.predict(trained, other, tmp_path / "out")
    assert not (tmp_path / "out").exists()


KILLED = """
import os, signal, sys
from lsm.inference import driver, gather, intervals, state, typed_intervals
gather.BLOCK_EDGES, gather._MOST_BLOCKS, intervals.CHUNK_ROWS = 256, 2, 32
typed_intervals.CHUNK_ROWS = 32
driver._own_bytes = lambda: 0
left = int(sys.argv[1])
add = state.State.add
def counted(self, *record):
    global left
    add(self, *record)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
state.State.add = counted
import lsm
route, memory = sys.argv[4:]
summary = lsm.predict(
    sys.argv[2], None, sys.argv[3], route=route, memory_bytes=memory, num_threads=1, progress=False
)
print(left)
"""


ROUTES = [("gather", "1GiB"), ("intervals", "100000")]
RUNS = [
    ("trained", ROUTES[0]),
    ("trained", ROUTES[1]),
    ("attending", ("intervals", "120000")),
    ("of_types", ("intervals", "400000")),
]


def written(out, name):
    """The bytes of an array."""
    (path,) = out.rglob(f"{name}.npy")
    return path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(("run", "route"), RUNS)
def test_a_killed_inference_continues_to_the_same_rows(run, route, tmp_path, request):
    trained = request.getfixturevalue(run)
    program = tmp_path / "killed.py"
    program.write_text(KILLED)

    def start(out, left):
        arguments = [program, left, trained, tmp_path / out, *route]
        return run_forked(*map(str, arguments))

    whole = start("whole", 1 << 30)
    assert whole.returncode == 0, whole.stderr
    num_records = (1 << 30) - int(whole.stdout)
    for left in (1, 3, num_records // 2):
        assert start("killed", left).returncode == -signal.SIGKILL
    done = start("killed", 1 << 30)
    assert done.returncode == 0, done.stderr
    assert (1 << 30) - int(done.stdout) <= num_records // 2  # what was done is not done again
    for name in ("embeddings", "scores", "predictions"):
        assert written(tmp_path / "killed", name) == written(tmp_path / "whole", name)
    assert not (tmp_path / "killed" / ".work").exists()


def test_an_inference_that_ends_as_it_removes_rows_continues(trained, tmp_path, monkeypatch):
    """Several times, at each second removal."""
    remove, ends, count = Path.unlink, [], itertools.count()

    def unlink(self, missing_ok=False):
        is_new = self.suffix == ".rows" and self.exists() and self.name not in ends
        if is_new and next(count) % 2:
            ends.append(self.name)
            raise KeyboardInterrupt
        remove(self, missing_ok)

    options = {"route": "intervals", "progress": False}
    lsm.predict(trained, None, tmp_path / "whole", **options)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", unlink)
        for _ in range(9):
            try:
                lsm.predict(trained, None, tmp_path / "out", **options)
                break
            except KeyboardInterrupt:
                continue
    assert ends
    names = [sorted(path.name for path in (tmp_path / out).iterdir()) for out in ("whole", "out")]
    assert names[0] == names[1]
    for name in ("embeddings", "scores", "predictions"):
        assert written(tmp_path / "out", name) == written(tmp_path / "whole", name)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b'{"job": 1, "boot": 2}'])
def test_a_damaged_state_is_named_with_the_remedy(trained, tmp_path, content):
    work = tmp_path / "out" / ".work"
    work.mkdir(parents=True)
    (work / "state.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"--out: .*state\.json is damaged .*; remove .*\.work to"):
        lsm.predict(trained, None, tmp_path / "out", progress=False)
    shutil.rmtree(work)
    lsm.predict(trained, None, tmp_path / "out", progress=False)
    assert not work.exists()


def test_another_job_does_not_continue_it(trained, tmp_path):
    program = tmp_path / "killed.py"
    program.write_text(KILLED)
    killed = run_forked(program, "2", trained, tmp_path / "out", *ROUTES[1])
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(ValueError, match="unfinished inference with another dtype"):
        lsm.predict(trained, None, tmp_path / "out", dtype="float16")
    summary = lsm.predict(trained, None, tmp_path / "out", progress=False)
    assert summary["nodes"] == 600


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_ranks", "run"), [(2, 0), (2, 2), (2, 3), (4, 0), (4, 1), (4, 2), (4, 3)]
)
def test_ranks_write_the_same_bits(num_ranks, run, tmp_path, request):
    name, route = RUNS[run]
    trained = request.getfixturevalue(name)
    program = tmp_path / "ranks.py"
    program.write_text(KILLED)
    alone = run_forked(program, str(1 << 30), trained, tmp_path / "alone", *route)
    assert alone.returncode == 0, alone.stderr
    done = run_job(num_ranks, program, str(1 << 30), trained, tmp_path / "ranks", *route)
    assert done.returncode == 0, done.stderr
    for name in ("embeddings", "scores", "predictions"):
        assert written(tmp_path / "ranks", name) == written(tmp_path / "alone", name)


@pytest.mark.slow
def test_ranks_without_a_common_folder_are_refused(trained, tmp_path):
    codes, errors = run_ranks(
        2, [["-m", "lsm", "predict", trained, "--out", tmp_path / str(rank)] for rank in range(2)]
    )
    assert codes == [1, 1]
    for (line,) in errors.values():
        assert f"--out: rank 1 does not see the folder {tmp_path / '0'} of rank 0" in line


@pytest.mark.slow
def test_ranks_with_other_options_are_refused(trained, tmp_path):
    commands = [
        ["-m", "lsm", "predict", trained, "--out", tmp_path / "out", "--dtype", dtype]
        for dtype in ("float32", "float16")
    ]
    codes, errors = run_ranks(2, commands)
    assert codes == [1, 1]
    (line,) = errors[0] or errors[1]
    assert "--dtype" in line
    assert "float16" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("differing", ["nodes", "model"])
def test_ranks_with_other_nodes_or_weights_are_refused(trained, tmp_path, differing):
    runs, nodes = [trained] * 2, ["train", "test"]
    if differing == "model":
        runs[1], nodes[1] = shutil.copytree(trained, tmp_path / "run"), "train"
        path = runs[1] / "model.pt"
        saved = torch.load(path)
        next(iter(saved.values())).view(-1)[0] += 1
        torch.save(saved, path)
    options = ["--out", tmp_path / "out", "--route", "gather"]
    commands = [
        ["-m", "lsm", "predict", run, *options, "--nodes", split]
        for run, split in zip(runs, nodes, strict=True)
    ]
    codes, errors = run_ranks(2, commands)
    assert codes == [1, 1]
    for (line,) in errors.values():
        assert f"ranks would compute different results: {differing} of rank 1 differ" in line
    assert not (tmp_path / "out").exists()


def test_an_open_route_of_a_run_with_times_names_the_routes_there_are():
    config = parse_config({"sampler": {"time_attr": "time"}})
    with pytest.raises(ValueError, match="give --route sampled, or gather to have them all"):
        check_route(config, "auto", of_links=False)
    with pytest.raises(ValueError, match="give --route gather to have them all"):
        check_route(config, "auto", of_links=True)
    check_route(config, "sampled", of_links=False)
