"""The native planner by itself: limits and bad input, counters, threads, metadata."""

import numpy as np
import pytest
import torch

from lsm import native
from lsm.cache.planner import (
    COUNTERS,
    NEEDS_WINDOW,
    POLICIES,
    VICTIM_MODES,
    Planner,
    PlannerConfig,
    Source,
    simulate,
    simulate_optimal,
)

NUM_NODES = 600
_NO_PLACES = torch.empty(0, dtype=torch.int32)


def random_batches(num_batches, num_ids, seed=0):
    rng = np.random.default_rng(seed)
    weight = 1 / np.arange(1, NUM_NODES + 1)
    return [
        torch.from_numpy(rng.choice(NUM_NODES, num_ids, replace=False, p=weight / weight.sum()))
        for _ in range(num_batches)
    ]


def config_of(policy, mode="none", **fields):
    rows = {"none": 0, "queues": 6, "pool": 40}[mode]
    defaults = {"num_lines": 96, "ways": 12, "window": 10}
    return PlannerConfig(policy=policy, victim_mode=mode, victim_rows=rows, **(defaults | fields))


def run(batches, config, **arguments):
    if config.policy == "belady":
        arguments["trace"] = batches
    planner = Planner(config, **arguments)
    for t in range(len(batches)):
        for ids in batches[planner.num_pushed : t + config.window]:
            planner.push(ids)
        yield planner.plan()


def ids_of(*values):
    return torch.tensor(values, dtype=torch.int64)


@pytest.mark.parametrize("mode", VICTIM_MODES)
@pytest.mark.parametrize("policy", POLICIES)
def test_threads_change_nothing(policy, mode):
    batches = random_batches(40, 120)
    config = config_of(policy, mode)
    scores = torch.rand(NUM_NODES, generator=torch.Generator().manual_seed(0))
    one = list(run(batches, config, scores=scores))
    many = list(run(batches, config, scores=scores, num_threads=4))
    for a, b in zip(one, many, strict=True):
        assert a.counters == b.counters
        for name in ("source", "slot", "evict_line", "evict_slot", "insert_line", "spill_slot"):
            assert torch.equal(getattr(a, name), getattr(b, name)), name
    assert simulate(batches, config, scores=scores) == [plan.counters for plan in one]


@pytest.mark.parametrize("mode", VICTIM_MODES)
@pytest.mark.parametrize("policy", POLICIES)
def test_counters_add_up(policy, mode):
    batches = random_batches(30, 100)
    tiers = {"static_ids": ids_of(0, 5, 9), "constant_ids": ids_of(1, 5)}
    for plan, ids in zip(run(batches, config_of(policy, mode), **tiers), batches, strict=True):
        counters = plan.counters
        assert tuple(counters) == COUNTERS
        assert torch.equal(plan.ids, ids)
        assert counters["requests"] == len(ids)
        tier_counters = ("static_hits", "hits", "victim_hits", "constant_hits", "misses")
        counts = torch.bincount(plan.source, minlength=5).tolist()
        assert counts == [counters[name] for name in tier_counters]
        candidates = counters["victim_hits"] + counters["misses"]
        assert len(plan.insert_line) + counters["bypasses"] == candidates
        assert counters["evictions"] == len(plan.evict_line)
        slots = torch.cat([plan.evict_slot, plan.spill_slot])
        assert len(slots[slots >= 0].unique()) == (slots >= 0).sum() <= counters["spilled"]
        assert (plan.slot[plan.source == Source.STORAGE] == -1).all()
        assert (plan.slot[plan.source != Source.STORAGE] >= 0).all()


def optimal_hits(batches, num_lines):
    """Keeps the rows whose next uses are nearest, by sorting all of them."""
    lists = [ids.tolist() for ids in batches]
    kept, hits = {}, []
    for t, ids in enumerate(lists):
        hits.append(sum(node in kept for node in ids))
        kept = {node: use for node, use in kept.items() if use != t}
        for node in ids:
            uses = (b for b in range(t + 1, len(lists)) if node in lists[b])
            kept[node] = next(uses, None)
        known = [(use, node) for node, use in kept.items() if use is not None]
        kept = {node: use for use, node in sorted(known)[:num_lines]}
    return hits


@pytest.mark.parametrize("num_lines", [1, 12, 96, 300])
def test_optimal_bounds_every_policy(num_lines):
    batches = random_batches(25, 100)
    optimal = simulate_optimal(batches, num_lines)
    assert [c["hits"] for c in optimal] == optimal_hits(batches, num_lines)
    for counters, ids in zip(optimal, batches, strict=True):
        assert counters["hits"] + counters["misses"] == counters["requests"] == len(ids)
    for policy in POLICIES:
        for ways in (num_lines, 1):
            config = PlannerConfig(num_lines=num_lines, ways=ways, policy=policy, window=25)
            hits = sum(c["hits"] for c in simulate(batches, config))
            assert hits <= sum(c["hits"] for c in optimal)


def test_large_lists_use_every_path():
    """Lists longer than a look-up task and than a block of the chain, and sets of one way."""
    batches = [
        torch.from_numpy(np.random.default_rng(b).choice(60_000, 9000 + b, replace=False))
        for b in range(6)
    ]
    for ways in (1, 8, 64):
        config = PlannerConfig(num_lines=6400, ways=ways, window=3, seed=1)
        one = simulate(batches, config)
        assert one == simulate(batches, config, num_threads=3)
        assert sum(c["hits"] for c in one) > 0


def test_metadata_word():
    for t in (0, 1, 65_530, 2**32):
        for ahead in (1, 2, 65_535):
            for rank, position in ((0, 0), (255, 2**40 - 1), (3, 12_345)):
                word = native.pack_metadata(t + ahead, rank, position)
                assert native.unpack_metadata(word, t) == (t + ahead, rank, position)
    assert native.pack_metadata(0x1_2345, 0x67, 0x89) == 0x2345_67_0000000089


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ((65_536, 1, 0), "cache.window: expected at most 65535"),
        ((1, 257, 0), "expected 1 to 256 ranks"),
        ((1, 0, 0), "expected 1 to 256 ranks"),
        ((1, 1, 2**40), r"fewer than 2\^40 rows"),
    ],
)
def test_metadata_limits(limits, message):
    native.check_metadata_limits(65_535, 256, 2**40 - 1)
    with pytest.raises(ValueError, match=message):
        native.check_metadata_limits(*limits)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"policy": "mru"}, "cache.policy: expected one of round_robin, .*belady; got 'mru'"),
        ({"num_lines": 0}, "cache.num_lines: expected at least 1, got 0"),
        ({"num_lines": -64}, "cache.num_lines: expected at least 1, got -64"),
        ({"ways": 0}, "cache.ways: expected at least 1, got 0"),
        ({"window": -1}, "cache.window: expected at least 1"),
        ({"window": 65_536}, "cache.window: expected at most 65535"),
        ({"update_period": 0}, "cache.update_period: expected at least 1"),
        ({"near_fraction": -0.5}, "cache.near_fraction: expected at "),
        ({"near_fraction": float("nan")}, "cache.near_fraction: expected a finite number"),
        ({"victim_mode": "stack"}, "cache.victim.mode: expected one of none, queues, pool"),
        ({"victim_mode": "pool"}, "cache.victim.rows: mode 'pool' expects at least 1 row"),
        ({"victim_rows": -1}, "cache.victim.rows: expected at least 1"),
        (
            {"policy": "lru", "window": 0, "victim_mode": "pool", "victim_rows": 1},
            "cache.window: expected at least 1, got 0",
        ),
    ],
)
def test_rejects_bad_config(fields, message):
    with pytest.raises(ValueError, match=message):
        PlannerConfig(**({"num_lines": 64} | fields))


@pytest.mark.parametrize("policy", [p for p in POLICIES if p != "belady"])
def test_window_zero(policy):
    if policy in NEEDS_WINDOW:
        with pytest.raises(ValueError, match=r"cache\.window: expected at least 1, got 0"):
            PlannerConfig(num_lines=64, policy=policy, window=0)
        return
    config = PlannerConfig(num_lines=64, policy=policy, window=0)
    batches = random_batches(10, 60)
    assert simulate(batches, config) == simulate(batches, config.model_copy(update={"window": 1}))


def test_lines_are_rounded_to_sets():
    with pytest.warns(UserWarning, match="70 lines do not make whole sets of 32; using 64"):
        assert PlannerConfig(num_lines=70).num_lines == 64
    with pytest.warns(UserWarning, match="using 32"):
        assert PlannerConfig(num_lines=5).num_lines == 32


def test_rejected_batch_changes_nothing():
    config = config_of("lookahead", "pool", window=4)
    batches = random_batches(12, 80)
    expected = simulate(batches, config, num_nodes=NUM_NODES)
    planner = Planner(config, num_nodes=NUM_NODES)
    counters = []
    for t in range(len(batches)):
        for ids in batches[planner.num_pushed : t + config.window]:
            repeated = torch.cat([ids, ids[7:8]])
            with pytest.raises(ValueError, match=f"got {ids[7]} at positions 7 and 80"):
                planner.push(repeated)
            with pytest.raises(ValueError, match=r"in \[0, 600\), got 600 at position 1"):
                planner.push(ids_of(3, 600))
            with pytest.raises(ValueError, match="got -1 at position 0"):
                planner.push(ids_of(-1))
            planner.push(ids)
        counters.append(planner.plan().counters)
    assert counters == expected


def test_rejects_calls_out_of_turn():
    planner = Planner(config_of("lookahead", window=2))
    with pytest.raises(ValueError, match="plan of iteration 0: its batch has not been pushed"):
        planner.plan()
    planner.push(ids_of(1))
    planner.push(ids_of(2))
    with pytest.raises(ValueError, match="the window is full"):
        planner.push(ids_of(3))
    planner.plan()
    planner.push(ids_of(3))


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        (ids_of(), "rank_starts: expected one per rank, got 0"),
        (ids_of(1, 2), "rank_starts: expected positions that rise from 0 .* 3 ids"),
        (ids_of(0, 2, 1), "rank_starts: expected positions that rise"),
        (ids_of(0, 4), "rank_starts: expected positions that rise .* got 0 to 4"),
        (torch.zeros(257, dtype=torch.int64), "expected 1 to 256 ranks"),
    ],
)
def test_rejects_bad_rank_starts(starts, message):
    planner = Planner(config_of("lookahead", "pool"))
    with pytest.raises(ValueError, match=message):
        planner.push(ids_of(5, 6, 7), starts)
    planner.push(ids_of(5, 6, 7), ids_of(0, 0, 3))


def test_rejects_bad_input():
    config = config_of("lookahead")
    with pytest.raises(ValueError, match="scores: expected finite scores >= 0, got -1 for node 2"):
        Planner(config, scores=torch.tensor([0.0, 1.0, -1.0]))
    with pytest.raises(ValueError, match="scores: expected finite"):
        Planner(config, scores=torch.tensor([float("inf")]))
    with pytest.raises(ValueError, match="static_ids: expected distinct ids, got 4 again"):
        Planner(config, static_ids=ids_of(4, 4))
    with pytest.raises(ValueError, match="constant_ids: expected ids >= 0"):
        Planner(config, constant_ids=ids_of(-4))
    with pytest.raises(ValueError, match="trace: only the policy 'belady'"):
        Planner(config, trace=[ids_of(1)])
    with pytest.raises(ValueError, match="'belady' expects the list of all batches"):
        Planner(config_of("belady"))
    for bad, message in ((ids_of(3, 5, 3), "batch 1"), (ids_of(-2), "got -2")):
        with pytest.raises(ValueError, match=message):
            simulate_optimal([ids_of(3), bad], 4)
        for policy in ("lru", "belady"):
            with pytest.raises(ValueError, match=r"got -2|in batch 1, got 3 at positions 0 and 2"):
                simulate([ids_of(3), bad], config_of(policy))
    planner = Planner(config_of("belady"), trace=[ids_of(1, 2)])
    with pytest.raises(ValueError, match="batch 0 differs"):
        planner.push(ids_of(2, 1))
    planner.push(ids_of(1, 2))
    with pytest.raises(ValueError, match="has only 1 batches"):
        planner.push(ids_of(1))


@pytest.mark.parametrize("mode", ["none", "pool"])
@pytest.mark.parametrize("policy", POLICIES)
def test_metadata_is_small(policy, mode):
    """Under 32 bytes per line and 24 per entry of the window, also while the window moves."""
    batches = [
        torch.from_numpy(np.random.default_rng(b).choice(10**6, 20_000, replace=False))
        for b in range(24)
    ]
    config = config_of(policy, mode, num_lines=32_000, ways=32, window=16)
    planner = Planner(config, trace=batches if policy == "belady" else None)
    for t in range(len(batches)):
        for ids in batches[planner.num_pushed : t + config.window]:
            planner.push(ids)
        metadata = planner.metadata_bytes()
        assert metadata["lines"] < 32 * config.num_lines
        if policy != "belady" and t + config.window <= len(batches):
            assert metadata["window"] < 24 * metadata["window_entries"]
        planner.plan()


@pytest.mark.parametrize("has_ranks", [False, True])
def test_sources_by_range_are_those_of_the_requests(has_ranks):
    rng = np.random.default_rng(4)
    static = torch.arange(100, 110)
    planner = Planner(config_of("lru", "pool"), static_ids=static, num_nodes=NUM_NODES)
    ends, seen = [0, 90, 90, 250, NUM_NODES], np.zeros(6, np.int64)
    for ids in random_batches(12, 150):
        planner.push(ids)
        plan = planner.plan()
        requests = rng.integers(0, len(ids), 60) if has_ranks else np.arange(len(ids))
        row_of = torch.from_numpy(requests.astype(np.int32)) if has_ranks else _NO_PLACES
        counts = np.array(plan.native.count_by_range(ends, row_of))[:, :6]
        for begin, end, own in zip([0, *ends], ends, counts, strict=False):
            inside = (ids.numpy() >= begin) & (ids.numpy() < end)
            sources = np.bincount(plan.source.numpy()[inside], minlength=5)
            order = (Source.CACHE, Source.STATIC, Source.VICTIM, Source.CONSTANT, Source.STORAGE)
            expected = [sources[source] for source in order]
            assert own.tolist() == [inside[requests].sum(), *expected]
        seen += counts.sum(0)
    assert (seen[[0, 1, 2, 3, 5]] > 0).all()
    with pytest.raises(ValueError, match="ends: expected one above"):
        plan.native.count_by_range([90], row_of)
