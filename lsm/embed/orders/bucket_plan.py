"""Assigns each bucket to the state that trains it, by matching buckets with loads.

A bucket whose two partitions both stay in memory during a load can be trained while the load runs.
Every load gets one such bucket, then a second, and so on, along augmenting paths: a load may take a
bucket from another load that finds a replacement. This maximises the number of buckets of the load
that has fewest. Greedy choices leave late loads without buckets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import product

from lsm.embed.orders.turns import Load, State

Bucket = tuple[int, int]


def plan_buckets(
    states: Sequence[Sequence[State]], loads: Sequence[Load]
) -> tuple[tuple[tuple[Bucket, ...], ...], ...]:
    """The buckets that each rank trains in each step. Every bucket that is ever resident appears
    once.

    Within a state, buckets of the partition that leaves next come first.
    """
    choices = [_pairs(set(states[load.step][load.rank]) - {load.evicted}) for load in loads]
    owners = _match(choices)
    planned: list[list[list[Bucket]]] = [[[] for _ in step] for step in states]
    leaving = {(load.step, load.rank): load.evicted for load in loads}
    done = set(owners)
    for step, ranks in enumerate(states):
        for rank, state in enumerate(ranks):
            for bucket in _pairs(state):
                if bucket not in done:
                    done.add(bucket)
                    planned[step][rank].append(bucket)
    for bucket, load in sorted(owners.items()):
        planned[loads[load].step][loads[load].rank].append(bucket)
    for (step, rank), evicted in leaving.items():
        buckets = sorted(planned[step][rank])
        last = [bucket for bucket in buckets if evicted not in bucket]
        planned[step][rank] = [bucket for bucket in buckets if evicted in bucket] + last
    return tuple(tuple(tuple(buckets) for buckets in step) for step in planned)


def _pairs(partitions: Iterable[int]) -> list[Bucket]:
    ordered = sorted(partitions)
    return list(product(ordered, ordered))


def _match(choices: Sequence[Sequence[Bucket]]) -> dict[Bucket, int]:
    """The load of each bucket that at least one load can take."""
    owners: dict[Bucket, int] = {}
    closed: set[int] = set()
    unsated = list(range(len(choices)))
    while unsated:
        unsated = [load for load in unsated if _augment(load, choices, owners, closed)]
    return owners


def _augment(
    load: int,
    choices: Sequence[Sequence[Bucket]],
    owners: dict[Bucket, int],
    closed: set[int],
) -> bool:
    """Gives ``load`` one more bucket; no load loses one. Returns False if that is impossible.

    ``closed``: loads whose buckets are all taken by loads among them. So are those that a search
    in vain has reached, and no later search needs to look there.
    """
    if load in closed:
        return False
    reached_by: dict[int, Bucket | None] = {load: None}  # the bucket that each load would give away
    wanted_by: dict[Bucket, int] = {}  # the load that would take the bucket
    queue = deque([load])
    while queue:
        taker = queue.popleft()
        for bucket in choices[taker]:
            owner = owners.get(bucket)
            if owner is None:
                _shift(bucket, taker, reached_by, wanted_by, owners)
                return True
            if owner not in reached_by and owner not in closed:
                reached_by[owner] = bucket
                wanted_by[bucket] = taker
                queue.append(owner)
    closed.update(reached_by)
    return False


def _shift(
    bucket: Bucket,
    taker: int,
    reached_by: dict[int, Bucket | None],
    wanted_by: dict[Bucket, int],
    owners: dict[Bucket, int],
) -> None:
    """Hands ``bucket`` to ``taker``. Back along the path, each load passes its bucket to the
    next."""
    given: Bucket | None = bucket
    while given is not None:
        owners[given] = taker
        given = reached_by[taker]
        if given is not None:
            taker = wanted_by[given]
