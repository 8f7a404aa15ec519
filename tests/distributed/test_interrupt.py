"""Ctrl-C ends a job under launch/torchrun.sh with a line or two, and no traceback."""

import os
import signal
import subprocess
import sys
import time

import pytest

from support.training import REPOSITORY, environment, overrides

pytestmark = pytest.mark.slow


INTERRUPTED_LOOKUP = """
import os, signal, socket

def getaddrinfo(*_):
    os.kill(os.getpid(), signal.SIGINT)
    raise OSError("no address")

socket.getaddrinfo = getaddrinfo
"""


INTERRUPTED_EXIT = """
import atexit, os, signal
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
"""


def customised(folder, code):
    """The path of modules for processes that run ``code`` at their start."""
    (folder / "sitecustomize.py").write_text(code)
    return os.pathsep.join([str(folder), environment()["PYTHONPATH"]])


def interruptible():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def start(run_dir, store, *changes, **variables):
    script = REPOSITORY / "launch" / "torchrun.sh"
    settings = overrides(store, run_dir, *changes)
    return subprocess.Popen(
        [script, "2", "base", *settings],
        env=environment(PYTHON=sys.executable, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=interruptible,  # a test run in the background ignores it
    )


def test_ctrl_c_under_torchrun_prints_no_traceback(store, tmp_path):
    """Nor does a second one while the launcher exits; ranks exit without exit handlers."""
    path = customised(tmp_path, INTERRUPTED_EXIT)
    job = start(tmp_path, store, "train.epochs=100000", PYTHONPATH=path)
    try:
        deadline = time.monotonic() + 120
        while not list((tmp_path / "checkpoints").glob("step-*.pt")):
            assert job.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(job.pid, signal.SIGINT)
        _, errors = job.communicate(timeout=300)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate(timeout=30)
    assert job.returncode == 130
    assert "Traceback" not in errors
    assert errors.count("lsm: interrupted; the newest checkpoint is ") == 1


def test_ctrl_c_while_waiting_for_another_machine_prints_no_traceback(tmp_path):
    path = customised(tmp_path, INTERRUPTED_LOOKUP)
    machines = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "no-such.invalid"}
    job = start(tmp_path / "run", tmp_path / "store", PYTHONPATH=path, **machines)
    _, errors = job.communicate(timeout=120)
    assert (job.returncode, errors) == (130, "lsm: interrupted\n")


def test_a_failed_job_prints_no_traceback_of_the_launcher(tmp_path):
    job = start(tmp_path / "run", tmp_path / "no-such")
    _, errors = job.communicate(timeout=300)
    assert job.returncode == 1
    assert "Traceback" not in errors
    assert len([line for line in errors.splitlines() if line.startswith("error: rank 0:")]) == 1
