"""Jobs of several ranks with one cache: the same losses, also after a crash, and clear errors."""

import re
import subprocess

import pytest

from lsm.data.graph_store import GraphStore
from support.training import (
    CRASH_AT,
    TRAIN_WITH_TWINS,
    forking_python,
    free_port,
    losses,
    make_store,
    overrides,
    rank_environment,
    run_job,
    steps,
)

pytestmark = pytest.mark.slow

ROW_BYTES = 48
CACHE = ("cache.policy=lookahead", "cache.window=4", f"cache.bytes={200 * ROW_BYTES}")
# 257 training nodes on two ranks: in the last iteration one rank has no seed.
BOTH = ("train.batch_size=32", "storage.engine=posix", "comm.timeout_secs=30")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("shared") / "store", num_train=257)


def train(store, run_dir, *settings):
    """The standard error of a whole run of two ranks."""
    job = run_job(2, "-m", "lsm", "train", "base", *overrides(store, run_dir, *BOTH, *settings))
    assert job.returncode == 0, job.stderr
    return job.stderr


@pytest.fixture(scope="module")
def shared(store, tmp_path_factory):
    """A run with the default, a shared cache. No rank has the score yet: one computes it."""
    run_dir = tmp_path_factory.mktemp("run")
    said = train(store, run_dir, *CACHE, "cache.score=reverse_pagerank")
    return run_dir, said


def test_losses_are_those_without_a_cache_however_ranks_share_one(store, shared, tmp_path):
    run_dir, _ = shared
    assert GraphStore.open(store).scores == ["reverse_pagerank"]
    train(store, tmp_path / "memory", "storage.engine=memory")
    replicated = (
        "comm.mode=partition-aware",
        "comm.transport=gloo",
        "comm.owner=stride",
        "cache.score=reverse_pagerank",
        "cache.victim.mode=pool",
        f"cache.victim.bytes={50 * ROW_BYTES}",
    )
    train(store, tmp_path / "replicated", *CACHE, *replicated)
    assert losses(run_dir) == losses(tmp_path / "memory") == losses(tmp_path / "replicated")

    def sent(run_dir):
        return sum(step["rows_sent_bytes"] for step in steps(run_dir))

    assert sent(run_dir) > sent(tmp_path / "replicated") > sent(tmp_path / "memory") == 0


@pytest.mark.parametrize("transport", ["ipc", "gloo"])
def test_losses_are_those_of_a_cache_on_the_host(store, shared, tmp_path, transport):
    """With the twins of the code that keeps it in GPU memory."""
    twins = (*BOTH, *CACHE, "cache.victim.mode=pool", f"cache.victim.bytes={50 * ROW_BYTES}")
    arguments = overrides(store, tmp_path, *twins, f"comm.transport={transport}")
    job = run_job(2, TRAIN_WITH_TWINS, "base", *arguments)
    assert job.returncode == 0, job.stderr
    assert losses(tmp_path) == losses(shared[0])
    assert sum(step["victim_hits"] for step in steps(tmp_path)) > 0


def test_steps_and_epochs_say_where_rows_came_from(shared):
    run_dir, said = shared
    tiers = ("hits", "static_hits", "victim_hits", "constant_hits", "misses", "duplicates")
    for step in steps(run_dir):
        assert step["requests"] == step["num_nodes"] == sum(step[tier] for tier in tiers)
        assert step["comm_secs"] > 0
    assert sum(step["duplicates"] for step in steps(run_dir)) > 0
    (line,) = [line for line in said.splitlines() if line.startswith("epoch   2/2")]
    assert re.search(r"hits \d+\.\d% \(cache \d+\.\d%, shared \d+\.\d%\)", line)


def test_a_job_that_lost_a_rank_resumes_to_the_same_losses(store, shared, tmp_path):
    settings = (*CACHE, "checkpoint.every_steps=1")
    whole = losses(shared[0])
    crash = (CRASH_AT, "kill", 1, 1, 2, "base", *overrides(store, tmp_path, *BOTH, *settings))
    assert run_job(2, *crash).returncode != 0
    assert 0 < len(losses(tmp_path)) < len(whole)
    train(store, tmp_path, *settings)
    assert losses(tmp_path) == whole


def test_ranks_with_other_settings_are_told_on_every_rank(store, tmp_path):
    both = overrides(store, tmp_path, *BOTH, *CACHE)
    port = free_port()
    ranks = [
        subprocess.Popen(
            [forking_python(), "-m", "lsm", "train", "base", *both, *more],
            env=rank_environment(rank, 2, port),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, more in enumerate([(), ("train.lr=0.5", "comm.owner=stride")])
    ]
    try:
        errors = [rank.communicate(timeout=300)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [1, 1]
    for error in errors:
        assert "different configurations: " in error
        assert "train.lr (0.01 on rank 0, 0.5 on rank 1)" in error
        assert "comm.owner (mix64 on rank 0, stride on rank 1)" in error
