"""A SLURM of one machine, started by hand from the distribution's packages: no systemd, no cgroups,
ports and files of its own. Needs root."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.training import free_ports

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")

# cred_expire: a job that is requeued starts again only when its old credential has expired.
# config_overrides: believe the number of CPUs below, whatever the machine has.
_CONFIG = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=sched_interval=2,bf_interval=2
MpiDefault=none
ReturnToService=2
NodeName=localhost NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=localhost Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Runs the daemons; yields the environment in which SLURM's commands find them."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    config = folder / "slurm.conf"
    controller_port, node_port = free_ports(2)
    config.write_text(
        _CONFIG.format(folder=folder, controller_port=controller_port, node_port=node_port)
    )
    env = os.environ | {"SLURM_CONF": str(config)}
    munge_files = {
        "key-file": key,
        "socket": folder / "munge.socket",
        "pid-file": folder / "munged.pid",
        "log-file": folder / "munged.log",
        "seed-file": folder / "munged.seed",
    }
    daemons = (
        ["munged", "--force", *(f"--{name}={path}" for name, path in munge_files.items())],
        ["slurmctld", "-c"],
        ["slurmd", "-N", "localhost"],
    )
    try:
        for command in daemons:
            subprocess.run(command, env=env, check=True, capture_output=True, timeout=30)
        _await_idle(env, folder)
        yield env
    finally:
        for name in ("slurmctld", "slurmd", "munged"):
            with suppress(OSError, ValueError):
                os.kill(int((folder / f"{name}.pid").read_text()), signal.SIGTERM)


def _await_idle(env: dict[str, str], folder: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        command = ["sinfo", "--noheader", "--format=%T"]
        state = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30).stdout
        if state.strip() == "idle":
            return
        if time.monotonic() > deadline:
            logs = "".join(path.read_text() for path in sorted(folder.glob("slurm*.log")))
            raise TimeoutError(f"the node of SLURM is {state.strip()!r}, not idle:\n{logs}")
        time.sleep(0.2)
