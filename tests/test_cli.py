"""The command line: quick help, one line per error, and JSON as the last line of a run."""

import json
import subprocess
import sys

import pytest
from command import lsm
from training import environment, make_store, overrides, run_alone

from lsm import __version__


def test_help_names_the_commands_without_importing_torch():
    script = (
        "import sys; from lsm import cli; sys.argv = ['lsm', '--help']\n"
        "try: cli.main()\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment()
    )
    assert result.stderr.strip() == "False"
    for name in ("data", "train", "trace", "ablate", "bench", "doctor"):
        assert name in result.stdout


def test_version(monkeypatch, capsys):
    assert lsm(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"lsm {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "no-such"], "config 'no-such' is neither a file nor one of"),
        (["train", "base", "train.epoch=1"], "unknown key train.epoch; did you mean train.epochs?"),
        (["train", "base"], "data.path: not set"),
        (["train", "base", "data.path=nowhere"], "data.path: "),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(monkeypatch, capsys, arguments, message):
    assert lsm(monkeypatch, *arguments) == 1
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_print_config_is_a_config(monkeypatch, capsys, tmp_path):
    assert lsm(monkeypatch, "train", "quickstart", "train.epochs=3", "--print-config") == 0
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out)
    from lsm.config_io import load_config

    assert load_config(tmp_path / "printed.yaml") == load_config("quickstart", ["train.epochs=3"])


def test_a_run_ends_with_its_summary_and_writes_every_record(tmp_path):
    store, run_dir = make_store(tmp_path / "store"), tmp_path / "run"
    settings = overrides(store, run_dir, "metrics.tensorboard=true")
    result = run_alone("-m", "lsm", "train", "base", *settings)
    assert result.returncode == 0, result.stderr
    (line,) = result.stdout.splitlines()
    assert json.loads(line) == json.loads((run_dir / "result.json").read_text())
    assert "epoch   2/2" in result.stderr
    assert (run_dir / "metrics.jsonl").exists()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir / "tensorboard")).Reload()
    assert {"step/loss", "epoch/valid_accuracy"} <= set(events.Tags()["scalars"])
    assert len(events.Scalars("epoch/loss")) == 2
