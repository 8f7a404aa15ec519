"""Orders with few states: carried ones for common shapes, and a search for all others."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from lsm import native
from lsm.embed.orders.turns import OrderShape, Turn

CARRIED = Path(__file__).with_name("best_orders.json")

# Limits at run time: a number of steps is tried for some seconds at most.
_RESTARTS = 50
_NODES = 1000


def best_turns(shape: OrderShape) -> list[Turn]:
    """Turns with few states, carried (a search of minutes found them) or searched for in seconds.

    The search doubles the number of steps beyond the lower bound until it finds an order, then
    halves the interval. It is bounded in nodes, not in time: every rank finds the same order.
    """
    carried = _carried().get(carried_key(shape))
    if carried is not None:
        return list(zip(carried[::2], carried[1::2], strict=True))
    too_few, extra = -1, 0
    # One greedy descent is enough once there are many more steps than needed.
    nodes = _NODES * max(1, shape.partitions // 8)
    while (found := search(shape, extra, _RESTARTS, nodes)) is None:
        too_few, extra = extra, max(1, 2 * extra)
        assert extra <= 4 * shape.partitions**2, f"no order for {shape}"
    while extra - too_few > 1:
        middle = (too_few + extra) // 2
        fewer = search(shape, middle, _RESTARTS, _NODES)
        if fewer is None:
            too_few = middle
        else:
            extra, found = middle, fewer
    return found


def search(
    shape: OrderShape, extra_steps: int, restarts: int, nodes: int, seed: int = 0
) -> list[Turn] | None:
    """Turns with at most ``extra_steps`` more steps than the lower bound, or None."""
    n, c, g = shape.partitions, shape.buffer, shape.ranks
    pairs = n * (n - 1) // 2 - g * (c * (c - 1) // 2)
    step_pairs = g * (c - 1)
    steps = -(-pairs // step_pairs) + extra_steps
    return native.search_order(
        partitions=n,
        buffer=c,
        ranks=g,
        waste=steps * step_pairs - pairs,
        seed=seed,
        restarts=restarts,
        nodes=nodes,
    )


def carried_key(shape: OrderShape) -> str:
    """Name of a shape in the file of carried orders."""
    return f"{shape.partitions},{shape.buffer},{shape.ranks}"


@cache
def _carried() -> dict[str, list[int]]:
    """Slots and partitions, alternating, by shape."""
    return json.loads(CARRIED.read_text(encoding="utf-8"))
