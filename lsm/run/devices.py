"""Devices of the ranks of a job: one each."""

from __future__ import annotations

import torch

from lsm.core.device import choose_device
from lsm.distributed import collectives
from lsm.distributed.collectives import World


def choose_job_device(name: str, world: World) -> torch.device:
    """The device of this rank, which ``name`` (auto, cpu, cuda) stands for. Raises RuntimeError, on
    every rank, if only some have a GPU."""
    device = choose_device(name, world.local_rank)
    has_gpu = torch.tensor([float(device.type == "cuda")])
    num_gpus = int(collectives.all_reduce_sum(has_gpu, world).item())
    if 0 < num_gpus < world.size:
        raise RuntimeError(
            f"device={name}: {num_gpus} of {world.size} ranks have a GPU that works, and "
            "this one has "
            + ("one" if device.type == "cuda" else "none")
            + "; set device=cpu, or start one process per GPU (see `lsm doctor`)"
        )
    return device
