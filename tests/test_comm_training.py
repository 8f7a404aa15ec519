"""Jobs of several ranks with one cache: the same losses, less read, and one clear error."""

import json
import subprocess
import sys

import pytest
from training import (
    CRASH_AT,
    free_port,
    losses,
    make_store,
    overrides,
    rank_environment,
    run_job,
    steps,
)

from lsm.store.graph_store import GraphStore

ROW_BYTES = 48
CACHE = ("cache.policy=lookahead", "cache.window=4", f"cache.bytes={200 * ROW_BYTES}")
# 257 training nodes on two ranks: in the last iteration one rank has no seed.
BOTH = ("train.batch_size=32", "train.epochs=2", "storage.engine=posix", "comm.timeout_secs=30")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("shared") / "store", num_train=257)


def train(store, run_dir, *settings):
    job = run_job(2, "-m", "lsm", "train", "base", *overrides(store, run_dir, *BOTH, *settings))
    assert job.returncode == 0, job.stderr
    return losses(run_dir)


@pytest.mark.slow
def test_losses_are_those_without_a_cache_however_ranks_share_one(store, tmp_path):
    settings = {
        "memory": ("storage.engine=memory",),
        "independent": (*CACHE, "comm.mode=independent"),
        # No rank has the score yet: one computes it for both.
        "shared": (*CACHE, "cache.score=reverse_pagerank"),
        "partition-aware": (
            *CACHE,
            "comm.mode=partition-aware",
            "comm.transport=gloo",
            "comm.owner=stride",
            "cache.score=reverse_pagerank",
            "cache.victim.mode=pool",
            f"cache.victim.bytes={50 * ROW_BYTES}",
        ),
    }
    got = {name: train(store, tmp_path / name, *more) for name, more in settings.items()}
    assert all(each == got["memory"] for each in got.values())
    assert GraphStore.open(store).scores == ["reverse_pagerank"]

    def total(name, counter):
        return sum(step[counter] for step in steps(tmp_path / name))

    assert total("shared", "duplicates") > 0
    assert total("shared", "rows_sent_bytes") > total("partition-aware", "rows_sent_bytes") > 0
    assert total("independent", "rows_sent_bytes") == 0
    assert total("shared", "misses") < total("independent", "misses")
    for name in settings:
        for step in steps(tmp_path / name):
            tiers = ("hits", "static_hits", "victim_hits", "constant_hits", "misses")
            assert step["requests"] == step["num_nodes"]
            assert step["requests"] == sum(step[tier] for tier in (*tiers, "duplicates"))


@pytest.mark.slow
def test_a_job_that_lost_a_rank_resumes_to_the_same_losses(store, tmp_path):
    settings = overrides(store, tmp_path / "killed", *BOTH, *CACHE, "checkpoint.every_steps=1")
    killed = run_job(2, CRASH_AT, "kill", 1, 1, 2, "base", *settings)
    assert killed.returncode != 0
    interrupted = losses(tmp_path / "killed")
    whole = train(store, tmp_path / "whole", *CACHE)
    assert 0 < len(interrupted) < len(whole)
    assert train(store, tmp_path / "killed", *CACHE, "checkpoint.every_steps=1") == whole


def run_ranks(settings_of_ranks):
    """Runs one rank for each list of settings, without torchrun; their errors."""
    port, size = free_port(), len(settings_of_ranks)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "lsm", "train", "base", *settings],
            env=rank_environment(rank, size, port),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, settings in enumerate(settings_of_ranks)
    ]
    try:
        errors = [rank.communicate(timeout=90)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [1] * size
    return errors


def test_ranks_with_other_settings_are_told_on_every_rank(store, tmp_path):
    both = overrides(store, tmp_path, *BOTH, *CACHE)
    for error in run_ranks([both, [*both, "train.lr=0.5", "comm.owner=stride"]]):
        assert "different configurations: " in error
        assert "train.lr (0.01 on rank 0, 0.5 on rank 1)" in error
        assert "comm.owner (mix64 on rank 0, stride on rank 1)" in error


def test_ranks_with_other_stores_are_told_on_every_rank(store, tmp_path):
    other = make_store(tmp_path / "other", num_train=260)
    settings = [overrides(path, tmp_path / "run", *BOTH) for path in (store, other)]
    for error in run_ranks(settings):
        assert "data.path: ranks opened different stores: " in error
        assert str(store) in error
        assert str(other) in error


def test_a_table_for_other_nodes_is_an_error_of_every_rank(store, tmp_path):
    import numpy as np

    np.save(tmp_path / "owners.npy", np.zeros(3, np.int64))
    table = ("comm.owner=table", f"comm.owner_table={tmp_path / 'owners.npy'}")
    both = overrides(store, tmp_path / "run", *BOTH, *CACHE, *table)
    for error in run_ranks([both, both]):
        assert "comm.owner_table: " in error
        assert "expected an owner for each of 514 nodes, got 3" in error


def test_hits_by_tier_are_shown(store, tmp_path):
    job = run_job(2, "-m", "lsm", "train", "base", *overrides(store, tmp_path, *BOTH, *CACHE))
    assert job.returncode == 0, job.stderr
    (line,) = [line for line in job.stderr.splitlines() if line.startswith("epoch   2/2")]
    assert "hits " in line
    assert "(cache " in line
    assert "shared " in line
    assert json.loads(job.stdout)["world_size"] == 2
