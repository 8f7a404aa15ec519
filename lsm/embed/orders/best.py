"""Orders with few states: carried ones for common shapes, and a search for all others."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from lsm import native
from lsm.embed.orders.turns import OrderShape, Turn

CARRIED = Path(__file__).with_name("best_orders.json")
"""Slots and partitions, alternating, by shape: orders that a search of minutes found."""

CARRIED_ENDS = Path(__file__).with_name("best_ends.json")
"""The steps beyond the lower bound and the seed of the order that the search at run time finds, by
shape. With them one descent finds it again."""

# Limits at run time: a number of steps is tried for some seconds at most.
_RESTARTS = 50
_NODES = 1000


def best_turns(shape: OrderShape) -> list[Turn]:
    """Turns with few states: carried, found again from where the search ends, or searched for in
    seconds. The last two are the same."""
    carried = _read(CARRIED).get(shape_key(shape))
    if carried is not None:
        return list(zip(carried[::2], carried[1::2], strict=True))
    extra, seed = _read(CARRIED_ENDS).get(shape_key(shape)) or search_end(shape)
    turns = search(shape, extra, 1, _many_nodes(shape), seed)
    assert turns is not None, f"{CARRIED_ENDS.name}: {shape} has no order there"
    return turns


def search_end(shape: OrderShape) -> tuple[int, int]:
    """Searches for an order with few states; returns its steps beyond the lower bound and its seed.

    The search doubles the number of steps beyond the lower bound until it finds an order, then
    halves the interval. It is bounded in nodes, not in time: every rank finds the same order.
    Raises ValueError if there is none.
    """
    too_few, extra = -1, 0
    # One greedy descent is enough once there are many more steps than needed.
    while (found := _first_seed(shape, extra, _many_nodes(shape))) is None:
        too_few, extra = extra, max(1, 2 * extra)
        if extra > 4 * shape.partitions**2:
            raise ValueError(
                f"embed.order: the search found no order for {shape.partitions} partitions and "
                f"buffers of {shape.buffer} on {shape.ranks} ranks; change embed.partitions or "
                "embed.buffer, or take embed.order=random"
            )
    while extra - too_few > 1:
        middle = (too_few + extra) // 2
        fewer = _first_seed(shape, middle, _NODES)
        if fewer is None:
            too_few = middle
        else:
            extra, found = middle, fewer
    return extra, found


def _first_seed(shape: OrderShape, extra_steps: int, nodes: int) -> int | None:
    """The first seed by which one descent finds an order, or None."""
    for seed in range(_RESTARTS):
        if search(shape, extra_steps, 1, nodes, seed) is not None:
            return seed
    return None


def _many_nodes(shape: OrderShape) -> int:
    return _NODES * max(1, shape.partitions // 8)


def search(
    shape: OrderShape, extra_steps: int, restarts: int, nodes: int, seed: int = 0
) -> list[Turn] | None:
    """Turns with at most ``extra_steps`` more steps than the lower bound, or None."""
    steps = shape.lower_bound - 1 + extra_steps
    return native.search_order(
        partitions=shape.partitions,
        buffer=shape.buffer,
        ranks=shape.ranks,
        waste=steps * shape.step_pairs - shape.pairs,
        seed=seed,
        restarts=restarts,
        nodes=nodes,
    )


def shape_key(shape: OrderShape) -> str:
    """The name of a shape in the carried files."""
    return f"{shape.partitions},{shape.buffer},{shape.ranks}"


@cache
def _read(path: Path) -> dict[str, list[int]]:
    return json.loads(path.read_text(encoding="utf-8"))
