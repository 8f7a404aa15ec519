"""Devices of the ranks of a job: one each."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection

import torch

from lsm import native
from lsm.comm.group import host_identity
from lsm.core.device import choose_device
from lsm.distributed import collectives
from lsm.distributed.collectives import World

logger = logging.getLogger(__name__)


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


def ranks_on_gpu(world: World, device: torch.device) -> int:
    """The largest number of ranks on one GPU. A collective."""
    if world.size == 1:
        return 1
    place = host_identity(), native.find_cuda().gpus[device.index].bus_id
    return max(Counter(collectives.gather_objects(place, world)).values())


def gradient_backend(world: World, device: torch.device, row_links: Collection[str]) -> str:
    """The backend that carries gradients between GPUs: nccl, or gloo where ranks share a GPU, which
    NCCL does not support, or where rows of some rank travel over NCCL. A collective.

    Two threads exchange rows and gradients. Two communicators of NCCL at once are safe only in an
    order that all ranks keep (NCCL User Guide, "Using multiple NCCL communicators concurrently"),
    and for that each thread would wait for the other in every step. Gradients of a GNN are a few
    megabytes and rows hundreds, so NCCL is left to the rows.

    row_links: names of this rank's links.
    """
    most = ranks_on_gpu(world, device)
    if most == 1:
        if not any(collectives.gather_objects("nccl" in row_links, world)):
            return "nccl"
        if world.is_main:
            logger.info("rows travel over NCCL: gradients travel through Gloo")
        return "gloo"
    if world.is_main:
        logger.warning(
            "up to %d ranks share a GPU: gradients travel through Gloo, since NCCL needs a GPU for "
            "each rank",
            most,
        )
    return "gloo"
