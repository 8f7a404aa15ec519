"""Several ranks: disjoint buffers in lock-step over one set of partitions."""

import json

import numpy as np
import pytest
import torch

from lsm.data.triples.store import TripleStore
from lsm.embed.batches import StepBatches
from lsm.embed.orders.itinerary import Itinerary
from lsm.embed.orders.order import make_order
from lsm.embed.table.layout import PartitionLayout
from support.training import run_job, run_ranks
from support.triples import NUM_ENTITIES, overrides, tables

CRASH = __file__.replace("embed/test_embed_ranks.py", "support/crash_embed.py")
SETTINGS = ("embed.partitions=8", "checkpoint.every_steps=5")


@pytest.mark.parametrize(
    ("name", "n", "c", "ranks", "rounds"),
    [
        ("best", 1, 3, 1, 1),
        ("best", 2, 3, 1, 3),
        ("best", 8, 3, 1, 1),
        ("best", 8, 3, 1, 2),
        ("random", 7, 3, 1, 1),
        ("beta", 6, 4, 1, 1),
        ("legend", 8, 3, 1, 5),
        ("best", 8, 3, 2, 1),
        ("random", 12, 3, 2, 2),
        ("best", 16, 3, 4, 1),
    ],
)
def test_every_edge_is_trained_once_per_epoch(store, name, n, c, ranks, rounds):
    opened = TripleStore.open(store)
    layout = PartitionLayout.of(opened.partition_starts(n).tolist(), 4)
    batches = StepBatches(
        opened.buckets("train", n), layout, 3, 32, seed=3, device=torch.device("cpu")
    )
    order = make_order(name, n, c, ranks)
    expected = np.array(opened.edges("train"), np.int64)
    expected = expected[np.lexsort(expected.T)]
    for epoch in range(2):
        found, counts = [], []
        for rank in range(ranks):
            itinerary = Itinerary(order, rank, 3, rounds)
            steps = [itinerary.epoch(e) for e in range(epoch + 1)][-1]
            counts.append([batches.count(step) for step in steps])
            for step in steps:
                made = list(batches.of(step))
                assert len(made) == batches.count(step)
                assert all(batch.shape[1] == 3 and len(batch) <= 32 for batch in made)
                skipped = list(batches.of(step, 2))
                assert all(map(torch.equal, made[2:], skipped))
                entity = np.full(layout.frame_rows * (c + 1), -1)
                for partition, frame in step.frames.items():
                    first, end = layout.starts[partition : partition + 2]
                    row = frame * layout.frame_rows
                    entity[row : row + end - first] = np.arange(first, end)
                for batch in made:
                    edges = batch.numpy().copy()
                    edges[:, 0], edges[:, 2] = entity[edges[:, 0]], entity[edges[:, 2]]
                    found.append(edges)
        assert all(count == counts[0] for count in counts)
        found = np.concatenate(found)
        np.testing.assert_array_equal(found[np.lexsort(found.T)], expected)
    assert expected.max() < NUM_ENTITIES


def job(store, run_dir, *more, script=("-m", "lsm", "embed", "train"), ranks=2):
    return run_job(ranks, *script, "base", *overrides(store, run_dir, *SETTINGS, *more))


@pytest.mark.slow
def test_two_ranks_train_and_continue_after_one_is_killed(store, tmp_path):
    whole = job(store, tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    summary = json.loads(whole.stdout.splitlines()[-1])
    assert (summary["world_size"], summary["partitions"]) == (2, 8)
    assert summary["test_mrr"] > 0

    killed = job(store, tmp_path / "cut", script=(CRASH, "1", "swap", "9", "0.5"))
    assert killed.returncode != 0
    assert not (tmp_path / "cut" / "result.json").exists()
    continued = job(store, tmp_path / "cut")
    assert continued.returncode == 0, continued.stderr
    assert tables(tmp_path / "cut") == tables(tmp_path / "whole")


@pytest.mark.slow
def test_a_killed_rank_ends_the_others_with_an_error_that_names_it(store, tmp_path):
    command = [CRASH, "1", "batch", "6", "0", "base", *overrides(store, tmp_path, *SETTINGS)]
    codes, lines = run_ranks(2, [command, command])
    assert codes == [1, -9]
    assert len(lines[0]) == 1
    assert "rank 1" in lines[0][0]


@pytest.mark.slow
def test_ranks_need_partitions_to_load(store, tmp_path):
    ended = job(store, tmp_path, "embed.partitions=7")
    assert ended.returncode != 0
    assert "embed.partitions: expected at least 8 for 2 ranks" in ended.stderr


@pytest.mark.slow
def test_four_ranks_learn(store, tmp_path):
    more = ("embed.partitions=16", "train.epochs=8")
    ended = job(store, tmp_path, *more, "checkpoint.every_steps=0", ranks=4)
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout.splitlines()[-1])
    assert (summary["world_size"], summary["partitions"]) == (4, 16)
    assert summary["test_mrr"] > 0.08  # chance: about 0.025
