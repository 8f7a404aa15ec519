"""Plans of the native planners, on the host and by GPU code, compared."""

import numpy as np
import torch

from lsm.cache.planner import Planner, PlannerConfig
from support.planner_traces import ARRAYS

NUM_NODES = 500


def skewed_batches(seed, num_batches=30, max_ids=150):
    rng = np.random.default_rng(seed)
    weight = 1 / np.arange(1, NUM_NODES + 1)
    sizes = rng.integers(0, max_ids, num_batches)
    return [
        torch.from_numpy(rng.choice(NUM_NODES, n, replace=False, p=weight / weight.sum()))
        for n in sizes
    ]


def plans(config, batches, sets, device=0):
    planner = Planner(
        config,
        scores=torch.rand(NUM_NODES - 50, generator=torch.Generator().manual_seed(1)),
        static_ids=torch.arange(3, 9),
        constant_ids=torch.arange(20, 40),
        trace=batches if config.policy == "belady" else None,
        sets=sets,
        device=device,
    )
    for t in range(len(batches)):
        for ids in batches[planner.num_pushed : t + config.window]:
            planner.push(ids)
        yield planner.plan()


def assert_same_plans(config, batches, sets, device=0):
    num_moves = 0
    expected = plans(config, batches, "host")
    for plan, other in zip(expected, plans(config, batches, sets, device), strict=True):
        for name in ARRAYS:
            assert torch.equal(getattr(plan, name), getattr(other, name)), (plan.iteration, name)
        assert plan.counters == other.counters
        num_moves += len(plan.evict_line)
    return num_moves


def config_of(policy, mode, num_lines, ways, **fields):
    rows = {"none": 0, "queues": 5, "pool": 30}[mode]
    return PlannerConfig(
        num_lines=num_lines,
        ways=ways,
        policy=policy,
        victim_mode=mode,
        victim_rows=rows,
        update_period=3,
        **fields,
    )
