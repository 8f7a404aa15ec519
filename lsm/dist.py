"""The job this process belongs to: its rank, and the few collectives that training needs.

Under torchrun the environment names the job (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
MASTER_ADDR, MASTER_PORT). Without it the process is a world of one: no process group exists and
every collective is the identity.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor


@dataclass(frozen=True)
class World:
    """Where this process stands among all ranks, and among those of its machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> World:
        """The world that torchrun describes; a world of one if it does not."""
        if "RANK" not in env and "WORLD_SIZE" not in env:
            return cls()
        names = ("RANK", "WORLD_SIZE")
        missing = [name for name in (*names, "MASTER_ADDR", "MASTER_PORT") if name not in env]
        if missing:
            raise RuntimeError(
                f"environment: {', '.join(missing)} missing beside RANK or WORLD_SIZE; "
                "start the job with torchrun, or unset both to run alone"
            )
        rank, size = (_integer(env, name) for name in names)
        local_rank = _integer(env, "LOCAL_RANK", default=rank)
        local_size = _integer(env, "LOCAL_WORLD_SIZE", default=size)
        if not 0 <= rank < size:
            raise RuntimeError(f"environment: expected 0 <= RANK < WORLD_SIZE, got {rank}, {size}")
        return cls(rank, size, local_rank, max(1, local_size))

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes files and speaks to the user."""
        return self.rank == 0


def _integer(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    try:
        return int(env[name]) if default is None else int(env.get(name, default))
    except ValueError:
        raise RuntimeError(
            f"environment: expected an integer in {name}, got {env[name]!r}"
        ) from None


@contextmanager
def joined(timeout_secs: float) -> Iterator[World]:
    """Joins the job of the environment over Gloo; leaves it at the end.

    Every wait for another rank, here and in later collectives, ends in RuntimeError after
    ``timeout_secs``; one for a rank whose process has ended, at once. By the end nothing may hold a
    DistributedDataParallel: freed after the process group, its reducer would join Gloo's thread
    while holding the GIL that this thread may wait for. After an error, whose traceback may hold
    one, the group is therefore left to the end of the process.
    """
    world = World.from_env()
    if world.size == 1:
        yield world
        return
    try:
        torch_dist.init_process_group(
            "gloo",
            rank=world.rank,
            world_size=world.size,
            timeout=timedelta(seconds=timeout_secs),
        )
    except (RuntimeError, ValueError) as error:
        raise RuntimeError(
            f"could not join the other ranks within {timeout_secs:g} s "
            f"(dist.timeout_secs): {_first_line(error)}"
        ) from error
    yield world
    gc.collect()
    torch_dist.destroy_process_group()


@contextmanager
def peers(action: str) -> Iterator[None]:
    """Turns the errors of a collective inside into PeerError naming ``action``."""
    try:
        yield
    except RuntimeError as error:
        if not _is_gloo(error):
            raise
        raise PeerError(
            f"another rank ended or did not answer during {action} ({_first_line(error)}); "
            "its own error, if it had one, is above"
        ) from error


class PeerError(RuntimeError):
    """Another rank failed: this rank's error is only the consequence."""


def all_reduce_sum(values: Tensor, world: World) -> Tensor:
    """``values`` summed over ranks, in place. All ranks must call it in the same order."""
    if world.size > 1:
        with peers("a sum over ranks"):
            torch_dist.all_reduce(values)
    return values


def broadcast_object(value: Any, world: World) -> Any:
    """Rank 0's ``value`` on every rank (pickled; between the processes of one job only)."""
    if world.size == 1:
        return value
    box = [value]
    with peers("a broadcast from rank 0"):
        torch_dist.broadcast_object_list(box, src=0)
    return box[0]


def gpu_group(timeout_secs: float) -> torch_dist.ProcessGroup:
    """All ranks over NCCL, for tensors on their GPUs. A wait that takes longer ends the process."""
    return torch_dist.new_group(backend="nccl", timeout=timedelta(seconds=timeout_secs))


def barrier(world: World) -> None:
    """Returns when every rank has called it."""
    all_reduce_sum(torch.zeros(1), world)


def _is_gloo(error: RuntimeError) -> bool:
    text = str(error).lower()
    return (
        "gloo" in text
        or "nccl" in text
        or "connection closed by peer" in text
        or "timed out waiting" in text
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
