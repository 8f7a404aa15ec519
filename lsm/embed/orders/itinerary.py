"""The steps of a whole run: an order, repeated every round so that no round starts with loads.

An order stays valid when its partitions swap names. Every later round renames them so that it
starts with the buffers that the round before left. The partition loaded last does not get a name
that leaves first.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from lsm.embed.orders.bucket_plan import Bucket
from lsm.embed.orders.order import Order
from lsm.embed.orders.turns import State


@dataclass(frozen=True)
class Step:
    """The work of one rank between two moves of its buffer."""

    epoch: int
    number: int
    """Number of the step in the epoch."""
    round: int
    rounds: int
    """Rounds of the epoch; ``round`` counts them from 0. Each round trains a share of the edges of
    a bucket."""
    frames: dict[int, int]
    """Frame of each resident partition, in the order of partitions."""
    spare: int
    """The frame that a load fills."""
    buckets: tuple[Bucket, ...]
    """The buckets that this rank trains."""
    loaded: int | None
    """Partition that comes into the spare frame during this step."""
    leaves: int | None
    """Partition that it replaces after this step."""
    written: int | None
    """Partition that the spare frame still holds; it is written first."""
    residents: tuple[State, ...]
    """Partitions of every rank."""
    trained: tuple[tuple[Bucket, ...], ...]
    """Buckets of every rank."""
    all_written: tuple[int, ...]
    """Partitions that some rank writes in this step."""


class Itinerary:
    """The steps of rank ``rank``: a function of the order, the seed and the rounds of an epoch."""

    def __init__(self, order: Order, rank: int, seed: int, rounds: int = 1) -> None:
        self._order, self._rank, self._seed, self._rounds = order, rank, seed, rounds
        self._names = list(range(order.shape.partitions))
        self._frames = {p: frame for frame, p in enumerate(order.states[0][rank])}
        self._spare = order.shape.buffer
        self._next = 0
        self._steps: tuple[Step, ...] = ()

    @property
    def num_frames(self) -> int:
        """Frames of a rank's buffer, with the one in flight if the order has loads."""
        return self._order.shape.buffer + bool(self._order.loads)

    def epoch(self, epoch: int) -> tuple[Step, ...]:
        """The steps of ``epoch``. Ask for epochs in ascending order."""
        while self._next <= epoch:
            self._steps = ()
            for number in range(self._rounds):
                if before := self._next * self._rounds + number:
                    self._names = self._rename(before)
                self._steps += tuple(self._walk(number, len(self._steps)))
            self._next += 1
        assert epoch == self._next - 1, "epochs are asked for in ascending order"
        return self._steps

    def _rename(self, before: int) -> list[int]:
        """The partition that each name of the order stands for in the next round, after ``before``
        rounds."""
        order, last = self._order, self._order.states[-1]
        generator = random.Random(f"{self._seed} {before}")
        names = [-1] * order.shape.partitions
        taken = []
        newest = {load.rank: load.loaded for load in order.loads}
        leaving = {load.rank: load.evicted for load in order.loads if load.step == 0}
        for rank, first in enumerate(order.states[0]):
            held = [self._names[p] for p in last[rank]]
            generator.shuffle(held)
            first_names = list(first)
            if rank in newest and rank in leaving:
                # The newest takes the name that is listed last, after any other.
                held = _last(self._names[newest[rank]], held)
                first_names = _last(leaving[rank], first_names)[::-1]
            for name, partition in zip(first_names, held, strict=True):
                names[name] = partition
            taken += held
        rest = [p for p in range(order.shape.partitions) if p not in taken]
        generator.shuffle(rest)
        return [rest.pop() if partition < 0 else partition for partition in names]

    def _walk(self, in_round: int, first: int) -> list[Step]:
        """The steps of a round; the first has number ``first`` in the epoch."""
        order, rank, names = self._order, self._rank, self._names
        loads = {(load.step, load.rank): load for load in order.loads}
        steps = []
        written: int | None = None
        all_written: tuple[int, ...] = ()
        for number, states in enumerate(order.states):
            load = loads.get((number, rank))
            trained = tuple(
                tuple((names[i], names[j]) for i, j in buckets) for buckets in order.buckets[number]
            )
            loaded = None if load is None else names[load.loaded]
            leaves = None if load is None else names[load.evicted]
            steps.append(
                Step(
                    epoch=self._next,
                    number=first + number,
                    round=in_round,
                    rounds=self._rounds,
                    frames=dict(sorted(self._frames.items())),
                    spare=self._spare,
                    buckets=trained[rank],
                    loaded=loaded,
                    leaves=leaves,
                    written=written,
                    residents=tuple(tuple(names[p] for p in state) for state in states),
                    trained=trained,
                    all_written=all_written,
                )
            )
            all_written = tuple(
                names[loads[number, other].evicted]
                for other in range(order.shape.ranks)
                if (number, other) in loads
            )
            written = leaves
            if loaded is not None and leaves is not None:
                self._frames[loaded] = self._spare
                self._spare = self._frames.pop(leaves)
        return steps


def _last(value: int, values: list[int]) -> list[int]:
    """``values`` with ``value`` moved to the end."""
    return [other for other in values if other != value] + [value]
