"""The memory budget: the sum of its shares, and runs that keep to it."""

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lsm.cache.tier_sizes import TierSizes
from lsm.config.load import parse_config
from lsm.core.memory import BatchSize, Shape
from lsm.loader.memory import window_bytes
from lsm.train.budget import share_out
from lsm.train.memory_plan import Facts
from support import training

MIB = 1 << 20
SECS = 240
BATCH = BatchSize(nodes=100_000, edges=150_000, expanded=20_000)
SHAPE = Shape(
    num_nodes=64 * MIB,
    row_bytes=256,
    topology_bytes=400 * MIB,
    iterations=1000,
    batch=BATCH,
)
FACTS = Facts(
    shape=SHAPE,
    budget=2048 * MIB,
    available=4096 * MIB,
    process=300 * MIB,
    libraries=200 * MIB,
    step=80 * MIB,
    model=10 * MIB,
)


def facts(budget=FACTS.budget, available=FACTS.available, gpu_room=0, **shape):
    """FACTS with changes to them and to their shape."""
    changed = replace(SHAPE, **shape)
    return replace(FACTS, shape=changed, budget=budget, available=available, gpu_room=gpu_room)


def plan(facts=FACTS, **sections):
    return share_out(parse_config(sections), facts)


def test_a_given_budget_beyond_the_free_memory_is_a_problem_if_the_plan_takes_it():
    beyond = plan(facts(100 << 40), memory={"bytes": "100TiB"})
    assert beyond.total > FACTS.available
    assert "memory.bytes: 17" in beyond.problem
    assert "of a budget of 100 TiB, and 4 GiB are free" in beyond.problem
    assert "set memory.bytes to auto or to 4096MiB" in beyond.problem
    small = plan(facts(100 << 40, num_nodes=MIB), memory={"bytes": "100TiB"})
    assert small.total <= FACTS.available
    assert small.problem is None


def cache_of(config):
    cache = config.cache
    return (cache.policy, cache.victim.mode, cache.bytes, cache.victim.bytes, cache.window)


@pytest.mark.parametrize("budget", [800, 900, 1500, 2048, 8000])
@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"cache": {"policy": "lookahead", "bytes": "16MiB"}},
        {"cache": {"policy": "lru"}},
        {"cache": {"policy": "lookahead", "victim": {"mode": "pool"}}},
        {"cache": {"policy": "none"}},
    ],
)
def test_the_terms_stay_within_the_budget(budget, sections):
    done = plan(facts(budget * MIB), memory={"bytes": budget * MIB}, **sections)
    assert done.total == sum(done.terms.values()) <= done.budget == budget * MIB
    # What the tiers come to, by the code that allocates them.
    cache = done.config.cache
    if cache.policy == "none":
        assert "cache" not in done.terms
        return
    rows = TierSizes.of(cache, SHAPE.row_bytes)
    held = (rows.planner.num_lines + rows.victim_slots) * SHAPE.row_bytes
    assert held <= done.terms["cache"] + done.terms.get("victim buffer", 0)
    assert done.terms["window"] >= cache.window * window_bytes(SHAPE)


def test_features_that_fit_are_held_in_memory():
    done = plan(facts(num_nodes=2 * MIB, topology_bytes=MIB))
    assert (done.config.storage.engine, done.config.cache.policy) == ("memory", "none")
    assert done.config.data.topology == "memory"
    assert done.terms["features"] == 512 * MIB
    assert "fit" in done.choice
    assert done.total <= done.budget


@pytest.mark.parametrize("policy", ["lookahead", "none"])
def test_buffers_of_reads_are_paid_for(policy):
    """By the tiers of a cache, if there is one. Rows in memory need none."""
    sections = {"storage": {"engine": "posix"}, "cache": {"policy": policy}}
    without, done = plan(**sections), plan(replace(FACTS, reads=16 * MIB), **sections)
    assert "reads in flight" not in without.terms
    assert done.terms["reads in flight"] == 16 * MIB
    assert done.total <= done.budget
    if policy == "lookahead":
        saved = without.terms["cache"] - done.terms["cache"]
        assert 8 * MIB < saved <= 16 * MIB  # the window gave the rest
    in_memory = replace(facts(num_nodes=2 * MIB, topology_bytes=MIB), reads=16 * MIB)
    assert plan(in_memory) == plan(replace(in_memory, reads=0))


def test_features_that_do_not_fit_get_a_cache_and_a_pool():
    done = plan()
    policy, mode, lines, slots, window = cache_of(done.config)
    assert (policy, mode, window) == ("lookahead", "pool", 32) or window > 1
    assert done.config.storage.engine == "auto"
    assert abs(lines - slots) < 0.2 * lines
    assert done.total > 0.95 * done.budget  # nothing is left unused


def test_every_row_is_read_where_little_memory_has_no_room_for_a_cache():
    # Rows of 24 MiB a batch: with one in training and one in flight there is nothing to spare.
    tight = facts(540 * MIB, 580 * MIB, batch=replace(BATCH, edges=1))
    done = plan(tight)
    assert (done.config.cache.policy, done.config.storage.engine) == ("none", "auto")
    assert "no room" in done.choice
    assert "cache" not in done.terms
    assert done.total <= done.budget <= tight.available


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"storage": {"engine": "posix"}}, ("posix", "lookahead")),
        ({"storage": {"engine": "memory"}}, ("memory", "none")),
        ({"cache": {"policy": "lru"}}, ("auto", "lru")),
        ({"cache": {"policy": "none"}}, ("memory", "none")),
        ({"cache": {"policy": "none"}, "storage": {"engine": "mmap"}}, ("mmap", "none")),
    ],
)
def test_explicit_settings_win(sections, expected):
    done = plan(facts(num_nodes=MIB // 4), **sections)
    assert (done.config.storage.engine, done.config.cache.policy) == expected


def test_explicit_sizes_are_left_alone():
    cache = {"policy": "lookahead", "bytes": "100MiB", "window": 7}
    cache["victim"] = {"mode": "pool", "bytes": "30MiB"}
    done = plan(cache=cache, loader={"staging_bytes": "11MiB"}, data={"topology": "mmap"})
    assert cache_of(done.config) == ("lookahead", "pool", 100 * MIB, 30 * MIB, 7)
    assert done.config.loader.staging_bytes == 11 * MIB
    assert done.config.data.topology == "mmap"
    assert not done.notes


def test_an_automatic_budget_grows_for_explicit_sizes_up_to_what_is_free():
    cache = {"policy": "lookahead", "bytes": 2500 * MIB}
    assert plan(cache=cache).budget > 2500 * MIB
    assert plan(cache=cache | {"bytes": 9999 * MIB}).budget == FACTS.available


def test_the_window_shrinks_and_says_so():
    cache = {"policy": "lookahead", "bytes": "64MiB"}
    done = plan(memory={"bytes": FACTS.budget}, cache=cache)
    assert 1 <= done.config.cache.window < 256 or not done.notes
    tight = facts(900 * MIB)
    done = plan(tight, memory={"bytes": tight.budget}, cache=cache)
    (note,) = done.notes
    assert note.startswith("cache.window: 256 iterations of")
    assert note.endswith(f"using {done.config.cache.window}")
    short = plan(facts(iterations=5), cache=cache)
    assert short.config.cache.window == 5
    assert not short.notes


@pytest.mark.parametrize(("union_bytes", "score"), [(100 * MIB, "auto"), (110 * MIB, "none")])
def test_a_score_is_computed_where_its_edges_have_room(union_bytes, score):
    """A sixteenth of 2 GiB, of which 24 MiB are for the nodes."""
    small = facts(num_nodes=MIB, topology_bytes=4 * MIB, union_bytes=union_bytes)
    assert plan(small, cache={"policy": "lookahead"}).config.cache.score == score


def test_a_budget_too_small_for_a_batch_is_an_error_with_the_sum():
    with pytest.raises(ValueError, match=r"^memory\.bytes: expected room for one batch") as caught:
        plan(facts(400 * MIB), memory={"bytes": "400MiB"})
    for word in ("process 300 MiB", "step 125 MiB", "got 400 MiB", "train.batch_size"):
        assert word in str(caught.value)
    (enough,) = re.findall(r"make it larger \((\d+)MiB has room\)", str(caught.value))
    assert 400 < int(enough) < 2 * 400 + 512
    assert plan(facts(int(enough) * MIB), memory={"bytes": int(enough) * MIB}).problem is None


def test_an_estimated_budget_is_an_error_if_the_sum_is_far_above_the_memory_there_is():
    """The terms are upper bounds, by a factor of 1.4 at most."""
    above = replace(facts(available=2048 * MIB), step=1500 * MIB)
    assert "step 1.9 GiB" in plan(above).problem
    assert 1.1 * 2048 * MIB < plan(above).total < 1.4 * 2048 * MIB
    far = replace(above, step=2000 * MIB)
    with pytest.raises(ValueError, match=r"train\.eval\.batch_size, sampler\.num_neighbors"):
        plan(far)
    with pytest.raises(ValueError, match=r"train\.eval\.batch_size, links\.eval_candidates"):
        plan(far, train={"task": "link"})
    given = replace(far, budget=4096 * MIB)
    assert 1.4 * 2048 * MIB < plan(given, memory={"bytes": given.budget}).total < 2 * 2048 * MIB
    assert "2 GiB are free" in plan(given, memory={"bytes": given.budget}).problem  # no error


def test_a_cache_on_a_gpu_takes_what_the_gpu_has():
    done = plan(facts(on_gpu=True, gpu_room=777 * 256 * 100))
    assert done.config.cache.bytes == 777 * 256 * 100
    assert "cache" not in done.terms
    none = plan(facts(on_gpu=True))
    assert none.config.cache.policy == "none"


def test_page_locked_memory_counts_what_a_pool_keeps():
    """Staging of 256 MiB with an eighth of headroom in each block, and idle blocks."""
    done = plan(facts(on_gpu=True, gpu_room=777 * 256 * 100))
    assert done.config.loader.staging_bytes == 256 * MIB
    rows = SHAPE.rows_bytes
    in_flight = int(1.125 * max(rows, min(256 * MIB, 64 * rows)))
    assert done.terms["staging"] == in_flight + max(2 * rows, 64 * MIB)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """Most of a run on it is the window: 256 graphs of [15, 10, 5] neighbours, rows of 16 bytes."""
    from lsm.data.synth import synthesize

    path = tmp_path_factory.mktemp("budget") / "graph"
    shares = {"train_fraction": 0.15, "valid_fraction": 0.01, "test_fraction": 0.01}
    synthesize(path, nodes=300_000, dim=4, avg_degree=10, progress=False, **shares)
    return path


RUN = ("device=cpu", "train.epochs=1", "train.batch_size=160", "train.num_threads=1")
RUN += ("sampler.num_neighbors=[15, 10, 5]", "model.hidden_dim=8", "metrics.loggers=[]")
CACHED = ("cache.policy=lookahead", "cache.bytes=1MiB", "storage.engine=posix")


def run_and_watch(tmp_path, *arguments):
    """A run's output, and the observed peak of its own memory in bytes. The kernel also counts
    pages of mapped files as resident: more of them where more are cached."""
    output = tmp_path / "output"
    with output.open("w") as file:
        command = [sys.executable, "-m", "lsm", "train", "base", *RUN, *map(str, arguments)]
        process = subprocess.Popen(command, stdout=file, stderr=file, env=training.environment())
        deadline = time.monotonic() + SECS
        peak = 0
        while process.poll() is None:
            assert time.monotonic() < deadline or process.kill(), "the run did not end"
            peak = max(peak, own_bytes(process.pid))
            time.sleep(0.02)
    text = output.read_text()
    assert process.returncode == 0, text
    return text, peak


def own_bytes(pid):
    """RssAnon of a process; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


@pytest.mark.slow
def test_a_run_keeps_to_its_budget(graph, tmp_path):
    budget = (1184 if torch.version.cuda else 640) * MIB  # CUDA's libraries take the rest
    where = (f"data.path={graph}", f"run.dir={tmp_path / 'run'}", "data.topology=memory")
    text, peak = run_and_watch(tmp_path, *where, *CACHED, f"memory.bytes={budget}")
    summary = json.loads(text.splitlines()[-1])
    assert "cache.window: 256 iterations of" in text
    assert 0.25 * budget < peak <= budget
    assert summary["memory_bytes"] == budget
    assert peak <= summary["peak_memory_bytes"] <= 1.1 * budget
