"""The share of each rank in its machine."""

from __future__ import annotations

import os

from lsm.core.host_memory import available_bytes
from lsm.distributed.environment import World, local_size_in


def available_bytes_per_rank() -> int:
    """An equal share of available_bytes() for each rank on this machine. An underestimate if each
    process of the job has a control group of its own."""
    return available_bytes() // local_size_in()


def cores_per_rank(world: World) -> int:
    """This machine's cores, divided by its ranks."""
    return max(1, len(os.sched_getaffinity(0)) // world.local_size)
