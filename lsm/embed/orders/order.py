"""The order in which partitions enter and leave the buffer, and in which buckets are trained."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lsm.core.arguments import whole_number
from lsm.embed.orders.best import best_turns
from lsm.embed.orders.bucket_plan import Bucket, plan_buckets
from lsm.embed.orders.published import beta_turns, legend_turns
from lsm.embed.orders.random_order import random_turns
from lsm.embed.orders.turns import Load, OrderShape, State, loads_of, states_of

NAMES = ("best", "legend", "beta", "random")
MOST_PARTITIONS = 128


@dataclass(frozen=True)
class Order:
    """One epoch, in steps that all ranks take in lock-step.

    In step t, rank r holds the partitions ``states[t][r]`` and trains ``buckets[t][r]`` in that
    order. Buckets of the partition that leaves after the step come first. Its successor is loaded
    while the others are trained. A bucket (i, j) holds the edges from partition i to partition j.
    """

    name: str
    shape: OrderShape
    states: tuple[tuple[State, ...], ...]
    loads: tuple[Load, ...]
    buckets: tuple[tuple[tuple[Bucket, ...], ...], ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the states and their buckets: a run that continues needs the same ones."""
        return hashlib.sha256(repr((self.states, self.buckets)).encode()).hexdigest()

    @property
    def idle_loads(self) -> int:
        """Loads during which their rank has no bucket to train."""
        return sum(not self.trained_during(load) for load in self.loads)

    def trained_during(self, load: Load) -> tuple[Bucket, ...]:
        """Lists the buckets that a load overlaps with.

        Args:
            load: One of ``loads``.

        Returns:
            The buckets that its rank trains meanwhile.
        """
        buckets = self.buckets[load.step][load.rank]
        return tuple(bucket for bucket in buckets if load.evicted not in bucket)

    def as_json(self) -> dict[str, Any]:
        """Returns the order as values that JSON has.

        Returns:
            A dict. ``states`` has the partitions resident on rank 0, rank 1, ... for each step,
            ``buckets`` the buckets trained in each step, ``by_rank`` both for each rank, and
            ``loads`` the loads.
        """
        ranks = range(self.shape.ranks)
        return {
            "order": self.name,
            "partitions": self.shape.partitions,
            "buffer": self.shape.buffer,
            "ranks": self.shape.ranks,
            "lower_bound": self.shape.lower_bound,
            "states": [[p for state in step for p in state] for step in self.states],
            "buckets": [[list(b) for part in step for b in part] for step in self.buckets],
            "loads": [
                {
                    "step": load.step,
                    "rank": load.rank,
                    "evict": load.evicted,
                    "load": load.loaded,
                    "trained_meanwhile": [list(b) for b in self.trained_during(load)],
                }
                for load in self.loads
            ],
            "by_rank": [
                {
                    "states": [list(step[rank]) for step in self.states],
                    "buckets": [[list(b) for b in step[rank]] for step in self.buckets],
                }
                for rank in ranks
            ],
        }


def make_order(
    name: str, partitions: int, buffer: int = 3, ranks: int = 1, *, seed: int = 0
) -> Order:
    """Makes an order of loads and buckets.

    All orders train every bucket once. ``best``, ``legend`` and ``random`` let a load overlap with
    training: the partition loaded last is never the next to go, and every load has a bucket to
    train that touches neither partition. ``beta`` (Marius) promises neither. ``legend`` is for
    buffers of 3; ``legend`` and ``beta`` are for one rank. The same arguments give the same order
    on every rank.

    Args:
        name: best, legend, beta or random.
        partitions: Partitions of the nodes.
        buffer: Partitions that each rank holds.
        ranks: Number of ranks.
        seed: Seed of ``random``.

    Returns:
        The order.

    Raises:
        ValueError: There is no order of this name and shape.
    """
    shape = _checked_shape(name, partitions, buffer, ranks)
    if shape.partitions == shape.buffer * shape.ranks:
        turns: Sequence[tuple[int, int]] = []
    elif name == "best":
        turns = best_turns(shape)
    elif name == "legend":
        turns = legend_turns(shape.partitions)
    elif name == "beta":
        turns = beta_turns(shape.partitions, shape.buffer)
    else:
        turns = random_turns(shape, whole_number("train.seed", seed, 0))
    states = states_of(shape, turns)
    loads = loads_of(shape, turns)
    return Order(name, shape, states, loads, plan_buckets(states, loads))


def _checked_shape(name: str, partitions: int, buffer: int, ranks: int) -> OrderShape:
    if name not in NAMES:
        raise ValueError(f"embed.order: expected one of {', '.join(NAMES)}, got {name!r}")
    partitions = whole_number("embed.partitions", partitions, 1, MOST_PARTITIONS)
    buffer = whole_number("embed.buffer", buffer, 3)
    ranks = whole_number("ranks", ranks, 1)
    if ranks == 1:
        buffer = min(buffer, partitions)
    elif partitions < ranks * (buffer + 1):
        raise ValueError(
            f"embed.partitions: expected at least {ranks * (buffer + 1)} for {ranks} ranks and "
            f"embed.buffer = {buffer}, so that every rank can load one that none holds, got "
            f"{partitions}"
        )
    if ranks > 1 and name in ("legend", "beta"):
        raise ValueError(
            f"embed.order: {name} is defined for one rank, got {ranks}; use best or random"
        )
    if name == "legend" and buffer != 3 and partitions > buffer:
        raise ValueError(
            f"embed.order: legend is defined for embed.buffer = 3, got {buffer}; use best"
        )
    return OrderShape(partitions, buffer, ranks)
