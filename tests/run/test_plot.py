"""`lsm plot` draws the numbers of metrics.jsonl."""

import json

import pytest
from typer.testing import CliRunner

from lsm.cli import app
from lsm.run.plot import draw_curves, read_curves
from lsm.train.trainer import train
from support.training import config, run_forked

STEP = {"kind": "step", "epoch": 1, "iteration": 0, "loss": 2.0}
EPOCH = {"kind": "epoch", "epoch": 1, "loss": 1.5, "valid_mrr": 0.25, "valid_secs": 1.0}
EPOCH |= {"valid_num_edges": 400}


def write_run(path, *records, end=""):
    path.mkdir()
    lines = [json.dumps(record) + "\n" for record in records]
    (path / "metrics.jsonl").write_text("".join(lines) + end)
    return path


def test_curves_are_the_numbers_of_the_records(tmp_path):
    steps = [STEP | {"epoch": e, "iteration": i, "loss": e + i / 4} for e in (1, 2) for i in (0, 1)]
    run = write_run(tmp_path / "a", *steps, EPOCH, end='{"kind": "st')
    curves = read_curves(run)
    assert curves.places == [0.5, 1.0, 1.5, 2.0]
    assert curves.losses == [1.0, 1.25, 2.0, 2.25]
    assert curves.metrics == [("valid", "mrr")]


def test_damaged_lines_are_left_out(tmp_path):
    run = write_run(tmp_path / "a", STEP, STEP | {"iteration": 1, "loss": 3.0}, EPOCH)
    content = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(content[:5] + b"\xff" + content[6:])
    curves = read_curves(run)
    assert curves.losses == [3.0]
    assert curves.epochs == [EPOCH]


def test_a_run_has_a_panel_for_each_metric(store, tmp_path):
    pytest.importorskip("matplotlib")
    cached = ("cache.policy=lru", "cache.bytes=8KiB")
    train(config(store, tmp_path / "a", *cached))
    answer = CliRunner().invoke(app, ["plot", str(tmp_path / "a")])
    assert answer.output == f"{tmp_path}/a/curves.png: loss, accuracy, rows from memory\n"
    for suffix in (".png", ".svg", ".pdf"):
        assert (tmp_path / "a" / "curves").with_suffix(suffix).stat().st_size > 1000
    drawn = (tmp_path / "a" / "curves.svg").read_text()
    assert "<!-- a, valid -->" in drawn
    assert "<!-- a, train -->" in drawn


def test_several_runs_share_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    runs = [write_run(tmp_path / name, STEP, EPOCH) for name in ("a", "b")]
    (tmp_path / "c").mkdir()
    runs.append(write_run(tmp_path / "c" / "a", STEP))  # no epoch has ended
    assert draw_curves(runs, tmp_path / "out.png") == ["loss", "mrr"]
    drawn = (tmp_path / "out.svg").read_text()
    assert f"<!-- {tmp_path}/a, valid -->" in drawn
    assert f"<!-- {tmp_path}/c/a -->" in drawn


# No file of more than 2 KiB can be written.
FULL = """
import resource, signal
from lsm.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
main()
"""


def test_a_picture_stays_if_another_cannot_be_written(tmp_path):
    pytest.importorskip("matplotlib")
    run, out = write_run(tmp_path / "a", STEP, EPOCH), tmp_path / "out.png"
    draw_curves([run], out)
    before = out.read_bytes()
    done = run_forked("-c", FULL, "plot", str(run), "--out", str(out))
    assert done.returncode == 1
    assert f"error: cannot write {out} (File too large); make room there" in done.stderr
    assert out.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"a", "out.png", "out.svg", "out.pdf"}


def test_what_is_no_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no metrics\.jsonl; expected the directory"):
        draw_curves([tmp_path], tmp_path / "out.png")
    empty = write_run(tmp_path / "empty")
    with pytest.raises(ValueError, match="has no records yet"):
        draw_curves([empty], tmp_path / "out.png")
    answer = CliRunner().invoke(app, ["plot", str(empty), "--out", "x.jpg"])
    assert "expected a name that ends in .png" in str(answer.exception)
