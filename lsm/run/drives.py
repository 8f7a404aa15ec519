"""Checks the drives of a job's ranks: a controller belongs to one process."""

from __future__ import annotations

from collections.abc import Sequence

from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.storage.options import StorageOptions


def check_drives_of_ranks(storage: StorageOptions, world: World) -> None:
    """Raises ValueError, on every rank and before any opens a drive, unless each rank of a machine
    names controllers of its own. A collective; engine and transport must be the same on all
    ranks."""
    if storage.engine != "nvme" or storage.transport == "emulated":
        return
    check_drives(collectives.gather_objects((world.node_rank, list(storage.devices)), world))


def check_drives(named: Sequence[tuple[int, Sequence[str]]]) -> None:
    """Raises ValueError, which names the controller, if two ranks of a machine have the same one.
    ``named``: for each rank its machine and its storage.devices."""
    owners: dict[tuple[int, str], int] = {}
    for rank, (machine, devices) in enumerate(named):
        for device in devices:
            controller = device.rpartition("@")[0] or device
            owner = owners.setdefault((machine, controller), rank)
            if owner != rank:
                raise ValueError(
                    f"storage.devices: ranks {owner} and {rank} of one machine both name "
                    f"{controller}, and a controller belongs to one process; start one rank per "
                    "machine, give each rank drives of its own, or read through the kernel's "
                    "driver (storage.engine=io_uring)"
                )
