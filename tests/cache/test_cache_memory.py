"""The metadata of a cache's lines, against the memory that a planner takes."""

import gc
import statistics

import pytest

from lsm import native
from lsm.cache.memory import line_bytes
from lsm.cache.options import CacheOptions
from lsm.cache.planner import ONLINE_POLICIES, Planner, PlannerConfig
from lsm.core import host_memory
from lsm.core.allocator import release_freed_memory

NUM_LINES = 1 << 21


def config_of(policy, ways, mode, num_lines=NUM_LINES):
    return PlannerConfig(
        num_lines=num_lines,
        ways=ways,
        policy=policy,
        window=4,
        victim_mode=mode,
        victim_rows=0 if mode == "none" else 8,
    )


def resident_growth(config, sets):
    """Memory that a planner touches when it is made. Pages of the process that were swapped out may
    come back beside it, so the median of three."""
    return statistics.median(growth_once(config, sets) for _ in range(3))


def growth_once(config, sets):
    gc.collect()
    release_freed_memory()
    before = host_memory.resident_bytes()["anonymous"]
    planner = Planner(config, sets=sets)
    grown = host_memory.resident_bytes()["anonymous"] - before
    planner.close()
    return grown


@pytest.mark.parametrize(("policy", "ways"), [("lookahead", 32), ("sieve", 4), ("s3fifo", 1)])
@pytest.mark.parametrize(("sets", "mode"), [("host", "none"), ("twin", "none"), ("twin", "pool")])
def test_a_planner_takes_the_memory_that_is_stated(policy, ways, sets, mode):
    """A planner of the host writes to next positions, of the mode pool, as it plans."""
    config = config_of(policy, ways, mode)
    stated = native.planner_set_bytes(config.to_native(), sets == "twin") * (NUM_LINES // ways)
    # Pages of the allocator come and go with it: a twentieth at most.
    assert resident_growth(config, sets) == pytest.approx(stated, rel=0.05)


@pytest.mark.parametrize("policy", ONLINE_POLICIES)
@pytest.mark.parametrize("ways", [1, 3, 32])
@pytest.mark.parametrize("mode", ["none", "pool"])
@pytest.mark.parametrize("sets", ["host", "twin"])
def test_a_line_has_its_share_of_a_set(policy, ways, mode, sets):
    options = CacheOptions(policy=policy, ways=ways, victim_mode=mode)
    each = line_bytes(options, on_gpu=sets == "twin")
    lines = ways * 8
    planner = Planner(config_of(policy, ways, mode, lines), sets=sets)
    taken = planner.metadata_bytes()["lines"]
    planner.close()
    assert taken <= each * lines < taken + lines
