"""The metadata of a cache's lines, against the memory that a planner takes."""

import json
from pathlib import Path

import pytest

from lsm import native
from lsm.cache.memory import line_bytes
from lsm.cache.options import CacheOptions
from lsm.cache.planner import ONLINE_POLICIES, Planner
from support import planner_memory
from support.planner_memory import NUM_LINES, config_of
from support.training import run_forked

# A planner of the host writes to next positions, of the mode pool, as it plans.
CASES = [
    (policy, ways, sets, mode)
    for policy, ways in (("lookahead", 32), ("sieve", 4), ("s3fifo", 1))
    for sets, mode in (("host", "none"), ("twin", "none"), ("twin", "pool"))
]


@pytest.fixture(scope="module")
def grown_bytes():
    """Anonymous memory that the planner of each case takes."""
    done = run_forked(Path(planner_memory.__file__), json.dumps(CASES))
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_a_planner_takes_the_memory_that_is_stated(grown_bytes, case):
    """Within half a byte a line: arrays end in huge pages."""
    policy, ways, sets, mode = case
    set_bytes = native.planner_set_bytes(config_of(policy, ways, mode).to_native(), sets == "twin")
    stated = set_bytes * (NUM_LINES // ways)
    assert grown_bytes[case] == pytest.approx(stated, abs=NUM_LINES // 2)


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
