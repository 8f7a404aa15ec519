"""Reads the place of this process from the environment: alone, or in a job of torchrun, srun or
mpirun.

torchrun and srun set variables for everything. mpirun sets none for the address at which ranks
meet, so mpi4py exchanges it, once, before torch.distributed takes over. This module does not import
torch.
"""

from __future__ import annotations

import functools
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lsm.core.os_error import in_words

Launcher = Literal["none", "torchrun", "slurm", "mpi"]

MPI4PY_MISSING = (
    "mpirun started this process, but mpi4py, which carries the address at which ranks meet, "
    "cannot be imported ({reason}); pip install mpi4py, or start the job with torchrun"
)

ADDRESS_SECS = 10.0
"""Longest wait for the address of a name."""

_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_MPI_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "MPI_LOCALNRANKS")
_MPI_LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
_SLURM_VARIABLES = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_JOB_ID")
# Below the ports that Linux gives to outgoing connections (from 32768).
_SLURM_PORTS = range(20_000, 32_000)


@dataclass(frozen=True)
class World:
    """The place of this process among all ranks, and among those of its machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    node_rank: int = 0
    """Index of this machine among the job's."""

    @property
    def is_main(self) -> bool:
        """True on rank 0, which writes files and prints messages."""
        return self.rank == 0


@dataclass(frozen=True)
class Launch:
    """The launcher of this process, and the meeting point of its ranks."""

    world: World = World()
    launcher: Launcher = "none"
    address: str = ""
    """Host name or address of the store through which ranks find each other."""
    port: int = 0
    job: str = ""
    """Prefix of this start of the job in the store, against other jobs and restarts."""
    hosted: bool = False
    """True if the launcher (torchrun) holds the store; otherwise rank 0 does."""


def read_environment(env: Mapping[str, str] = os.environ) -> Launch:
    """The job that ``env`` describes; a world of one if it describes none.

    A collective under mpirun. Raises RuntimeError with the variable that is missing or invalid.
    """
    launcher = _launcher(env)
    if launcher == "torchrun":
        return _torchrun(env)
    if launcher == "mpi":
        return _mpi(env.get("MASTER_ADDR"), env.get("MASTER_PORT"))
    if launcher == "slurm":
        return _slurm(env)
    return Launch()


def rank_in(env: Mapping[str, str] = os.environ) -> int | None:
    """The rank of this process in its job, for messages; None outside one. No collective."""
    if _launcher(env) == "none":
        return None
    for name in _RANK_VARIABLES:
        if env.get(name, "").isdecimal():
            return int(env[name])
    return None


def local_size_in(env: Mapping[str, str] = os.environ) -> int:
    """The number of the job's ranks on this machine; 1 if ``env`` does not tell. No collective.

    For shares of memory only. It never raises: a process that got its rank by arguments may have
    the variables of a launcher that sets some of them (Lightning's), or of another job.
    """
    try:
        if _launcher(env) == "mpi":
            name = next((n for n in _MPI_LOCAL_SIZES if n in env), None)
            return max(1, _integer(env, name)) if name is not None else 1
        return read_environment(env).world.local_size
    except RuntimeError:
        return 1


def await_address(host: str, timeout_secs: float = ADDRESS_SECS) -> None:
    """Blocks until the name ``host`` has an address, which may be late where machines are starting.
    Raises RuntimeError after ``timeout_secs``."""
    deadline = time.monotonic() + timeout_secs
    while True:
        try:
            socket.getaddrinfo(host, None)
            return
        except (OSError, UnicodeError) as error:  # UnicodeError: no name at all
            if time.monotonic() >= deadline:
                raise RuntimeError(
                    f"could not join the other ranks: {host!r} has no address "
                    f"({in_words(error)}); give rank 0's machine as all reach it (MASTER_ADDR)"
                ) from None
        time.sleep(0.1)


def _launcher(env: Mapping[str, str]) -> Launcher:
    """Checks torchrun first, because it may run inside the others, and srun last, because mpirun
    may use it to start its daemons."""
    if "RANK" in env or "WORLD_SIZE" in env:
        return "torchrun"
    if any(name in env for name in _MPI_VARIABLES):
        return "mpi"
    if "SLURM_STEP_ID" in env or ("SLURM_PROCID" in env and env.get("SLURM_NTASKS", "1") != "1"):
        return "slurm"
    return "none"


def _torchrun(env: Mapping[str, str]) -> Launch:
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in names if name not in env]
    if missing:
        raise RuntimeError(
            f"environment: {', '.join(missing)} missing next to RANK or WORLD_SIZE; "
            "start the job with torchrun, or unset both to run alone"
        )
    rank, size = _integer(env, "RANK"), _integer(env, "WORLD_SIZE")
    if not 0 <= rank < size:
        raise RuntimeError(f"environment: expected 0 <= RANK < WORLD_SIZE, got {rank}, {size}")
    local_size = max(1, _integer(env, "LOCAL_WORLD_SIZE", default=size))
    local_rank = _integer(env, "LOCAL_RANK", default=rank % local_size)
    world = World(rank, size, local_rank, local_size, _integer(env, "GROUP_RANK", default=0))
    _check_local(world, "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE")
    attempt = env.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Launch(
        world,
        "torchrun",
        env["MASTER_ADDR"],
        _port(env, "MASTER_PORT"),
        job=f"torchrun-{env.get('TORCHELASTIC_RUN_ID', 'none')}-{attempt}",
        hosted=env.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def _slurm(env: Mapping[str, str]) -> Launch:
    if "SLURM_STEP_ID" not in env:
        raise RuntimeError(
            "environment: SLURM_STEP_ID missing: this is a batch script of "
            f"{env['SLURM_NTASKS']} tasks, not one of its tasks; start them with srun "
            "(launch/slurm.sbatch), or unset SLURM_PROCID to run alone"
        )
    missing = [name for name in _SLURM_VARIABLES if name not in env]
    either = (
        ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
        ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"),
    )
    found = [next((name for name in names if name in env), "") for names in either]
    missing += [" or ".join(pair) for pair, name in zip(either, found, strict=True) if not name]
    if missing:
        raise RuntimeError(
            f"environment: {', '.join(missing)} missing next to SLURM_STEP_ID; start the job with "
            "srun (launch/slurm.sbatch)"
        )
    num_tasks, tasks_per_node, nodes = found
    rank, size = _integer(env, "SLURM_PROCID"), _integer(env, num_tasks)
    if not 0 <= rank < size:
        raise RuntimeError(
            f"environment: expected 0 <= SLURM_PROCID < {num_tasks}, got {rank}, {size}"
        )
    node_rank = _integer(env, "SLURM_NODEID")
    counts = task_counts(env[tasks_per_node])
    if not 0 <= node_rank < len(counts):
        raise RuntimeError(
            f"environment: SLURM_NODEID is {node_rank}, but {tasks_per_node} "
            f"({env[tasks_per_node]}) has {len(counts)} node(s)"
        )
    world = World(rank, size, _integer(env, "SLURM_LOCALID"), counts[node_rank], node_rank)
    _check_local(world, "SLURM_LOCALID", tasks_per_node, num_tasks)
    job, step = _integer(env, "SLURM_JOB_ID"), _integer(env, "SLURM_STEP_ID")
    port = _SLURM_PORTS[(job * 16 + step) % len(_SLURM_PORTS)]
    return Launch(
        world,
        "slurm",
        env.get("MASTER_ADDR") or first_host(env[nodes]),
        _port(env, "MASTER_PORT") if "MASTER_PORT" in env else port,
        job=f"slurm-{job}.{step}-{env.get('SLURM_RESTART_COUNT', '0')}",
    )


def _check_local(world: World, rank: str, local_size: str, size: str) -> None:
    """Raises RuntimeError, with the names of variables, for a local rank that cannot be."""
    if not 0 <= world.local_rank < world.local_size <= world.size:
        raise RuntimeError(
            f"environment: expected 0 <= {rank} < {local_size} (of this machine) <= {size}, got "
            f"{world.local_rank}, {world.local_size}, {world.size}"
        )


def first_host(node_list: str) -> str:
    """The first host of SLURM's compact form: gpu03 for ``gpu[03-05,9],login``."""
    first = re.match(r"(?:[^\[,]|\[[^\]]*\])*", node_list)  # a comma in brackets is part of it
    host = re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first[0] if first else "")
    if not host:
        raise RuntimeError(f"environment: expected a node in the list of SLURM, got {node_list!r}")
    return host


def task_counts(tasks_per_node: str) -> list[int]:
    """Tasks of every node from SLURM's compact form: 2, 2, 2, 1 for ``2(x3),1``."""
    counts: list[int] = []
    for part in tasks_per_node.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            raise RuntimeError(
                "environment: expected numbers of tasks such as 2(x3),1 from SLURM, got "
                f"{tasks_per_node!r}"
            )
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


@functools.cache  # MPI starts and ends once per process
def _mpi(address: str | None, port: str | None) -> Launch:
    """Broadcasts the meeting point that rank 0 chooses, and gathers hosts to find local ranks."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: no MPI library to load
        reason = str(error).strip().partition("\n")[0]
        raise RuntimeError(MPI4PY_MISSING.format(reason=reason)) from error
    MPI.Init()
    comm = MPI.COMM_WORLD
    hosts = comm.allgather(MPI.Get_processor_name())
    several = len(set(hosts)) > 1
    meeting = (
        address or (socket.getfqdn() if several else "127.0.0.1"),
        _port({"MASTER_PORT": port}, "MASTER_PORT") if port else _free_port(),
        f"mpi-{os.getpid()}",
    )
    meeting = comm.bcast(meeting, root=0)
    world = _among(hosts, comm.Get_rank())
    # torch does the rest. MPI left open would wait at exit for ranks that died.
    MPI.Finalize()
    return Launch(world, "mpi", *meeting)


def _among(hosts: list[str], rank: int) -> World:
    """The world of ``rank`` if rank r runs on ``hosts[r]``. Nodes are numbered in the order of
    their ranks."""
    nodes = list(dict.fromkeys(hosts))
    neighbours = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    return World(
        rank, len(hosts), neighbours.index(rank), len(neighbours), nodes.index(hosts[rank])
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def _port(env: Mapping[str, str], name: str) -> int:
    port = _integer(env, name)
    if not 0 < port < 2**16:
        raise RuntimeError(f"environment: expected a port from 1 to 65535 in {name}, got {port}")
    return port


def _integer(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    try:
        return int(env[name]) if default is None else int(env.get(name, default))
    except ValueError:
        raise RuntimeError(
            f"environment: expected an integer in {name}, got {env[name]!r}"
        ) from None
