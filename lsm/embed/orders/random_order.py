"""Random orders. Every load still overlaps with training."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from lsm.embed.orders.bucket_plan import plan_buckets
from lsm.embed.orders.turns import Load, OrderShape, State, Turn, first_state, loads_of, states_of

_ATTEMPTS = 100


def random_turns(shape: OrderShape, seed: int) -> list[Turn]:
    """Turns drawn at random: each loads a partition that meets a new one, if there is any.

    Raises ValueError if loads that overlap with training are not among many such orders.
    """
    generator = random.Random(seed)
    for _ in range(_ATTEMPTS):
        turns = _draw(shape, generator)
        states, loads = states_of(shape, turns), loads_of(shape, turns)
        if _all_overlap(states, loads):
            return turns
    raise ValueError(
        f"embed.order: in each of {_ATTEMPTS} random orders of {shape.partitions} partitions in "
        f"buffers of {shape.buffer} on {shape.ranks} ranks, a load had nothing to train meanwhile; "
        "take embed.order=best, or fewer partitions"
    )


def _all_overlap(states: Sequence[Sequence[State]], loads: Sequence[Load]) -> bool:
    buckets = plan_buckets(states, loads)
    return all(
        any(load.evicted not in bucket for bucket in buckets[load.step][load.rank])
        for load in loads
    )


def _draw(shape: OrderShape, generator: random.Random) -> list[Turn]:
    n = shape.partitions
    buffers = [list(state) for state in first_state(shape)]
    newest = [-1] * shape.ranks
    unmet = [set(range(n)) - {i} for i in range(n)]
    for buffer in buffers:
        for i in buffer:
            unmet[i] -= set(buffer)
    turns: list[Turn] = []
    while any(unmet):
        free = set(range(n)) - {i for buffer in buffers for i in buffer}
        for rank, buffer in enumerate(buffers):
            slots = [slot for slot in range(shape.buffer) if slot != newest[rank]]
            slot, loaded = _choose(list(_moves(buffer, slots, free)), unmet, generator)
            turns.append((slot, loaded))
            if slot < 0:
                continue
            free.discard(loaded)
            buffer[slot], newest[rank] = loaded, slot
            for i in buffer:
                unmet[i].discard(loaded)
            unmet[loaded] -= set(buffer)
    return turns


def _moves(
    buffer: list[int], slots: list[int], free: set[int]
) -> Iterator[tuple[int, int, list[int]]]:
    """Slot, partition to load, and the partitions that stay, of each move."""
    for slot in slots:
        stays = [i for other, i in enumerate(buffer) if other != slot]
        for partition in sorted(free):
            yield slot, partition, stays


def _choose(
    moves: list[tuple[int, int, list[int]]], unmet: list[set[int]], generator: random.Random
) -> Turn:
    """A random move that brings a new pair together. Without one, a move that loads a partition
    with others to meet; else any move, so that ranks let go of partitions that have yet to
    meet."""
    fresh = [(slot, p) for slot, p, stays in moves if unmet[p] & set(stays)]
    useful = fresh or [(slot, p) for slot, p, _ in moves if unmet[p]]
    return generator.choice(useful or [(slot, p) for slot, p, _ in moves] or [(-1, -1)])
