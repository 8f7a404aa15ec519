"""Rows from a cache that ranks share are those on storage, for every policy and engine."""

import pytest

from lsm.cache.planner import ONLINE_POLICIES as POLICIES
from support.engines import ENGINES
from support.shared_features import TIERS, all_tiers, fetch_case

NUM_RANKS = 8


# Of every number of ranks, powers of two are tests that take seconds.
SIZES = [
    pytest.param(size, marks=[] if size & (size - 1) == 0 else pytest.mark.slow)
    for size in range(1, NUM_RANKS + 1)
]
COMM = ({}, {"mode": "partition-aware", "transport": "gloo", "owner": "stride"})


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("size", SIZES)
def test_rows_are_those_on_storage(ranks, store, size, policy):
    """Every policy meets every engine at some size."""
    engine = ENGINES[(size + POLICIES.index(policy)) % len(ENGINES)]
    for comm in COMM if policy in ("lookahead", "lru") else COMM[size % 2 :][:1]:
        cache = {"policy": policy, **all_tiers(size)}
        answers = ranks.check(fetch_case, store, size, comm, engine, cache)[:size]
        asked = sum(delivered for delivered, _ in answers)
        assert sum(stats["cache_requests"] for _, stats in answers) == asked
        for tier in TIERS[: None if size > 1 else -1]:
            assert sum(stats[f"cache_{tier}"] for _, stats in answers) > 0, tier
