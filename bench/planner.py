"""Ids planned per second, push and plan: ``python bench/planner.py``; prints one JSON record.

Lists of distinct ids follow a power law over ``--nodes`` ids. The window is filled and
``--warm-up`` iterations are planned; then every iteration pushes one list and plans one. The report
is the median over iterations with its spread. The modes of ``--victim`` take turns for
``--rounds``, of which the median run counts. ``ids_per_cpu_s`` is the rate of one core without
other work. ``--check`` first compares the counters of a small trace at one and at three threads.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial

import numpy as np
import torch

from common import median_run, parser, publish, spread, take_turns
from lsm import native
from lsm.cache.planner import POLICIES, VICTIM_MODES, Planner, PlannerConfig, simulate


def power_law_lists(num_nodes: int, num_ids: int, count: int, exponent: float) -> list:
    """``count`` lists of ``num_ids`` distinct ids, drawn with weight 1 / rank^exponent."""
    rng = np.random.default_rng(1)
    stride = 0x9E3779B1  # a prime: spreads ranks over the ids one to one
    lists = []
    for _ in range(count):
        ids = torch.empty(0, dtype=torch.int64)
        while len(ids) < num_ids:
            uniform = rng.random(num_ids)
            ranks = (1 + uniform * (num_nodes ** (1 - exponent) - 1)) ** (1 / (1 - exponent)) - 1
            drawn = torch.from_numpy(ranks.astype(np.int64) * stride % num_nodes)
            ids, _ = native.unique_relabel(torch.cat([ids, drawn]))
        lists.append(ids[:num_ids].clone())
    return lists


def check(config: PlannerConfig) -> None:
    batches = power_law_lists(5_000, 500, 30, 0.75)
    small = config.model_copy(
        update={"num_lines": 8 * config.ways, "victim_rows": min(config.victim_rows, 50)}
    )
    if simulate(batches, small) != simulate(batches, small, num_threads=3):
        raise RuntimeError("the plans of 1 and of 3 threads differ")


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    online = [policy for policy in POLICIES if policy != "belady"]
    arguments.add_argument("--policy", default="lookahead", choices=online)
    arguments.add_argument("--lines", type=int, default=1_000_000)
    arguments.add_argument("--ways", type=int, default=64, help="that of a cache in host memory")
    arguments.add_argument("--window", type=int, default=256)
    arguments.add_argument("--ids", type=int, default=100_000, help="per list")
    arguments.add_argument("--nodes", type=int, default=20_000_000)
    arguments.add_argument("--exponent", type=float, default=0.75, help="of the power law")
    arguments.add_argument("--victim", default="none,pool", help="modes to measure, by commas")
    arguments.add_argument("--victim-rows", type=int, help="default: as many as --lines")
    arguments.add_argument("--warm-up", type=int, default=40, help="iterations")
    arguments.add_argument("--iterations", type=int, default=60)
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--check", action="store_true")
    options = arguments.parse_args()
    unknown = set(options.victim.split(",")) - set(VICTIM_MODES)
    if unknown:
        arguments.error(f"--victim: expected some of {VICTIM_MODES}, got {sorted(unknown)}")
    return options


def planner_config(victim_mode: str, options: argparse.Namespace) -> PlannerConfig:
    victim_rows = options.lines if options.victim_rows is None else options.victim_rows
    return PlannerConfig(
        num_lines=options.lines,
        ways=options.ways,
        policy=options.policy,
        window=options.window,
        victim_mode=victim_mode,
        victim_rows=0 if victim_mode == "none" else victim_rows,
    )


def measure(config: PlannerConfig, lists: list, options: argparse.Namespace, _round: int) -> dict:
    scores = 1 / torch.arange(1, options.nodes + 1)
    planner = Planner(config, scores=scores, num_threads=options.threads)
    for ids in lists[: options.window]:
        planner.push(ids)
    for ids in lists[options.window : options.window + options.warm_up]:
        planner.plan()
        planner.push(ids)
    push_secs, plan_secs, cpu_secs, misses = [], [], [], 0
    for ids in lists[options.window + options.warm_up :]:
        cpu_start = time.thread_time()
        start = time.perf_counter()
        misses += planner.plan().counters["misses"]
        plan_secs.append(time.perf_counter() - start)
        start = time.perf_counter()
        planner.push(ids)
        push_secs.append(time.perf_counter() - start)
        cpu_secs.append(time.thread_time() - cpu_start)
    rates = [options.ids / (a + b) for a, b in zip(push_secs, plan_secs, strict=True)]
    metadata = planner.metadata_bytes()
    return {
        **{name: getattr(config, name) for name in ("policy", "num_lines", "ways", "window")},
        "victim_mode": config.victim_mode,
        "victim_rows": config.victim_rows,
        "hit_ratio": 1 - misses / (options.ids * options.iterations),
        **spread("ids_per_s", rates),
        # CPU time of the calling thread, which does all work if --threads is 1; other programs do
        # not slow it down by taking turns.
        "ids_per_cpu_s": options.ids / statistics.median(cpu_secs),
        "push_ns_per_id": 1e9 * statistics.median(push_secs) / options.ids,
        "plan_ns_per_id": 1e9 * statistics.median(plan_secs) / options.ids,
        "bytes_per_line": metadata["lines"] / config.num_lines,
        "bytes_per_window_entry": metadata["window"] / metadata["window_entries"],
    }


def main() -> None:
    options = parse_args()
    torch.set_num_threads(1)  # idle, its threads would spin on the cores that are measured
    configs = [planner_config(mode, options) for mode in options.victim.split(",")]
    if options.check:
        for config in configs:
            check(config)
    count = options.window + options.warm_up + options.iterations
    lists = power_law_lists(options.nodes, options.ids, count, options.exponent)
    contenders = {
        config.victim_mode: partial(measure, config, lists, options) for config in configs
    }
    results = []
    for runs in take_turns(options.rounds, contenders).values():
        rates = sorted(run["ids_per_s"] for run in runs)
        results.append(median_run(runs, "ids_per_s") | {"ids_per_s_of_rounds": rates})
    publish({"planner": results}, options)


if __name__ == "__main__":
    main()
