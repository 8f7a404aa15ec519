"""Turns, states and loads: three views of how partitions move.

A turn is (slot, partition): a rank replaces the partition in that slot of its buffer. Slot -1: the
rank loads nothing. Turn t is that of rank ``t % ranks`` after step ``t // ranks``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Turn = tuple[int, int]
State = tuple[int, ...]


@dataclass(frozen=True)
class OrderShape:
    """``partitions`` partitions; each of ``ranks`` ranks holds ``buffer`` of them."""

    partitions: int
    buffer: int
    ranks: int = 1

    @property
    def pairs(self) -> int:
        """Pairs of partitions that are not together in the first state."""
        n, c = self.partitions, self.buffer
        return n * (n - 1) // 2 - self.ranks * (c * (c - 1) // 2)

    @property
    def step_pairs(self) -> int:
        """Most pairs that a step brings together: each load, ``buffer - 1``."""
        return self.ranks * (self.buffer - 1)

    @property
    def lower_bound(self) -> int:
        """Fewest states that any order can have."""
        return 1 + -(-self.pairs // self.step_pairs) if self.pairs > 0 else 1


@dataclass(frozen=True)
class Load:
    """Between steps ``step`` and ``step + 1``, ``rank`` replaces a partition by another."""

    step: int
    rank: int
    evicted: int
    loaded: int


def first_state(shape: OrderShape) -> tuple[State, ...]:
    """Rank r starts with partitions r * buffer, r * buffer + 1, ..."""
    c = shape.buffer
    return tuple(tuple(range(rank * c, (rank + 1) * c)) for rank in range(shape.ranks))


def states_of(shape: OrderShape, turns: Sequence[Turn]) -> tuple[tuple[State, ...], ...]:
    """The partitions that each rank holds in each step."""
    buffers = [list(state) for state in first_state(shape)]
    states = [first_state(shape)]
    for begin in range(0, len(turns), shape.ranks):
        for rank, (slot, partition) in enumerate(turns[begin : begin + shape.ranks]):
            if slot >= 0:
                buffers[rank][slot] = partition
        states.append(tuple(map(tuple, buffers)))
    return tuple(states)


def loads_of(shape: OrderShape, turns: Sequence[Turn]) -> tuple[Load, ...]:
    """The loads, step by step."""
    buffers = [list(state) for state in first_state(shape)]
    loads = []
    for number, (slot, partition) in enumerate(turns):
        step, rank = divmod(number, shape.ranks)
        if slot >= 0:
            loads.append(Load(step, rank, buffers[rank][slot], partition))
            buffers[rank][slot] = partition
    return tuple(loads)
