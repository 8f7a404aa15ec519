"""Shared by the tests of training: a small store that can be learnt, and functions that run a
job."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import numpy as np

import lsm
from support import gpus
from support.store_files import save_npy

LSM = Path(lsm.__file__).with_name("__main__.py")
"""The program `lsm`."""
REPOSITORY = Path(__file__).resolve().parents[2]
CRASH_AT = Path(__file__).with_name("crash_at.py")
TRAIN_WITH_TWINS = Path(__file__).with_name("train_with_twins.py")
FORK_SERVER = Path(__file__).with_name("fork_server.py")
TRAIN_MEASURED = Path(__file__).with_name("train_measured.py")

NUM_TRAIN = 300
LIMIT_SECS = 300.0
"""Of a process, ten times what the longest take on a quiet machine."""
FAST = (
    "device=cpu",
    "train.batch_size=64",
    "train.epochs=2",
    "train.lr=0.01",
    "train.num_threads=1",
    "model.hidden_dim=16",
    "sampler.num_neighbors=[5, 3]",
    "metrics.loggers=[]",
)


def make_store(path: Path, num_train: int = NUM_TRAIN) -> Path:
    """A store of three communities whose features tell the label: 300 training nodes are five
    iterations of 64, the last one short."""
    from lsm.data.convert.npy import convert_npy

    rng = np.random.default_rng(0)
    num_nodes, dim = 2 * num_train, 12
    labels = rng.integers(3, size=num_nodes)
    sources = rng.integers(num_nodes, size=8 * num_nodes)
    destinations = rng.permutation(np.repeat(np.arange(num_nodes), 8))
    inside = (labels[sources] == labels[destinations]) | (rng.random(len(sources)) < 0.1)
    noise = rng.standard_normal((num_nodes, dim)).astype(np.float32)
    arrays = {
        "edge_index": np.stack([sources, destinations])[:, inside],
        "node_feat": noise + 2 * np.eye(dim, dtype=np.float32)[labels],
        "node_label": labels,
        "train_idx": np.arange(num_train),
        "val_idx": np.arange(num_train, num_train * 3 // 2),
        "test_idx": np.arange(num_train * 3 // 2, num_nodes),
    }
    convert_npy(save_npy(path.with_suffix(".npy"), arrays), path, progress=False)
    return path


def overrides(store: Path, run_dir: Path, *more: str) -> list[str]:
    """Settings for a short run on ``store`` that writes to ``run_dir``."""
    return [*FAST, f"data.path={store}", f"run.dir={run_dir}", *more]


def config(store: Path, run_dir: Path, *more: str):
    """The same settings as a Config."""
    from lsm.config.load import load_config

    return load_config("base", overrides(store, run_dir, *more))


def environment(**changes: str) -> dict[str, str]:
    """This process's environment with the package on the path."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | changes


def run_alone(*arguments: str | Path, timeout: float = LIMIT_SECS) -> subprocess.CompletedProcess:
    """Runs ``python ARGUMENTS`` to its end."""
    return _run([sys.executable, *map(str, arguments)], timeout)


def run_forked(
    *arguments: str | Path, timeout: float = LIMIT_SECS, cwd: Path | None = None
) -> subprocess.CompletedProcess:
    """As run_alone(), in a fork of a process that has imported torch, and in the folder ``cwd``."""
    return _run([forking_python(), *map(str, arguments)], timeout, cwd)


def run_job(
    num_ranks: int,
    *arguments: str | Path,
    torchrun: Sequence[str] = (),
    is_forked: bool = True,
    timeout: float = LIMIT_SECS,
) -> subprocess.CompletedProcess:
    """Runs ``torchrun ARGUMENTS`` with ``num_ranks`` processes to its end; ``torchrun``: options of
    its own. torchrun and ranks are forks of a process that has imported torch, or interpreters."""
    options = ["--standalone", f"--nproc-per-node={num_ranks}", *torchrun]
    run = run_forked if is_forked else run_alone
    return run("-m", "torch.distributed.run", *options, *arguments, timeout=timeout)


@cache
def forking_python() -> str:
    """A program that does as ``python`` does, in a fork of a process that has imported torch. That
    process lives as long as the tests. With a GPU it is Python itself: see comm_ranks."""
    if not gpus.PROBLEM:
        return sys.executable
    folder = Path(tempfile.mkdtemp(prefix="lsm-forks-"))
    server = subprocess.Popen(
        [sys.executable, FORK_SERVER, folder], stdin=subprocess.PIPE, env=environment()
    )
    atexit.register(_end_server, server, folder)
    deadline = time.monotonic() + LIMIT_SECS
    while not (folder / "python").exists():
        assert server.poll() is None, "the server of forks has ended"
        assert time.monotonic() < deadline, "the server of forks did not start within the limit"
        time.sleep(0.05)
    return str(folder / "python")


def _end_server(server: subprocess.Popen, folder: Path) -> None:
    server.stdin.close()
    server.wait(60)
    shutil.rmtree(folder)


def _run(
    command: list[str], timeout: float, cwd: Path | None = None
) -> subprocess.CompletedProcess:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=environment(), cwd=cwd
    )


def rank_environment(rank: int, num_ranks: int, port: int) -> dict[str, str]:
    """The environment that torchrun would give one rank, for ranks that are started without it."""
    return environment(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(num_ranks),
        LOCAL_WORLD_SIZE=str(num_ranks),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )


def free_ports(count: int) -> list[int]:
    """Different TCP ports that nobody listens on."""
    with ExitStack() as opened:
        probes = [opened.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:  # all are open at once, or two may get the same port
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def free_port() -> int:
    """A TCP port that nobody listens on."""
    return free_ports(1)[0]


def steps(run_dir: Path) -> list[dict]:
    """The step records of a run, as written."""
    lines = (Path(run_dir) / "metrics.jsonl").read_text().splitlines()
    return [record for line in lines if (record := json.loads(line))["kind"] == "step"]


def losses(run_dir: Path) -> list[tuple[int, int, float]]:
    """(epoch, iteration, loss) of every step; equal floats are equal in every bit."""
    return [(step["epoch"], step["iteration"], step["loss"]) for step in steps(run_dir)]


def run_ranks(num_ranks, arguments, stuck=None, timeout=LIMIT_SECS):
    """Return codes and error lines of ranks that are started without a launcher, so that nothing
    ends them but themselves; the rank ``stuck`` is ended when the others are."""
    port = free_port()
    ranks = [
        subprocess.Popen(
            [forking_python(), *map(str, arguments[rank])],
            env=rank_environment(rank, num_ranks, port),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(num_ranks)
    ]
    try:
        errors = {
            number: rank.communicate(timeout=timeout)[1]
            for number, rank in enumerate(ranks)
            if number != stuck
        }
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    lines = {
        number: [line for line in text.splitlines() if line.startswith("error:")]
        for number, text in errors.items()
    }
    return [rank.returncode for rank in ranks], lines
