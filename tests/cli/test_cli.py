"""The command line: quick help, one line per error, and JSON as the last line of a run."""

import json
import subprocess
import sys

import numpy as np
import pytest

from lsm import __version__
from support.command import lsm
from support.training import (
    CRASH_AT,
    environment,
    make_store,
    overrides,
    run_alone,
    run_forked,
    run_job,
)


def run_script(script):
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment()
    )


def test_help_names_the_commands_without_importing_torch():
    script = (
        "import sys; from lsm import cli; sys.argv = ['lsm', '--help']\n"
        "try: cli.main()\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    result = run_script(script)
    assert result.stderr.strip() == "False"
    for name in ("data", "train", "trace", "ablate", "bench", "doctor"):
        assert name in result.stdout


def test_a_warning_of_pyg_is_not_shown():
    """It appears as PyG is imported by torch 2.14."""
    script = (
        "import sys, warnings; from lsm import cli; sys.argv = ['lsm', '--version']\n"
        "try: cli.main()\n"
        "finally:\n"
        "    for of in ('`torch.jit.script` is', '`torch.jit.trace` was'):\n"
        "        warnings.warn(f'{of} deprecated. Please switch to others.', FutureWarning)"
    )
    result = run_script(script)
    assert "torch.jit.trace" in result.stderr
    assert "torch.jit.script" not in result.stderr


@pytest.mark.parametrize(("binding", "is_frozen"), [("pybind11", "True"), ("nanobind", "False")])
def test_a_command_ends_without_a_search_for_garbage(binding, is_frozen):
    """Of torch's objects it takes a second. But for nanobind, which would report leaks."""
    script = (
        "import atexit, gc, sys; from lsm import cli; sys.argv = ['lsm', '--version']\n"
        f"meta = type('nb_meta', (type,), {{'__module__': '{binding}'}})\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "cli.main()"
    )
    result = run_script(script)
    assert result.stdout.splitlines()[-1] == is_frozen, result.stderr


@pytest.mark.slow
def test_embeddings_are_trained_without_pyg_and_the_compiler():
    """They take 100 MiB, which a run in little memory has better uses for."""
    script = (
        "import sys, torch, lsm.embed.trainer\n"
        "from lsm.distributed.environment import World\n"
        "from lsm.run.torch_setup import set_up_torch\n"
        "set_up_torch(1, World(), torch.device('cpu'))\n"
        "assert torch.are_deterministic_algorithms_enabled()\n"
        "print({'torch_geometric', 'torch._dynamo', 'triton'} & set(sys.modules))"
    )
    result = run_script(script)
    assert result.stdout.strip() == "set()", result.stderr


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
        (["bench", "storage", "--depths", "1,x"], "--depths: expected whole numbers separated by"),
        (["bench", "storage", "--blocks", "x"], "--blocks: expected a size such as"),
        (["bench", "storage", "--size", "x"], "--size: expected a size such as"),
        (["bench", "storage", "--size", "0"], "--blocks: expected at most the 0 bytes of the file"),
        (["bench", "storage", "--seconds", "-1"], "--seconds: expected more than 0, got -1"),
        (["bench", "storage", "--seconds", "nan"], "--seconds: expected more than 0, got nan"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(monkeypatch, capsys, arguments, message):
    assert lsm(monkeypatch, *arguments) == 1
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith("error: ")
    assert message in line


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["bench", "storage", "--repeats", "0"], "--repeats"),
        (["data", "split-links", "store", "--seed", str(2**64)], "--seed"),
    ],
)
def test_a_number_out_of_range_is_an_error_of_usage(monkeypatch, capsys, arguments, option):
    assert lsm(monkeypatch, *arguments) == 2
    assert f"Invalid value for '{option}'" in capsys.readouterr().err


def test_print_config_is_a_config(monkeypatch, capsys, tmp_path):
    assert lsm(monkeypatch, "train", "quickstart", "train.epochs=3", "--print-config") == 0
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out)
    from lsm.config.load import load_config

    assert load_config(tmp_path / "printed.yaml") == load_config("quickstart", ["train.epochs=3"])


@pytest.mark.slow
def test_a_run_ends_with_its_summary_and_writes_every_record(tmp_path):
    store, run_dir = make_store(tmp_path / "store"), tmp_path / "run"
    settings = overrides(store, run_dir, "metrics.loggers=tensorboard")
    result = run_forked("-m", "lsm", "train", "base", *settings)
    assert result.returncode == 0, result.stderr
    (line,) = result.stdout.splitlines()
    assert json.loads(line) == json.loads((run_dir / "result.json").read_text())
    assert "epoch   2/2" in result.stderr
    assert (run_dir / "metrics.jsonl").exists()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir / "tensorboard")).Reload()
    assert {"step/loss", "epoch/valid_accuracy"} <= set(events.Tags()["scalars"])
    assert len(events.Scalars("epoch/loss")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("every", [0, 2])
def test_ctrl_c_ends_training_in_one_line(tmp_path, every):
    run_dir = tmp_path / "run"
    settings = overrides(
        make_store(tmp_path / "store"),
        run_dir,
        f"checkpoint.every_steps={every}",
        "cache.policy=lookahead",
        "cache.window=4",
    )
    result = run_alone(CRASH_AT, "int", 0, 0, 3, "base", *settings)
    assert result.returncode == 130
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    if every:
        checkpoint = run_dir / "checkpoints" / "step-000000-00000002.pt"
        assert last.startswith(f"lsm: interrupted; the newest checkpoint is {checkpoint}, and")
    else:
        assert last.startswith("lsm: interrupted; no checkpoint was written")
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_ctrl_c_ends_a_job_of_several_ranks(tmp_path):
    settings = overrides(make_store(tmp_path / "store"), tmp_path / "run", "train.batch_size=32")
    job = run_job(2, CRASH_AT, "int", 0, 0, 2, "base", *settings, is_forked=False)
    assert job.returncode != 0
    assert len([line for line in job.stderr.splitlines() if line.startswith("lsm: inter")]) == 1


_INTERRUPTED_SIMULATIONS = """
import _thread, signal, sys, threading, time
from lsm import cli
from lsm.ablation import runs
signal.signal(signal.SIGINT, signal.default_int_handler)
def simulate(*_arguments):
    if not interrupted.is_set():
        interrupted.set()
        _thread.interrupt_main()
    time.sleep(600)  # as a long simulation would take
interrupted = threading.Event()
runs._simulate = simulate
cli.main()
"""


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_simulations(tmp_path):
    trace = tmp_path / "t.npz"
    np.savez(trace, ids=np.arange(9), offsets=np.array([0, 9]), num_nodes=9, num_ranks=1)
    options = ["--trace", trace, "--lines", 8, "--policies", "lru,random,lookahead"]
    result = run_alone("-c", _INTERRUPTED_SIMULATIONS, "ablate", *options)
    assert result.returncode == 130
    assert result.stderr.splitlines()[-1] == "lsm: interrupted"
    assert "Traceback" not in result.stderr
