"""Searches for orders with few states and adds them to the files that lsm/embed/orders carries.

    python bench/find_orders.py --seconds 60 16,3,1 16,3,2
    python bench/find_orders.py --ends 64,3,1 128,3,1

Each shape is partitions, buffer, ranks. The first command adds orders to best_orders.json. It tries
numbers of steps upward from the lower bound, each for --seconds; with --steps, only that many steps
beyond the bound. The second adds to best_ends.json where the search of a run ends, so that a run
starts at once.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import count
from pathlib import Path

from lsm.embed.orders.best import CARRIED, CARRIED_ENDS, search, search_end, shape_key
from lsm.embed.orders.turns import OrderShape, Turn

_RESTARTS = 50  # between looks at the clock


def find(shape: OrderShape, extra_steps: int, seconds: float, nodes: int) -> list[Turn] | None:
    """Turns with at most ``extra_steps`` more steps than the lower bound; None if the time is
    over."""
    end = time.monotonic() + seconds
    for seed in count(0, _RESTARTS):
        turns = search(shape, extra_steps, _RESTARTS, nodes, seed)
        if turns is not None or time.monotonic() > end:
            return turns
    raise AssertionError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="+", metavar="PARTITIONS,BUFFER,RANKS")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--nodes", type=int, default=3000)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--out", type=Path, default=CARRIED, help="orders to add to")
    parser.add_argument("--ends", action="store_true", help="add to best_ends.json")
    options = parser.parse_args()
    for text in options.shapes:
        shape = OrderShape(*map(int, text.split(",")))
        if options.ends:
            extra, seed = search_end(shape)
            print(f"{text}: {extra} steps beyond the bound with seed {seed}", flush=True)
            write(_carried(CARRIED_ENDS) | {shape_key(shape): [extra, seed]}, CARRIED_ENDS)
            continue
        tried = count() if options.steps is None else [options.steps]
        for extra in tried:
            turns = find(shape, extra, options.seconds, options.nodes)
            print(f"{text}: {extra} steps beyond the bound: {'found' if turns else 'none'}")
            if turns:
                add(shape, turns, options.out)
                break


def add(shape: OrderShape, turns: list[Turn], path: Path) -> None:
    """Adds ``turns`` to the orders at ``path``, unless one of no more turns is there."""
    carried = _carried(path)
    known = carried.get(shape_key(shape))
    if known is None or len(known) > 2 * len(turns):
        write(carried | {shape_key(shape): [number for turn in turns for number in turn]}, path)


def write(carried: dict[str, list[int]], path: Path) -> None:
    """Replaces the file by ``carried``, a line per shape, in the order of shapes."""
    ordered = sorted(carried.items(), key=lambda item: [int(part) for part in item[0].split(",")])
    lines = [f'"{key}": {json.dumps(values, separators=(",", ":"))}' for key, values in ordered]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _carried(path: Path) -> dict[str, list[int]]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


if __name__ == "__main__":
    main()
