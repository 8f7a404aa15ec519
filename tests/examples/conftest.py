"""A store on which every example runs in seconds."""

import os
import subprocess
import sys

import pytest

SYNTH = ("--nodes", "4000", "--dim", "32", "--classes", "4", "--avg-degree", "8")


@pytest.fixture(scope="session")
def example_store(tmp_path_factory):
    store = tmp_path_factory.mktemp("stores") / "my-graph"
    command = [sys.executable, "-m", "lsm", "data", "synth", "--out", str(store), *SYNTH]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    return store


@pytest.fixture
def run_python():
    """Runs Python with arguments in a folder; its output, or a failure that shows it."""

    def run(*arguments, cwd=None, timeout=240):
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=cwd,
            timeout=timeout,
            capture_output=True,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
