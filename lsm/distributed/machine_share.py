"""The share of each rank in its machine."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

from lsm.core.host_memory import available_bytes
from lsm.core.units import format_bytes, sum_in_words
from lsm.distributed.environment import World, local_size_in


def check_free(
    key: str,
    needs: Mapping[str, int],
    remedy: str,
    device: torch.device | None = None,
    num_sharing: int | None = None,
) -> None:
    """Raises ValueError if ``needs``, bytes by use that are not allocated yet, exceed the share of
    a rank in the free memory of the GPU ``device``, or of the host.

    key: the option that the error names first. remedy: follows the sum. num_sharing: ranks that
    share the memory; None: on the host all of this machine, each with an equal share (too small a
    share where each process has a control group of its own), on a GPU this one.
    """
    is_gpu = device is not None and device.type == "cuda"
    if num_sharing is None:
        num_sharing = 1 if is_gpu else local_size_in()
    free = torch.cuda.mem_get_info(device)[0] if is_gpu else available_bytes()
    if sum(needs.values()) <= free // num_sharing:
        return
    whose = f"{device}" if is_gpu else "host memory"
    each = f" for each of {num_sharing} ranks" if num_sharing > 1 else ""
    raise ValueError(
        f"{key}: {sum_in_words(needs)}, and {format_bytes(free // num_sharing)} of {whose} are "
        f"free{each}; {remedy}"
    )


def cores_per_rank(world: World) -> int:
    """This machine's cores, divided by its ranks."""
    return max(1, len(os.sched_getaffinity(0)) // world.local_size)
