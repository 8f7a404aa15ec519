"""Scores of pairs and best targets by a run of links, against all rows at once."""

import json

import numpy as np
import pytest
import torch

import lsm
from lsm.inference import link_outputs, pair_scores
from lsm.train.trainer import train
from support.link_runs import NUM_NODES, learn, link_store, rows_of, typed_link_store
from support.training import LSM, config, make_store, run_forked, run_job

TYPED = ("model.name=rsage", "links.scorer=mlp", "links.out_dim=9")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return link_store(tmp_path_factory.mktemp("links"))


@pytest.fixture(scope="module", params=["dot", "distmult", "mlp"])
def run(request, store, tmp_path_factory):
    return learn(store, tmp_path_factory.mktemp("run") / "run", f"links.scorer={request.param}")


@pytest.fixture(scope="module")
def dot_run(store, tmp_path_factory):
    return learn(store, tmp_path_factory.mktemp("dot") / "run")


@pytest.fixture
def small(monkeypatch):
    """Sizes that make several groups of a few pairs."""
    monkeypatch.setattr(link_outputs, "LEAST_PAIRS", 64)
    monkeypatch.setattr(pair_scores, "LEAST_PAIRS", 64)
    monkeypatch.setattr(pair_scores, "CALL_PAIRS", 16)


def pairs(num=1000, seed=3):
    return torch.randint(NUM_NODES, (2, num), generator=torch.Generator().manual_seed(seed))


def test_scores_are_those_of_all_rows(run, tmp_path):
    given = pairs()
    summary = lsm.predict(run, None, tmp_path / "out", links=given, progress=False)
    assert summary["links"] == 1000
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [
        "inference.json",
        "scores.npy",
    ]
    rows, scorer = rows_of(run, tmp_path / "rows"), lsm.load_model(run).scorer
    with torch.no_grad():
        expected = scorer(rows[given[0]], rows[given[1]]).numpy()
    found = np.load(tmp_path / "out" / "scores.npy")
    assert found.dtype == np.float32
    assert found.shape == (1000,)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_scores_have_the_same_bits_whatever_is_at_once(run, tmp_path, small, monkeypatch):
    found = []
    for number, most in enumerate([64, 192, 100_000]):

        class Small(pair_scores.PairScorer):
            sizes = most, 7 * (number + 1) ** 4

            def __init__(self, *arguments):
                super().__init__(*arguments)
                self.most_pairs, self._block_rows = self.sizes

        monkeypatch.setattr(link_outputs, "PairScorer", Small)
        out = tmp_path / str(number)
        lsm.predict(run, None, out, links=pairs(), num_threads=number + 1, progress=False)
        found.append(np.load(out / "scores.npy"))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_the_command_scores_a_file_and_continues_after_a_kill(
    dot_run, tmp_path, small, monkeypatch
):
    given = pairs(500)
    (tmp_path / "p.csv").write_text("".join(f"{a},{b}\n" for a, b in given.t().tolist()))
    command = ("predict", dot_run, "--links", tmp_path / "p.csv", "--no-progress")
    done = run_forked(LSM, *command, "--out", tmp_path / "whole")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["links"] == 500
    monkeypatch.setattr(link_outputs, "_MOST_PAIRS", 64)
    write, out, count = link_outputs.ArrayFile.write, tmp_path / "out", []

    def write_some(array, first, values):
        count.append(first)
        if array.path.name == "scores.npy" and first >= 192:
            raise OSError("the disk is gone")
        write(array, first, values)

    with monkeypatch.context() as patch:
        patch.setattr(link_outputs.ArrayFile, "write", write_some)
        with pytest.raises(OSError, match="the disk is gone"):
            lsm.predict(dot_run, None, out, links=tmp_path / "p.csv", progress=False)
    assert not (out / "scores.npy").exists()
    with pytest.raises(ValueError, match="an unfinished inference with another links"):
        lsm.predict(dot_run, None, out, links=given.flip(0), progress=False)
    count.clear()
    with monkeypatch.context() as patch:
        patch.setattr(link_outputs.ArrayFile, "write", lambda *a: (count.append(a[1]), write(*a)))
        lsm.predict(dot_run, None, out, links=tmp_path / "p.csv", progress=False)
    assert count == [192, 256, 320, 384, 448]  # neither rows of nodes, nor the first pairs
    assert np.array_equal(np.load(out / "scores.npy"), np.load(tmp_path / "whole" / "scores.npy"))


@pytest.mark.slow
def test_ranks_share_the_pairs(dot_run, tmp_path):
    np.save(tmp_path / "p.npy", pairs(70_000).numpy())
    command = ["predict", dot_run, "--links", tmp_path / "p.npy", "--no-progress"]
    for world in (1, 3):
        run_job(world, LSM, *command, "--out", tmp_path / str(world))
    one, three = (np.load(tmp_path / str(world) / "scores.npy") for world in (1, 3))
    assert np.array_equal(one, three)


def test_few_pairs_compute_few_nodes(store, dot_run, tmp_path, monkeypatch):
    computed = []
    write = link_outputs.ArrayFile.write

    def count(array, first, rows):
        if array.path.name.startswith("level"):
            computed.append(len(rows))
        write(array, first, rows)

    monkeypatch.setattr(link_outputs.ArrayFile, "write", count)
    given = torch.tensor([[3, 3], [9, 200]])
    summary = lsm.predict(dot_run, None, tmp_path / "out", links=given, progress=False)
    assert summary["route"] == "gather"
    assert sum(computed) < NUM_NODES / 2
    rows = rows_of(dot_run, tmp_path / "rows")
    expected = (rows[given[0]] * rows[given[1]]).sum(1).numpy()
    assert np.allclose(np.load(tmp_path / "out" / "scores.npy"), expected, rtol=1e-4, atol=1e-5)


def test_scores_between_two_types(tmp_path):
    run = learn(typed_link_store(tmp_path), tmp_path / "run", *TYPED)
    given = torch.stack((torch.randint(80, (300,)), torch.randint(90, (300,))))
    lsm.predict(run, None, tmp_path / "out", links=given, progress=False)
    users, items = (rows_of(run, tmp_path / name, name) for name in ("user", "item"))
    with torch.no_grad():
        expected = lsm.load_model(run).scorer(users[given[0]], items[given[1]]).numpy()
    found = np.load(tmp_path / "out" / "scores.npy")
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    bad = torch.tensor([[0, 80], [0, 0]])
    with pytest.raises(ValueError, match=r"pair 1: 80 is no node of type user: .* 0 to 79"):
        lsm.predict(run, None, tmp_path / "bad", links=bad, progress=False)
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"links": pairs(), "top_k": 3}, "--top-k: expected none with --links"),
        ({"links": pairs(), "nodes": "test"}, "--nodes: expected none with --links, got test"),
        ({"links": pairs(), "outputs": ["scores"]}, "--outputs: expected none with --links"),
        ({"top_k": 3, "dtype": "float16"}, "--dtype: expected none with --top-k, got float16"),
        ({"top_k": 3, "route": "sampled"}, "--route: expected none with --top-k, got sampled"),
        ({"links": pairs(), "format": "parquet"}, "--format: expected none with --links"),
        ({"exclude_known": False}, "--no-exclude-known: expected with --top-k only"),
        ({"top_k": 0}, "--top-k: expected 1 to 300, the nodes of type node, got 0"),
        ({"top_k": 301}, "--top-k: expected 1 to 300, the nodes of type node, got 301"),
        ({"top_k": 3, "nodes": torch.tensor([300])}, "--nodes: .* 0 to 299 of type node, got 300"),
        ({"top_k": 3, "nodes": torch.tensor([])}, "--nodes: expected at least one node, got none"),
        ({"links": pairs() + 1}, "--links: pair [0-9]+: 300 is no node of type node"),
        ({"links": pairs(), "memory_bytes": "1MiB"}, "--memory-bytes: expected at least"),
    ],
)
def test_bad_options_leave_nothing(dot_run, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        lsm.predict(dot_run, None, tmp_path / "out", progress=False, **options)
    assert not (tmp_path / "out").exists()


def test_a_run_of_nodes_scores_no_links(tmp_path):
    store = make_store(tmp_path / "store")
    train(config(store, tmp_path / "run", "train.epochs=1"))
    for options in ({"links": pairs()}, {"top_k": 3}):
        with pytest.raises(ValueError, match=r"expected a run with train\.task=link"):
            lsm.predict(tmp_path / "run", None, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
