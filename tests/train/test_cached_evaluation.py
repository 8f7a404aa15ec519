"""Validation and test take their rows from the cache that training fills, and change nothing."""

import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from lsm.core.counters import COUNTERS
from lsm.distributed.collectives import World
from lsm.distributed.signals import Stopped
from lsm.train.job import open_job
from lsm.train.tasks.node_prediction import NodePrediction
from lsm.train.trainer import train
from support.training import config, losses, make_store, overrides, run_job, steps

ROW_BYTES = 48
LOOKAHEAD = ("cache.policy=lookahead", "cache.window=4", f"cache.bytes={200 * ROW_BYTES}")
# Batches and neighbourhoods larger than those of training.
LARGE = ("train.eval.batch_size=150", "train.eval.num_neighbors=[12, 8]")
TIERS = ("hits", "static_hits", "victim_hits", "constant_hits", "misses")


def epochs(run_dir):
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [record for line in lines if (record := json.loads(line))["kind"] == "epoch"]


def accuracies(run_dir):
    result = json.loads((run_dir / "result.json").read_text())
    return [epoch["valid_accuracy"] for epoch in epochs(run_dir)] + [result["test_accuracy"]]


@pytest.mark.parametrize("victim", ["none", "pool"])
def test_evaluation_reads_through_the_tiers_of_training(store, tmp_path, victim):
    settings = (*LARGE, *LOOKAHEAD, f"cache.victim.mode={victim}", "storage.engine=posix")
    settings += (f"cache.victim.bytes={100 * ROW_BYTES}",)
    with open_job(config(store, tmp_path, *settings), World(), NodePrediction()) as job:
        (file,) = job.store.feature_paths
        features = torch.from_numpy(np.fromfile(file, np.float32)[: 600 * 12]).view(600, 12)
        for split in ("train", "valid", "train", "test", "valid"):
            for batch in job.loaders[split].iterate(0):
                assert torch.equal(batch.x, features[batch.n_id])
                assert sum(batch.stats[tier] for tier in TIERS) == len(batch.n_id)
        stats = job.loaders["valid"].features.stats()
        assert stats["cache_requests"] == stats["cache_misses"] + sum(
            stats[f"cache_{tier}"] for tier in TIERS[:-1]
        )
        assert stats["cache_hits"] > 0


@pytest.mark.parametrize("policy", ["lookahead", "lru", "static"])
def test_accuracies_and_losses_are_those_without_a_cache(store, tmp_path, policy):
    plain, cached = tmp_path / "plain", tmp_path / "cached"
    train(config(store, plain, *LARGE, "storage.engine=memory"))
    cache = (*LOOKAHEAD, f"cache.policy={policy}", "cache.score=in_degree")
    train(config(store, cached, *LARGE, *cache))
    assert losses(cached) == losses(plain)
    assert accuracies(cached) == accuracies(plain)


def test_what_evaluation_hits_is_told_apart_from_training(store, tmp_path, capsys):
    settings = config(store, tmp_path, *LARGE, *LOOKAHEAD)
    result = train(settings)
    said = capsys.readouterr().err
    with open_job(config(store, tmp_path / "other", *LARGE), World(), NodePrediction()) as job:
        asked = {
            split: sum(len(batch.n_id) for batch in job.loaders[split].iterate(0))
            for split in ("valid", "test")
        }
    for number, epoch in enumerate(epochs(tmp_path), 1):
        own = [step for step in steps(tmp_path) if step["epoch"] == number]
        assert all(epoch[name] == sum(step[name] for step in own) for name in COUNTERS)
        assert epoch["valid_requests"] == asked["valid"]
        assert epoch["valid_requests"] == sum(epoch[f"valid_{tier}"] for tier in TIERS)
        assert 0 < epoch["valid_hits"] < epoch["valid_requests"]
        hits = 100 * (1 - epoch["valid_misses"] / epoch["valid_requests"])
        assert re.search(rf"epoch +{number}/2 .* valid 0\.\d+ \(hits {hits:.1f}%\)  hits", said)
    assert result["test_requests"] == asked["test"]
    assert 0 < result["test_misses"] < result["test_requests"]


def test_a_cache_that_holds_the_graph_leaves_nothing_to_read_for_evaluation(store, tmp_path):
    result = train(config(store, tmp_path, "cache.policy=lookahead", "train.epochs=3", *LARGE))
    assert epochs(tmp_path)[-1]["valid_misses"] == 0
    assert result["test_misses"] < 0.1 * result["test_requests"]


@pytest.mark.slow
def test_a_run_that_is_stopped_while_validating_goes_on_to_the_same_losses(
    store, tmp_path, monkeypatch, kept_handlers
):
    plain, stopped = tmp_path / "plain", tmp_path / "stopped"
    train(config(store, plain, "storage.engine=memory"))
    import lsm.train.trainer

    whole = lsm.train.trainer.evaluate

    def evaluate(job, loader, advance):
        def advance_and_stop():
            os.kill(os.getpid(), signal.SIGTERM)
            advance()

        return whole(job, loader, advance_and_stop)

    monkeypatch.setattr(lsm.train.trainer, "evaluate", evaluate)
    with pytest.raises(Stopped):
        train(config(store, stopped, *LOOKAHEAD))
    assert [epoch["epoch"] for epoch in epochs(stopped)] == [1]
    monkeypatch.setattr(lsm.train.trainer, "evaluate", whole)
    train(config(store, stopped, *LOOKAHEAD))
    assert losses(stopped) == losses(plain)
    assert accuracies(stopped) == accuracies(plain)


@pytest.mark.slow
def test_ranks_with_one_cache_evaluate_alike_also_where_a_rank_has_no_seeds(tmp_path):
    store = make_store(tmp_path / "store", num_train=257)
    both = ("train.batch_size=32", "storage.engine=posix", "comm.timeout_secs=30")
    # 127 seeds in three batches of 63 and a last one of one or two nodes.
    both += ("train.eval.batch_size=16",)  # 129 test nodes: one rank has none in the last batch

    def run(name: str, *settings: str) -> Path:
        run_dir = tmp_path / name
        job = run_job(2, "-m", "lsm", "train", "base", *overrides(store, run_dir, *both, *settings))
        assert job.returncode == 0, job.stderr
        return run_dir

    plain = run("plain", "storage.engine=memory")
    for mode in ("shared", "independent"):
        cached = run(mode, *LOOKAHEAD, f"comm.mode={mode}")
        assert losses(cached) == losses(plain)
        assert accuracies(cached) == accuracies(plain)
        for epoch in epochs(cached):
            assert 0 < epoch["valid_misses"] < epoch["valid_requests"]
