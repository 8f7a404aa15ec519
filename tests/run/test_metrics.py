"""metrics.jsonl survives damage and the end of the machine as far as it can."""

import json
import os

import pytest

from lsm.run.metrics import JsonLines
from lsm.train import checkpoint
from lsm.train.trainer import train
from support.training import config

STEPS = [{"kind": "step", "epoch": 1, "iteration": i, "loss": i / 8} for i in range(6)]
END = '{"kind": "step", "epo'


@pytest.mark.parametrize("damage", [b"\xff", b"\0" * 40, b"}", b"\n"])
def test_lines_after_a_damaged_one_are_kept(tmp_path, caplog, damage):
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps(step).encode() + b"\n" for step in STEPS]
    lines[2] = lines[2][:9] + damage + lines[2][9 + len(damage) :]
    path.write_bytes(b"".join(lines) + END.encode())
    JsonLines(path, (0, 5)).close()
    kept = [json.loads(line)["iteration"] for line in path.read_text().splitlines()]
    assert kept == [0, 1, 3, 4]
    num_damaged = 2 if damage == b"\n" else 1  # a line became two
    assert f"{path}: {num_damaged} damaged lines are left out" in caplog.text


def test_a_line_that_a_kill_cut_short_is_no_damage(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(step) + "\n" for step in STEPS) + END)
    JsonLines(path, (0, 4)).close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == STEPS[:4]
    assert caplog.text == ""


def test_lines_before_a_checkpoint_are_as_durable_as_it(store, tmp_path, monkeypatch):
    """A machine that loses power keeps the files that were synced."""
    sync, save, checked = os.fsync, checkpoint.save, []
    durable = {}

    def synced(descriptor):
        durable[os.fstat(descriptor).st_ino] = os.fstat(descriptor).st_size
        sync(descriptor)

    def saved(directory, state, *arguments):
        found = (directory.parent / "metrics.jsonl").stat()
        checked.append(durable.get(found.st_ino) == found.st_size > 0)
        return save(directory, state, *arguments)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(checkpoint, "save", saved)
    train(config(store, tmp_path, "checkpoint.every_steps=3"))
    assert len(checked) > 3
    assert all(checked)
