"""Joins the job of this process, and provides the collectives that training needs.

``environment`` finds the launcher, ``rendezvous`` brings the ranks together, and ``watchdog`` names
the rank to blame when a wait for another rank fails. In a world of one there is no process group,
and every collective is the identity.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor
from torch.distributed import Store

from lsm.distributed import interfaces, rendezvous, watchdog
from lsm.distributed.environment import Launch, World, read_environment
from lsm.distributed.rendezvous import Member
from lsm.distributed.signals import Stopped
from lsm.distributed.watchdog import Watch, awaiting
from lsm.version import __version__

BACKEND = "gloo"


@contextmanager
def joined(timeout_secs: float, settings: Mapping[str, Any] | None = None) -> Iterator[World]:
    """A context in the job that the environment describes, over Gloo; leaves the job at its end.

    ``settings``: values that must be equal on all ranks, by name, as JSON keeps them. If ranks
    differ in them, in their versions or in the size of the world, all raise ValueError, which names
    two of them.

    Every wait for another rank, here and in later collectives, raises RuntimeError after
    ``timeout_secs``, and at once if the process of that rank has ended. Nothing may hold a
    DistributedDataParallel at the end of the context: freed after the process group, its reducer
    would join Gloo's thread while holding the GIL that this thread may wait for. The traceback of
    an error may hold one, so after an error the group lives until the process ends.
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
        addresses = [member.address for member in members]
        interfaces.choose_interface(addresses, launch.world.rank, launch.port)
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
    """A context in which this rank's watchdog runs and reports its end."""
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
    """Sums ``values`` over ranks, in place, and returns them. A collective."""
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


def broadcast_values(values: Tensor, world: World) -> None:
    """Replaces ``values`` in place by those of rank 0. A collective."""
    if world.size > 1:
        on_host = values.detach().cpu()
        with awaiting("a broadcast from rank 0"):
            torch_dist.broadcast(on_host, src=0)
        values.detach().copy_(on_host)


def gpu_group(backend: str, timeout_secs: float) -> torch_dist.ProcessGroup:
    """A group of all ranks over nccl or gloo, for tensors on their GPUs. With NCCL a wait beyond
    ``timeout_secs`` ends the process."""
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


def gather_rows(rows: Tensor, world: World) -> list[Tensor]:
    """Every rank's ``rows`` [n, ...] on the host by rank, on every rank; ``n`` may differ."""
    if world.size == 1:
        return [rows]
    counts = [count for (count,) in gather_counts([len(rows)], world)]
    return gather_counted(rows, counts, None)


def gather_counts(counts: Sequence[int], world: World) -> list[list[int]]:
    """Every rank's ``counts`` by rank, on every rank; all have as many."""
    everyone = [torch.zeros(len(counts), dtype=torch.int64) for _ in range(world.size)]
    with awaiting("the counts of all ranks"):
        torch_dist.all_gather(everyone, torch.tensor(counts))
    return [each.tolist() for each in everyone]


def gather_counted(
    rows: Tensor, counts: Sequence[int], group: torch_dist.ProcessGroup | None
) -> list[Tensor]:
    """Every rank's ``rows`` [n, ...] by rank, on every rank, over ``group`` (None: on the host).
    ``counts``: the ``n`` of each rank. With NCCL the current stream waits, and not the host."""
    padded = rows.new_zeros(max(counts), *rows.shape[1:])
    padded[: len(rows)] = rows
    everyone = [torch.empty_like(padded) for _ in counts]
    with awaiting("the rows of all ranks"):
        torch_dist.all_gather(everyone, padded, group=group)
    return [each[:count] for each, count in zip(everyone, counts, strict=True)]
