"""Sets torch up for training: memory, threads, and sums in the same order run after run."""

from __future__ import annotations

import warnings

import torch

from lsm.core.allocator import keep_freed_memory
from lsm.core.threads import check_startable
from lsm.distributed.environment import World
from lsm.distributed.machine_share import cores_per_rank
from lsm.run.devices import choose_job_device


def set_up_device(
    name: str, world: World, num_threads: int, precision: str = "fp32", deterministic: bool = True
) -> torch.device:
    """Sets torch up, as set_up_torch() does, for the device of this rank that ``name`` stands for,
    and returns the device. A collective. Raises RuntimeError as choose_job_device() does."""
    device = choose_job_device(name, world)
    set_up_torch(num_threads, world, device, precision, deterministic)
    return device


def set_up_torch(
    num_threads: int,
    world: World,
    device: torch.device,
    precision: str = "fp32",
    deterministic: bool = True,
) -> None:
    """Sets memory, threads and determinism. ``num_threads``: train.num_threads; 0: this machine's
    cores divided by its ranks. ``deterministic``: sums in the same order in every run; on a GPU as
    far as its operations allow."""
    keep_freed_memory()
    num_threads = num_threads or cores_per_rank(world)
    check_startable("train.num_threads", num_threads)
    torch.set_num_threads(num_threads)
    on_gpu = device.type == "cuda"
    # use_deterministic_algorithms() also tells torch's compiler, and imports it: 100 MiB.
    mode = ("warn" if on_gpu else "error") if deterministic else "default"
    torch.set_deterministic_debug_mode(mode)
    has_tf32 = on_gpu and precision == "tf32"
    torch.set_float32_matmul_precision("high" if has_tf32 else "highest")
    # If true, it would fill every new tensor, which finds reads of uninitialised memory but costs a
    # pass.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
