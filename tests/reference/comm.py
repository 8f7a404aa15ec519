"""The exchange between ranks (lsm.comm.exchange), naively: lists, and collectives of objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as torch_dist


def request_lists(
    ids: Sequence[int],
    owner_of: Callable[[int], int],
    group: torch_dist.ProcessGroup | None = None,
) -> list[list[int]]:
    """The requests of each rank of ``group`` to this one: the ids of its request that this rank
    owns."""
    size = torch_dist.get_world_size(group)
    by_owner = [[node for node in ids if owner_of(node) == rank] for rank in range(size)]
    everyone: list = [None] * size
    torch_dist.all_gather_object(everyone, by_owner, group=group)
    return [of_rank[torch_dist.get_rank(group)] for of_rank in everyone]


def merge(lists: Sequence[Sequence[int]]) -> list[int]:
    """The lists as one: rank 0's, then the additions of rank 1, and so on; each id once."""
    return list(dict.fromkeys(node for ids in lists for node in ids))


def exchange(
    ids: Sequence[int],
    owner_of: Callable[[int], int],
    read: Callable[[list[int]], torch.Tensor],
    group: torch_dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Rows ``ids`` as [len(ids), dim], each read by its owner. Every rank calls ``read(ids)`` with
    the requests of all ranks to it."""
    lists = request_lists(ids, owner_of, group)
    merged = merge(lists)
    rows = read(merged)
    index = {node: i for i, node in enumerate(merged)}
    answers = [rows[[index[node] for node in asked]] for asked in lists]
    everyone: list = [None] * len(lists)
    torch_dist.all_gather_object(everyone, answers, group=group)
    out = rows.new_empty(len(ids), rows.size(1))
    rank = torch_dist.get_rank(group)
    for owner, of_owner in enumerate(everyone):
        places = [i for i, node in enumerate(ids) if owner_of(node) == owner]
        out[places] = of_owner[rank]
    return out
