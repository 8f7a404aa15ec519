"""The job this process belongs to: its rank, and the few collectives that training needs.

``environment`` says how the process was started, ``rendezvous`` brings the ranks together, and
``watchdog`` says who is to blame when a wait for another rank fails. In a world of one no process
group exists, and every collective is the identity.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor
from torch.distributed import Store

from lsm.distributed import rendezvous, watchdog
from lsm.distributed.environment import Launch, World, read_environment
from lsm.distributed.rendezvous import Member
from lsm.distributed.signals import Stopped
from lsm.distributed.watchdog import Watch, awaiting
from lsm.version import __version__

BACKEND = "gloo"


@contextmanager
def joined(timeout_secs: float, settings: Mapping[str, Any] | None = None) -> Iterator[World]:
    """Joins the job of the environment over Gloo; leaves it at the end.

    ``settings``: what must be equal on all ranks, by name; values that JSON keeps. If ranks differ
    in them, in their versions or in the size of the world, all raise ValueError naming two of them.

    Every wait for another rank, here and in later collectives, ends in RuntimeError after
    ``timeout_secs``; one for a rank whose process has ended, at once. By the end nothing may hold a
    DistributedDataParallel: freed after the process group, its reducer would join Gloo's thread
    while holding the GIL that this thread may wait for. After an error, whose traceback may hold
    one, the group is therefore left to the end of the process.
    """
    launch = read_environment()
    if launch.world.size == 1:
        yield launch.world
        return
    expected = {
        "backend": BACKEND,
        "version of lsm": __version__,
        "version of torch": torch.__version__,
        **(settings or {}),
    }
    store, members = rendezvous.meet(launch, timeout_secs, expected)
    with _watched(launch, store, members, timeout_secs):
        rendezvous.choose_interface(launch, members)
        with awaiting("the connections of all ranks"):
            torch_dist.init_process_group(
                BACKEND,
                store=store,
                rank=launch.world.rank,
                world_size=launch.world.size,
                timeout=timedelta(seconds=timeout_secs),
            )
        yield launch.world
        gc.collect()
        torch_dist.destroy_process_group()


@contextmanager
def _watched(
    launch: Launch, store: Store, members: list[Member], timeout_secs: float
) -> Iterator[None]:
    """The other ranks hear how this one is, and how it ends."""
    rank = launch.world.rank
    store_rank = None if launch.hosted else 0
    own = store.clone()  # type: ignore[attr-defined]  # torch's stub leaves it out
    current = Watch(own, members, rank, timeout_secs=timeout_secs, store_rank=store_rank)
    current.start()
    watchdog.set_current(current)
    try:
        yield
    except Stopped:
        current.leave()
        raise
    except BaseException as error:
        current.fail(error)
        raise
    else:
        current.leave()
    finally:
        watchdog.set_current(None)


def all_reduce_sum(values: Tensor, world: World) -> Tensor:
    """``values`` summed over ranks, in place. All ranks must call it in the same order."""
    if world.size > 1:
        with awaiting("a sum over ranks"):
            torch_dist.all_reduce(values)
    return values


def broadcast_object(value: Any, world: World) -> Any:
    """Rank 0's ``value`` on every rank (pickled; between the processes of one job only)."""
    if world.size == 1:
        return value
    box = [value]
    with awaiting("a broadcast from rank 0"):
        torch_dist.broadcast_object_list(box, src=0)
    return box[0]


def gpu_group(backend: str, timeout_secs: float) -> torch_dist.ProcessGroup:
    """All ranks over nccl or gloo, for tensors on their GPUs. With NCCL, a wait that takes longer
    ends the process."""
    return torch_dist.new_group(backend=backend, timeout=timedelta(seconds=timeout_secs))


def barrier(world: World) -> None:
    """Returns when every rank has called it."""
    all_reduce_sum(torch.zeros(1), world)


def gather_objects(value: Any, world: World) -> list[Any]:
    """Every rank's ``value`` by rank, on every rank (pickled, as in ``broadcast_object``)."""
    if world.size == 1:
        return [value]
    everyone: list[Any] = [None] * world.size
    with awaiting("a comparison of all ranks"):
        torch_dist.all_gather_object(everyone, value)
    return everyone
