"""A run of embeddings records its starts as one of training does."""

import csv
import json
import logging

from lsm.embed.config import load_embed_config
from lsm.embed.trainer import train
from support.triples import SIX_PARTITIONS, config


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


def test_logged_iterations_count_those_of_all_epochs_before(store, tmp_path):
    """Epochs have more or fewer iterations, as partitions are loaded in another order in each. A
    run that continues logs each once, as one that was never interrupted."""
    settings = (*SIX_PARTITIONS, "embed.rounds=2", "train.batch_size=8")
    settings += ("metrics.loggers=csv", "metrics.log_every=1")
    train(config(store, tmp_path / "whole", *settings, "train.epochs=4"))
    records = map(json.loads, (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines())
    steps = [record for record in records if record["kind"] == "step"]
    assert len({sum(step["epoch"] == epoch for step in steps) for epoch in range(1, 5)}) > 1
    for epochs in (1, 2, 4):
        train(config(store, tmp_path / "parts", *settings, f"train.epochs={epochs}"))
    for run in ("whole", "parts"):
        with open(tmp_path / run / "steps.csv", newline="") as file:
            lines = list(csv.DictReader(file))
        assert [int(line["iteration"]) for line in lines] == list(range(len(steps)))
        assert [float(line["loss"]) for line in lines] == [step["loss"] for step in steps]


def test_files_that_a_killed_process_left_half_written_are_removed(store, tmp_path):
    run = tmp_path / "run"
    train(config(store, run, "train.epochs=1"))
    for resume in ("auto", "never"):
        for name in ("relations-000001-00000068.bin", "state.json"):
            (run / f".{name}.4711.tmp").write_bytes(b"half")
        train(config(store, run, "train.epochs=2", f"checkpoint.resume={resume}"))
        assert not list(run.glob(".*.tmp"))
