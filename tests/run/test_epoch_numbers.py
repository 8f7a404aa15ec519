"""Epochs count from 1 wherever a person reads them."""

import json

from lsm.run.metrics import JsonLines
from lsm.train.trainer import train
from support.training import config, losses, steps


def test_metrics_boards_and_summaries_count_from_1(store, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    changes = ("metrics.loggers=tensorboard", "metrics.log_every=1")
    summary = train(config(store, tmp_path, *changes))
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [r["epoch"] for r in records if r["kind"] == "epoch"] == [1, 2]
    assert [step["epoch"] for step in steps(tmp_path)] == [1] * 5 + [2] * 5
    best = max((r for r in records if r["kind"] == "epoch"), key=lambda r: r["valid_accuracy"])
    assert summary["best_epoch"] == best["epoch"]
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("epoch/loss")] == [1, 2]
    assert [event.step for event in events.Scalars("step/loss")] == list(range(10))


def test_lines_of_earlier_versions_count_from_1_after_a_resume(tmp_path):
    path = tmp_path / "metrics.jsonl"
    old = [
        {"kind": "step", "epoch": e, "iteration": i, "loss": 0.1} for e in (0, 1) for i in (0, 1)
    ]
    old.insert(2, {"kind": "epoch", "epoch": 0, "loss": 0.1})
    path.write_text("".join(json.dumps(record) + "\n" for record in old))
    for _ in range(2):  # the second time they count from 1 already
        JsonLines(path, (1, 1)).close()
        kept = [json.loads(line) for line in path.read_text().splitlines()]
        assert [(r["kind"], r["epoch"], r.get("iteration")) for r in kept] == [
            ("step", 1, 0),
            ("step", 1, 1),
            ("epoch", 1, None),
            ("step", 2, 0),
        ]


def test_a_resumed_run_goes_on_counting(store, tmp_path):
    train(config(store, tmp_path, "train.epochs=1"))
    train(config(store, tmp_path))
    assert [(epoch, i) for epoch, i, _ in losses(tmp_path)] == [
        (epoch, i) for epoch in (1, 2) for i in range(5)
    ]
