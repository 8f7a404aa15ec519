"""``lsm embed train`` and ``lsm embed eval``: the last line, and one line for each mistake."""

import json
import re

import pytest

from lsm.cli.embed import train_command
from lsm.embed.run import EmbeddingRun
from lsm.embed.trainer import EmbedTrainer
from support.command import lsm
from support.training import make_store
from support.triples import make_triples, overrides


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    return {
        "triples": make_triples(folder / "triples"),
        "edges": make_triples(folder / "edges", relations=0),
        "nodes": make_store(folder / "nodes"),
    }


def test_the_last_line_is_the_summary_and_eval_finds_the_same(
    monkeypatch, capsys, stores, tmp_path
):
    settings = overrides(stores["triples"], tmp_path, "embed.partitions=4")
    assert lsm(monkeypatch, "embed", "train", "embed/base", *settings) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    names = "test_mrr test_hits_at_10 epochs world_size partitions bytes_read bytes_written seconds"
    assert set(names.split()) <= set(summary)
    assert (summary["epochs"], summary["world_size"], summary["partitions"]) == (2, 1, 4)
    assert min(summary["bytes_read"], summary["bytes_written"]) > 0
    assert json.loads((tmp_path / "result.json").read_text()) == summary
    assert lsm(monkeypatch, "embed", "eval", tmp_path) == 0
    found = json.loads(capsys.readouterr().out)
    for name in ("test_mrr", "test_hits_at_1", "test_hits_at_10"):
        assert found[name] == pytest.approx(summary[name], abs=1e-12)
    assert found["protocol"] == summary["protocol"]
    sampled = ("eval.candidates=uniform", "eval.sample=50", "eval.filtered=false")
    assert lsm(monkeypatch, "embed", "eval", tmp_path, *sampled, "--split", "valid") == 0
    assert json.loads(capsys.readouterr().out)["protocol"].startswith("raw, both sides, 50 uniform")


def test_dot_trains_edges_without_relations(monkeypatch, capsys, stores, tmp_path):
    settings = overrides(stores["edges"], tmp_path, "embed.model=dot", "embed.partitions=4")
    assert lsm(monkeypatch, "embed", "train", "base", *settings) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["test_mrr"] > 0


@pytest.mark.parametrize(
    ("store", "model", "reason"),
    [("edges", "dot", "has no relations"), ("triples", "complex", "has 3 relations")],
)
def test_auto_takes_a_model_that_fits_the_store(
    monkeypatch, capsys, stores, tmp_path, store, model, reason
):
    """It is said, kept in the run, and continued by name as by auto."""
    settings = overrides(stores[store], tmp_path, "embed.model=auto", "train.epochs=1")
    assert lsm(monkeypatch, "embed", "train", "base", *settings) == 0
    said = capsys.readouterr()
    assert f"embed.model=auto: {model}, as {stores[store]} {reason}" in said.out + said.err
    assert EmbeddingRun.open(tmp_path).config.embed.model == model
    more = [*settings, f"embed.model={model}", "train.epochs=2"]
    assert lsm(monkeypatch, "embed", "train", "base", *more) == 0
    said = capsys.readouterr()
    assert "embed.model=auto" not in said.out + said.err
    assert lsm(monkeypatch, "embed", "train", "base", *settings, "train.epochs=3") == 0
    assert EmbeddingRun.open(tmp_path).state.position.epoch == 3


@pytest.mark.parametrize(
    ("store", "changes", "message"),
    [
        ("triples", ["embed.buffer=2"], "embed.buffer: expected at least 3, got 2"),
        ("triples", ["embed.partitions=300"], "embed.partitions: expected at most"),
        ("triples", ["embed.partitions=200"], "embed.partitions: expected"),
        ("edges", ["embed.model=complex"], "embed.model: complex needs relations, and"),
        ("nodes", [], "data.path: "),
        ("triples", ["data.path=/nowhere"], "data.path: /nowhere: no such store directory"),
        ("triples", ["embed.dims=4"], "unknown key embed.dims; did you mean embed.dim"),
        ("triples", ["storage.chunk_bytes=5000"], "storage.chunk_bytes: expected a multiple"),
        ("triples", ["embed.lr=1e30"], "epoch 1, iteration "),
        ("triples", ["embed.order=legend", "embed.buffer=4", "embed.partitions=8"], "embed.order"),
    ],
)
def test_mistakes_are_one_line(monkeypatch, capsys, stores, tmp_path, store, changes, message):
    settings = overrides(stores[store], tmp_path / "run", *changes)
    assert lsm(monkeypatch, "embed", "train", "base", *settings) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("train", "the newest checkpoint is {}, and the same command continues"),
        ("fill_buffer", "no checkpoint was written"),
    ],
)
def test_ctrl_c_names_the_checkpoint(monkeypatch, stores, tmp_path, method, told):
    """Before the first state, and after it."""

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(EmbedTrainer, method, interrupt)
    settings = overrides(stores["triples"], tmp_path, "embed.partitions=4")
    with pytest.raises(KeyboardInterrupt, match=re.escape(told.format(tmp_path / "state.json"))):
        train_command("embed/base", settings)


def test_a_disk_too_small_is_said_before_training(monkeypatch, capsys, stores, disk):
    settings = overrides(stores["triples"], disk / "run", "embed.dim=8192")
    assert lsm(monkeypatch, "embed", "train", "base", *settings) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "needs 2 slots x 1 partitions x 15 MiB = 30 MiB, and its disk has 8 MiB" in lines[0]


def test_eval_of_another_directory_is_one_line(monkeypatch, capsys, tmp_path):
    assert lsm(monkeypatch, "embed", "eval", tmp_path) == 1
    assert "no run of `lsm embed train`" in capsys.readouterr().err
    assert lsm(monkeypatch, "embed", "eval", tmp_path, "embed.dim=4") == 1
