"""A run of embeddings records its starts as one of training does."""

import json
import logging

from lsm.embed.config import load_embed_config
from lsm.embed.trainer import train
from support.triples import config


def test_a_run_that_continues_says_so_and_appends_to_its_records(store, tmp_path, caplog):
    run = tmp_path / "run"
    first = train(config(store, run, "train.epochs=1"))
    assert first["run_dir"] == str(run)
    assert (first["store"], first["config"]) == (str(store), str(run / "config.yaml"))
    with caplog.at_level(logging.INFO):
        train(load_embed_config(run / "config.yaml", ["train.epochs=2"]))
    assert f"continuing from {run / 'state.json'} (epoch 2, iteration 0)" in caplog.messages
    starts = json.loads((run / "run.json").read_text())["starts"]
    assert [start["ended"] for start in starts] == ["finished", "finished"]
    log = (run / "run.log").read_text()
    assert "epoch   1/1" in log
    assert "epoch   2/2" in log
    kept = load_embed_config(run / "config.yaml", [])
    # The model is named, even if auto chose it: the run is read by it.
    model = f"embed.model={kept.embed.model}"
    assert kept == config(store, run, "train.epochs=2", model)
    assert kept.embed.model != "auto"


def test_files_that_a_killed_process_left_half_written_are_removed(store, tmp_path):
    run = tmp_path / "run"
    train(config(store, run, "train.epochs=1"))
    for resume in ("auto", "never"):
        for name in ("relations-000001-00000068.bin", "state.json"):
            (run / f".{name}.4711.tmp").write_bytes(b"half")
        train(config(store, run, "train.epochs=2", f"checkpoint.resume={resume}"))
        assert not list(run.glob(".*.tmp"))
