"""An order as text."""

from __future__ import annotations

from lsm.embed.orders.order import Order


def as_text(order: Order) -> str:
    """One line per step and rank: the partitions held, the buckets trained, the next load; then a
    summary."""
    shape = order.shape
    loads = {(load.step, load.rank): load for load in order.loads}
    lines = []
    for step, ranks in enumerate(order.states):
        for rank, state in enumerate(ranks):
            head = f"{step:4}" if shape.ranks == 1 else f"{step:4} rank {rank}"
            held = " ".join(f"{partition:3}" for partition in state)
            line = f"{head}: {held}   {len(order.buckets[step][rank]):3} buckets"
            load = loads.get((step, rank))
            if load is not None:
                meanwhile = len(order.trained_during(load))
                line += f", {meanwhile:3} while {load.loaded} replaces {load.evicted}"
            lines.append(line)
    overlapped = len(order.loads) - order.idle_loads
    return "\n".join(
        [
            *lines,
            f"{order.name}: {len(order.states)} states (lower bound {shape.lower_bound}), "
            f"{len(order.loads)} loads after the first state, {overlapped} of them while buckets "
            "are trained",
        ]
    )
