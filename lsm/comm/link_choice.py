"""Chooses the links between ranks, from the options and from trials."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations
from typing import Any, NamedTuple

import torch
import torch.distributed as torch_dist

from lsm import native
from lsm.comm.gpu_memory import GpuPeerMemory
from lsm.comm.group import CacheGroup
from lsm.core.device import GpuPlace, current
from lsm.distributed.watchdog import awaiting

logger = logging.getLogger(__name__)

_TOKEN_VALUES = 16
_NOT_LOCAL = "not on one host, or in other process namespaces"


class Place(NamedTuple):
    """The location of a rank's cache."""

    host: str
    bus_id: str
    """PCI address of its GPU; for a twin, a name of its own."""
    nccl_problem: str
    """Reason against NCCL on this rank; empty if there is none."""


@dataclass(frozen=True)
class ChosenLinks:
    """``by_peer``: ipc, nccl or gloo, by rank of the group. ``nccl``: torch's group of all ranks
    over NCCL; None if no link needs it."""

    by_peer: dict[int, str]
    nccl: torch_dist.ProcessGroup | None = None


def host_links(group: CacheGroup) -> dict[int, str]:
    """This rank's links by rank of the group, for caches in host memory: shm or gloo. Raises
    RuntimeError if the options name an unavailable link."""
    stream, transport = group.rows, group.options.transport
    if transport in ("nccl", "ipc"):
        raise RuntimeError(
            f"comm.transport={transport}: moves rows between GPUs, and this cache is host "
            "memory; set device=cuda, or comm.transport=auto"
        )
    links = {peer: "shm" if peer in stream.local else "gloo" for peer in stream.peers}
    if transport == "shm" and "gloo" in links.values():
        names = ", ".join(stream.name(peer) for peer in links if peer not in stream.local)
        raise RuntimeError(
            f"comm.transport=shm: memory cannot be shared with {names}: not on this host, or "
            "in another process namespace; set comm.transport=auto"
        )
    return links


def find_links(group: CacheGroup, gpu: GpuPlace) -> ChosenLinks:
    """This rank's links, for caches in GPU memory. A collective of ``group``, which tries out peer
    memory. Raises RuntimeError, on every rank, if the options name an unavailable link."""
    stream, transport = group.rows, group.options.transport
    everyone = _gather(group, _place(group, gpu))
    problems: list[dict[int, str]] = [{} for _ in everyone]
    if transport in ("auto", "ipc"):
        problems = _gather(group, _ipc_problems(group, gpu, everyone))
    global_ranks = torch_dist.get_process_group_ranks(stream.group)
    chosen, said = choose_links(
        transport, everyone, problems, lambda rank: f"rank {global_ranks[rank]}"
    )
    for each in said if stream.rank == 0 else []:
        logger.warning("comm.transport=auto: %s", each)
    nccl = None
    if "nccl" in chosen.values():
        nccl = _open_nccl(global_ranks, gpu.device, group.options.timeout_secs)
    return ChosenLinks(
        {peer: chosen[min(peer, stream.rank), max(peer, stream.rank)] for peer in stream.peers},
        nccl,
    )


def choose_links(
    transport: str,
    places: list[Place],
    ipc_problems: list[dict[int, str]],
    name: Callable[[int], str],
) -> tuple[dict[tuple[int, int], str], list[str]]:
    """The links of all pairs of ranks, lower rank first, and warnings about them. ``ipc_problems``:
    by rank, the reasons why it cannot write into the memory of its peers. Raises RuntimeError as
    find_links()."""
    pairs = list(combinations(range(len(places)), 2))
    nccl_problem = _nccl_problem(places, name)
    if transport == "shm":
        raise RuntimeError(
            "comm.transport=shm: is for caches in host memory, and this one is GPU memory; set "
            "comm.transport=auto, ipc, nccl or gloo"
        )
    if transport == "gloo":
        return dict.fromkeys(pairs, "gloo"), []
    if transport == "nccl":
        if pairs and nccl_problem:
            raise RuntimeError(f"comm.transport=nccl: {nccl_problem}; set comm.transport=auto")
        return dict.fromkeys(pairs, "nccl"), []
    links, said = {}, []
    for a, b in pairs:
        problem = ipc_problems[a].get(b) or ipc_problems[b].get(a)
        links[a, b] = "ipc"
        if not problem:
            continue
        where = f"between {name(a)} and {name(b)}"
        if transport == "ipc":
            raise RuntimeError(f"comm.transport=ipc: {where}: {problem}; set comm.transport=auto")
        links[a, b] = "gloo" if nccl_problem else "nccl"
        # Between hosts NCCL is the first choice.
        if nccl_problem or problem != _NOT_LOCAL:
            why = f"{problem}; {nccl_problem}" if nccl_problem else problem
            said.append(f"rows travel through {links[a, b]} {where}: {why}")
    return links, said


def _nccl_problem(places: list[Place], name: Callable[[int], str]) -> str:
    for rank, place in enumerate(places):
        if place.nccl_problem:
            return f"{name(rank)}: {place.nccl_problem}"
    for a, b in combinations(range(len(places)), 2):
        if places[a][:2] == places[b][:2]:
            return (
                f"{name(a)} and {name(b)} share one GPU ({places[a].bus_id}), and NCCL needs one "
                "for each"
            )
    return ""


def _place(group: CacheGroup, gpu: GpuPlace) -> Place:
    if gpu.is_twin:
        return Place(group.host, f"twin {group.rank}", "the host stands for a GPU")
    problem = "" if torch_dist.is_nccl_available() else "this build of torch has no NCCL"
    return Place(group.host, native.find_cuda().gpus[gpu.number].bus_id, problem)


def _ipc_problems(group: CacheGroup, gpu: GpuPlace, places: list[Place]) -> dict[int, str]:
    """By rank, the reasons why this rank cannot write into the memory of that peer. It tries by
    reading a token that the peer has written."""
    token = torch.randint(2**62, (1, _TOKEN_VALUES))
    memory, mine, problem = None, None, ""
    try:
        memory = GpuPeerMemory(gpu, token.nbytes, group.options.timeout_secs)
        rows, mine = memory.take(1, _TOKEN_VALUES, torch.int64)
        rows.copy_(token)
        if not gpu.is_twin:
            torch.cuda.synchronize(gpu.device)
    except (RuntimeError, OSError) as error:
        problem = str(error)
    # The last gathering makes every rank hold its memory until all have read it.
    everyone = _gather(group, (mine, token, problem))
    problems = {}
    for peer in group.rows.peers:
        if peer not in group.rows.local:
            problems[peer] = _NOT_LOCAL
            continue
        address, expected, its_problem = everyone[peer]
        problems[peer] = its_problem or _reach_problem(
            memory, gpu, peer, places[peer], address, expected
        )
    if memory is not None:
        memory.unmap()
    _gather(group, None)
    return {peer: problem for peer, problem in problems.items() if problem}


def _reach_problem(
    memory: GpuPeerMemory | None,
    gpu: GpuPlace,
    peer: int,
    place: Place,
    address: list[int],
    expected: torch.Tensor,
) -> str:
    if memory is None:
        return ""  # the other rank reports it
    if not gpu.is_twin:
        problem = native.peer_access_problem(gpu.number, place.bus_id)
        if problem:
            return problem
    try:
        with current(gpu.device):
            found = memory.batch_of(peer, address, _TOKEN_VALUES, torch.int64).cpu()
    except (RuntimeError, OSError) as error:
        return str(error)
    return "" if torch.equal(found, expected) else "the mapped memory is not the peer's"


def _open_nccl(
    global_ranks: list[int], device: torch.device, timeout_secs: float
) -> torch_dist.ProcessGroup:
    with awaiting("the start of NCCL for the shared cache"), current(device):
        group = torch_dist.new_group(
            global_ranks,
            backend="nccl",
            timeout=timedelta(seconds=timeout_secs),
            use_local_synchronization=True,
        )
        # The first call creates the communicator; all ranks must take part.
        torch_dist.all_reduce(torch.zeros(1, device=device), group=group)
        torch.cuda.synchronize(device)
    return group


def _gather(group: CacheGroup, value: Any) -> list[Any]:
    everyone: list[Any] = [None] * group.size
    with awaiting("the start of the shared cache"):
        torch_dist.all_gather_object(everyone, value, group=group.rows.group)
    return everyone
