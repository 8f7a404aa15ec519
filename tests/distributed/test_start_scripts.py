"""The scripts of launch/ refuse what they cannot start, in a line."""

import os
import socket
import subprocess
import sys

import pytest

from support.training import REPOSITORY, environment

pytestmark = pytest.mark.slow


def launch(script, *arguments, **changes):
    return subprocess.run(
        ["bash", REPOSITORY / "launch" / script, *arguments],
        env=environment(PYTHON=sys.executable, **changes),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("torchrun.sh", ["quickstart"]),
        ("torchrun.sh", ["quickstart", "train.epochs=2"]),
        ("torchrun.sh", ["0", "quickstart"]),
        ("mpi.sh", ["quickstart", "train.epochs=2"]),
        ("slurm.sbatch", []),
    ],
)
def test_usage_without_the_number_of_processes(script, arguments):
    result = launch(script, *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("usage: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_machine_without_an_address_is_an_error_in_bounded_time():
    assert "NNODES" not in os.environ
    meeting = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "no-such-host.invalid"}
    result = launch("torchrun.sh", "1", "quickstart", **meeting)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: could not join the other ranks: 'no-such-host.invalid' has no")
    assert "MASTER_ADDR" in line


def test_a_port_in_use_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        meeting = {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
        result = launch("torchrun.sh", "1", "quickstart", **meeting, MASTER_PORT=port)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: the machines of the job did not meet (")
    assert port in line
    assert "MASTER_PORT" in line
