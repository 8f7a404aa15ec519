"""Prints the anonymous memory in bytes that planners take, as a list in JSON.

planner_memory.py [[policy, ways, sets, mode], ...]

A process of its own: other tests leave blocks in the allocator and threads, which change the memory
that a planner seems to take.
"""

from __future__ import annotations

import gc
import json
import sys

from lsm.cache.planner import Planner, PlannerConfig
from lsm.core import host_memory
from lsm.core.allocator import release_freed_memory

NUM_LINES = 1 << 23


def config_of(policy, ways, mode, num_lines=NUM_LINES):
    return PlannerConfig(
        num_lines=num_lines,
        ways=ways,
        policy=policy,
        window=4,
        victim_mode=mode,
        victim_rows=0 if mode == "none" else 8,
    )


def growth(policy, ways, sets, mode):
    """Memory that a planner touches when it is made."""
    config = config_of(policy, ways, mode)
    gc.collect()
    release_freed_memory()
    before = host_memory.resident_bytes()["anonymous"]
    planner = Planner(config, sets=sets)
    grown = host_memory.resident_bytes()["anonymous"] - before
    planner.close()
    return grown


def main() -> None:
    cases = json.loads(sys.argv[1])
    growth(*cases[0])  # loads what the first planner loads
    print(json.dumps([growth(*case) for case in cases]))


if __name__ == "__main__":
    main()
