"""The start scripts, for real: whatever starts the ranks, they train to the same losses.

Run by `make test-launch`, which installs Open MPI, mpi4py and SLURM.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from lsm.distributed.signals import EXIT_STOPPED
from support.slurm_cluster import PROGRAMS, slurm_cluster
from support.training import (
    CRASH_AT,
    REPOSITORY,
    environment,
    forking_python,
    losses,
    overrides,
    run_job,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "LSM_TEST_LAUNCHERS" not in os.environ,
        reason="make test-launch runs it, and installs what it needs",
    ),
]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

LAUNCH = REPOSITORY / "launch"
SETTINGS = ("train.batch_size=32", "dist.timeout_secs=60", "checkpoint.every_steps=2")
TIMEOUT_SECS = 300


@pytest.fixture(scope="module")
def expected(store, tmp_path_factory):
    """Losses of a run of two processes on this machine under launch/torchrun.sh."""
    run_dir = tmp_path_factory.mktemp("expected")
    finish(start("torchrun.sh", 2, "base", *overrides(store, run_dir, *SETTINGS)))
    assert len(losses(run_dir)) == 10
    return losses(run_dir)


def start(script, *arguments, prefix=(), is_forked=False, **env):
    """``is_forked``: launcher and ranks are forks of a process that has imported torch."""
    python = forking_python() if is_forked else sys.executable
    return subprocess.Popen(
        [*prefix, str(LAUNCH / script), *map(str, arguments)],
        env=environment(PYTHON=python, **env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(*jobs, status=0):
    """The output of the jobs, all of which end with ``status``."""
    try:
        outputs = [job.communicate(timeout=TIMEOUT_SECS) for job in jobs]
    finally:
        for job in jobs:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
    for job, (_, errors) in zip(jobs, outputs, strict=True):
        assert job.returncode == status, errors
    return outputs


@pytest.mark.parametrize("num_ranks", [1, 4])
def test_torchrun_with_other_numbers_of_processes(store, tmp_path, num_ranks):
    settings = overrides(store, tmp_path, f"train.batch_size={64 // num_ranks}", "train.epochs=1")
    ((output, _),) = finish(start("torchrun.sh", num_ranks, "base", *settings, is_forked=True))
    summary = json.loads(output.splitlines()[-1])  # printed once
    assert output.count("test_accuracy") == 1
    assert summary["world_size"] == num_ranks
    assert len(losses(tmp_path)) == 5


def test_torchrun_restarts_a_job_whose_rank_was_killed(store, tmp_path, expected):
    crash = [CRASH_AT, "kill", 1, 1, 3, "base", *overrides(store, tmp_path, *SETTINGS)]
    job = run_job(2, *crash, torchrun=["--max-restarts=1"])
    assert job.returncode == 0, job.stderr
    assert "rank 1" in job.stderr  # the one that was killed
    assert losses(tmp_path) == expected


@pytest.mark.parametrize(
    ("number", "to_launcher"),
    [(signal.SIGTERM, True), (signal.SIGUSR1, True), (signal.SIGUSR1, False)],
    ids=["SIGTERM", "SIGUSR1", "a rank"],
)
def test_a_signal_leaves_a_checkpoint_to_continue_from(store, tmp_path, number, to_launcher):
    """The signal comes at any time; whole is a run that gets none. A job that is stopped is not
    started again."""
    long = ["train.epochs=40", *SETTINGS, "checkpoint.every_steps=0", "checkpoint.every_epochs=0"]
    settings = overrides(store, tmp_path / "run", *long)
    job = start("torchrun.sh", 2, "base", *settings, MAX_RESTARTS="2")
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + TIMEOUT_SECS
    while not (metrics.exists() and metrics.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    rank = json.loads((tmp_path / "run" / ".lock").read_text())["pid"]
    os.kill(job.pid if to_launcher else rank, number)
    _, errors = job.communicate(timeout=TIMEOUT_SECS)
    assert job.returncode == EXIT_STOPPED
    assert errors.count("lsm: stopped by a signal") == 1
    assert "Traceback" not in errors
    assert "FAILED" not in errors
    before = losses(tmp_path / "run")
    assert 0 < len(before) < 200
    whole = overrides(store, tmp_path / "whole", *long)
    for run in (settings, whole):
        finish(start("torchrun.sh", 2, "base", *run, is_forked=True))
    assert losses(tmp_path / "run")[: len(before)] == before
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


@pytest.fixture
def hosts():
    """Two network namespaces joined by a cable: command prefixes, and the first one's address."""
    names = [f"lsm{os.getpid()}{end}" for end in "ab"]
    with ExitStack() as stack:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            stack.callback(subprocess.run, ["ip", "netns", "delete", name], check=True)
        first, second = names
        cable = ["ip", "link", "add", "cable", "netns", first, "type", "veth"]
        subprocess.run([*cable, "peer", "name", "cable", "netns", second], check=True)
        for number, name in enumerate(names, start=1):
            for command in (
                "link set lo up",
                f"address add 10.77.0.{number}/24 dev cable",
                "link set cable up",
            ):
                subprocess.run(["ip", "-netns", name, *command.split()], check=True)
        yield [["ip", "netns", "exec", name] for name in names], "10.77.0.1"


@needs_root
def test_torchrun_over_two_machines(store, tmp_path, expected, hosts):
    prefixes, address = hosts
    settings = overrides(store, tmp_path, *SETTINGS)
    jobs = [
        start(
            "torchrun.sh",
            *(1, "base", *settings),
            prefix=prefix,
            NNODES="2",
            NODE_RANK=str(number),
            MASTER_ADDR=address,
        )
        for number, prefix in enumerate(prefixes)
    ]
    finish(*jobs)
    assert losses(tmp_path) == expected


MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",  # more ranks than cores
}


def test_mpirun(store, tmp_path, expected):
    settings = overrides(store, tmp_path, *SETTINGS)
    ((output, _),) = finish(start("mpi.sh", 2, "base", *settings, **MPI_ENVIRONMENT))
    assert json.loads(output.splitlines()[-1])["world_size"] == 2
    assert losses(tmp_path) == expected


def test_mpirun_where_mpi4py_is_missing(store, tmp_path):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('No module named mpi4py')")
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY)])
    settings = overrides(store, tmp_path / "run", *SETTINGS)
    env = MPI_ENVIRONMENT | {"PYTHONPATH": path}
    job = start("mpi.sh", 2, "base", *settings, is_forked=True, **env)
    ((_, errors),) = finish(job, status=1)
    assert "error: rank 0: mpirun started this process, but mpi4py" in errors
    assert "pip install mpi4py" in errors


def test_mpirun_where_the_port_is_in_use(store, tmp_path):
    import socket

    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        settings = overrides(store, tmp_path / "run", "dist.timeout_secs=5")
        env = MPI_ENVIRONMENT | {"MASTER_PORT": str(port)}
        job = start("mpi.sh", 2, "base", *settings, is_forked=True, **env)
        ((_, errors),) = finish(job, status=1)
    assert f"error: rank 0: port {port} is in use" in errors


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    assert not missing, f"{missing} missing; `make test-launch` installs them"
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as env:
        yield env


def run_slurm(env, *arguments):
    command = [str(argument) for argument in arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_SECS)


@needs_root
def test_srun_starts_the_tasks(store, tmp_path, expected, slurm):
    settings = overrides(store, tmp_path, *SETTINGS)
    env = environment() | slurm | {"PYTHONPATH": str(REPOSITORY)}
    job = run_slurm(env, "srun", "-n2", sys.executable, "-m", "lsm", "train", "base", *settings)
    assert job.returncode == 0, job.stderr
    assert losses(tmp_path) == expected


@needs_root
def test_a_job_of_slurm_that_is_stopped_is_requeued_and_continues(store, tmp_path, expected, slurm):
    """One task gets SIGUSR1, as all do before the time limit, at epoch 2, iteration 2."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nshift 3\nexec {sys.executable} {CRASH_AT} usr1 1 1 2 "$@"\n'
    )  # for: python -m lsm train
    python.chmod(0o755)
    log, run_dir = tmp_path / "job.out", tmp_path / "run"
    env = environment() | slurm | {"PYTHONPATH": str(REPOSITORY), "PYTHON": str(python)}
    settings = overrides(store, run_dir, *SETTINGS, "checkpoint.every_steps=0")
    options = ["--wait", "--ntasks=2", f"--output={log}"]
    job = run_slurm(env, "sbatch", *options, LAUNCH / "slurm.sbatch", "base", *settings)
    assert job.returncode == 0, log.read_text()
    assert "stopped by a signal after epoch 2, iteration 2" in log.read_text()
    assert losses(run_dir) == expected
