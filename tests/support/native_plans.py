"""Plans of the native planners, on the host and by GPU code, compared."""

import numpy as np
import torch

from lsm.cache.planner import Planner, PlannerConfig
from support.planner_traces import MOVES, UNKNOWN, assert_same_array

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
    return _plans(planner, batches)


def _plans(planner, batches):
    for t in range(len(batches)):
        for ids in batches[planner.num_pushed : t + planner.config.window]:
            planner.push(ids)
        yield planner.plan()


def assert_same_plans(config, batches, sets, device=0):
    num_moves = 0
    expected = plans(config, batches, "host")
    for plan, other in zip(expected, plans(config, batches, sets, device), strict=True):
        assert_same_moves(plan, other)
        assert plan.counters == other.counters
        num_moves += len(plan.evict_line)
    return num_moves


def assert_same_plans_of_large_pools(sets, device=0):
    """Pools whose rows are many tiles of a search, with few ranks and with many."""
    rng = np.random.default_rng(5)
    batches = [
        torch.from_numpy(np.unique((40_000 * rng.random(6_000) ** 2).astype(np.int64)))
        for _ in range(12)
    ]
    shuffled = [ids[torch.from_numpy(rng.permutation(len(ids)))] for ids in batches]
    config = PlannerConfig(
        num_lines=2_048, policy="lookahead", victim_mode="pool", victim_rows=6_000, window=3
    )
    for scores in (None, torch.rand(NUM_NODES), torch.rand(40_000)):
        entered = served = 0
        for plan, other in zip(
            *(
                _plans(Planner(config, scores=scores, sets=place, device=device), shuffled)
                for place in ("host", sets)
            ),
            strict=True,
        ):
            assert_same_moves(plan, other)
            assert plan.counters == other.counters
            entered += plan.counters["spilled"]
            served += plan.counters["victim_hits"]
        assert served > 5_000
        assert entered - served > config.victim_rows, (entered, served)


def assert_same_moves(plan, other):
    """`other` is made by GPU code, which writes no words and no tags."""
    for name in MOVES:
        expected, found = np.asarray(getattr(plan, name)), getattr(other, name).numpy()
        assert_same_array(found, expected, f"{plan.iteration}, {name}")
    for kind in ("evict", "spill"):
        words = getattr(other, f"{kind}_word").tolist()
        slots = getattr(other, f"{kind}_slot").tolist()
        assert words == [UNKNOWN - 2**64 if slot >= 0 else 0 for slot in slots]
    assert len(other.tag_slot) == len(other.tag_word) == 0


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
