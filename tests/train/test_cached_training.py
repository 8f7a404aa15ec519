"""Training with a cache takes the same steps as from memory, bit by bit, and reports its hits."""

import errno
import json
import logging
import re

import pytest
import torch

import lsm
from lsm import native
from lsm.cache.options import CacheOptions
from lsm.cache.planner import ONLINE_POLICIES
from lsm.core.counters import COUNTERS
from lsm.data.graph_store import GraphStore
from lsm.distributed.collectives import World
from lsm.train import cache_remarks
from lsm.train.job import open_job
from lsm.train.tasks.node_prediction import NodePrediction
from lsm.train.trainer import train
from support.training import CRASH_AT, config, losses, make_store, overrides, run_forked, steps

ROW_BYTES = 48
POSIX, MEMORY = (lsm.StorageOptions(engine=name) for name in ("posix", "memory"))
# 600 nodes, batches of some 350: a set of 32 lines; less than a batch; most; more than the graph.
SIZES = {"set": 32, "small": 200, "middle": 400, "all": 1000}
LOOKAHEAD = ("cache.policy=lookahead", "cache.window=4", f"cache.bytes={200 * ROW_BYTES}")


@pytest.fixture(scope="module")
def uncached(store, tmp_path_factory):
    """The losses of a run from memory, and its summary."""
    run_dir = tmp_path_factory.mktemp("uncached")
    summary = train(config(store, run_dir, "storage.engine=memory"))
    return losses(run_dir), summary


def epochs(run_dir):
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [record for line in lines if (record := json.loads(line))["kind"] == "epoch"]


def cached_run(store, run_dir, *settings):
    summary = train(config(store, run_dir, "storage.engine=posix", *settings))
    return losses(run_dir), summary["test_accuracy"]


@pytest.mark.slow
@pytest.mark.parametrize("victim_mode", ["none", "queues", "pool"])
@pytest.mark.parametrize("policy", ONLINE_POLICIES)
def test_losses_are_identical_for_every_policy_and_victim_mode(
    store, uncached, tmp_path, policy, victim_mode
):
    settings = (
        f"cache.policy={policy}",
        f"cache.bytes={150 * ROW_BYTES}",
        "cache.window=4",
        "cache.score=in_degree",
        f"cache.victim.mode={victim_mode}",
        f"cache.victim.bytes={100 * ROW_BYTES}",
    )
    got, accuracy = cached_run(store, tmp_path, *settings)
    assert got == uncached[0]
    assert accuracy == uncached[1]["test_accuracy"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("window", [1, 3, 256])
def test_losses_are_identical_for_every_size_and_window(store, uncached, tmp_path, size, window):
    settings = ("cache.policy=lookahead", f"cache.bytes={SIZES[size] * ROW_BYTES}")
    got, _ = cached_run(store, tmp_path, *settings, f"cache.window={window}")
    assert got == uncached[0]


@pytest.mark.parametrize("engine", ["memory", "io_uring"])
def test_losses_are_identical_for_every_engine_with_all_tiers(store, uncached, tmp_path, engine):
    if engine == "io_uring" and native.io_uring_problem():
        pytest.skip(native.io_uring_problem())
    settings = (
        *LOOKAHEAD,
        "cache.victim.mode=pool",
        f"cache.victim.bytes={50 * ROW_BYTES}",
        f"cache.constant.bytes={30 * ROW_BYTES}",
        f"cache.static.bytes={20 * ROW_BYTES}",
        "cache.score=presample",
        "loader.num_threads=2",
        "loader.staging_bytes=1KiB",
    )
    train(config(store, tmp_path, f"storage.engine={engine}", *settings))
    assert losses(tmp_path) == uncached[0]
    for record in epochs(tmp_path):
        for name in ("hits", "static_hits", "victim_hits", "constant_hits", "misses"):
            assert record[name] > 0, name


def test_steps_and_epochs_say_where_rows_came_from(store, tmp_path):
    settings = (*LOOKAHEAD, "cache.victim.mode=pool", f"cache.victim.bytes={50 * ROW_BYTES}")
    train(config(store, tmp_path, "storage.engine=posix", *settings))
    for epoch in epochs(tmp_path):
        own = [step for step in steps(tmp_path) if step["epoch"] == epoch["epoch"]]
        for step in own:
            tiers = ("hits", "static_hits", "victim_hits", "constant_hits", "misses")
            assert step["requests"] == step["num_nodes"] == sum(step[tier] for tier in tiers)
            assert step["cache_bytes"] == step["hits"] * ROW_BYTES
            assert step["victim_bytes"] == step["victim_hits"] * ROW_BYTES
            assert step["storage_bytes"] == step["misses"] * ROW_BYTES
        for name in COUNTERS:
            assert epoch[name] == sum(step[name] for step in own), name
        for span in ("sample_secs", "plan_secs", "read_wait_secs", "replay_secs"):
            assert epoch[span] == pytest.approx(sum(step[span] for step in own))
            assert epoch[span] > 0
        # Rows are smaller than blocks, and an epoch's reads begin and end with it.
        read = sum(step["bytes_read"] for step in own)
        assert epoch["read_amplification"] == pytest.approx(read / epoch["storage_bytes"])
        assert epoch["read_amplification"] > 1


def test_a_cache_as_large_as_the_graph_reads_each_row_once(store, tmp_path):
    train(config(store, tmp_path, "cache.policy=lookahead", "train.epochs=3"))
    first, second, third = epochs(tmp_path)
    misses = sum(epoch["misses"] + epoch["valid_misses"] for epoch in (first, second, third))
    assert misses <= 600
    assert third["misses"] < 0.05 * third["requests"]
    assert first["evictions"] == first["bypasses"] == 0


def test_without_a_cache_every_row_is_a_miss(store, tmp_path):
    train(config(store, tmp_path, "storage.engine=posix", "cache.policy=none"))
    for step in steps(tmp_path):
        assert step["misses"] == step["requests"] == step["num_nodes"]
        assert step["storage_bytes"] == step["num_nodes"] * ROW_BYTES
        assert step["hits"] == step["plan_secs"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("crash_at", [(0, 3), (1, 2)])
def test_a_run_that_was_killed_resumes_with_a_cold_cache_to_the_same_losses(
    store, uncached, tmp_path, crash_at
):
    settings = overrides(store, tmp_path, *LOOKAHEAD, "checkpoint.every_steps=1")
    killed = run_forked(CRASH_AT, "kill", 0, *crash_at, "base", *settings)
    assert killed.returncode != 0
    assert len(losses(tmp_path)) < len(uncached[0])
    train(config(store, tmp_path, *LOOKAHEAD, "checkpoint.every_steps=1"))
    assert losses(tmp_path) == uncached[0]
    assert epochs(tmp_path)[0]["requests"] == sum(
        step["requests"] for step in steps(tmp_path) if step["epoch"] == 1
    )


@pytest.mark.parametrize("fault", [native.Fault.error, native.Fault.stall])
def test_a_failing_device_ends_training(store, tmp_path, fault):
    settings = config(
        store, tmp_path, "storage.timeout_secs=4.0", "storage.engine=posix", *LOOKAHEAD
    )
    with open_job(settings, World(), NodePrediction()) as job:
        loader = job.loaders["train"]
        loader.features.storage.inject_fault(fault, nth=2, value=errno.EIO)
        with pytest.raises((OSError, TimeoutError), match=r"features\.bin"):
            list(loader.iterate(0))
        with pytest.raises(RuntimeError, match="lost rows in an earlier failure"):
            list(loader.iterate(1))
        # Evaluation goes through the same cache.
        with pytest.raises(RuntimeError, match="lost rows in an earlier failure"):
            list(job.loaders["valid"])


def test_an_epoch_that_is_left_early_makes_the_next_start_cold(store):
    graph = GraphStore.open(store)
    cache = CacheOptions(bytes=400 * ROW_BYTES, window=3)
    with (
        lsm.NeighborLoader(graph, [5, 3], "train", 64, storage=POSIX, cache=cache) as cached,
        lsm.NeighborLoader(graph, [5, 3], "train", 64, storage=MEMORY) as plain,
    ):
        for taken in (1, 3, 5):  # of five
            for epoch in range(2):
                pairs = zip(range(taken), cached.iterate(epoch), plain.iterate(epoch), strict=False)
                for _, got, expected in pairs:
                    assert torch.equal(got.n_id, expected.n_id)
                    assert torch.equal(got.x, expected.x)
                    assert got.stats["requests"] == len(got.n_id)
        stats = cached.stats()
        assert stats["cache_hits"] > 0
        assert stats["cache_requests"] >= stats["sampled_nodes"] > 0


@pytest.mark.parametrize("name", ["in_degree", "reverse_pagerank", "presample"])
def test_a_score_that_is_missing_is_computed_and_stored(tmp_path, name):
    store = make_store(tmp_path / "store")
    settings = (*LOOKAHEAD, f"cache.score={name}", "train.epochs=1")
    train(config(store, tmp_path / "one", *settings))
    stored = GraphStore.open(store)
    assert stored.scores == [name]
    file = store / "scores" / f"{name}.npy"
    written = file.stat().st_mtime_ns
    train(config(store, tmp_path / "two", *settings))
    assert file.stat().st_mtime_ns == written
    assert losses(tmp_path / "one") == losses(tmp_path / "two")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("cache.bytes=47",), r"cache\.bytes: expected room for a row of 48 bytes, got 47"),
        (("cache.bytes=1000TiB",), r"cache\.bytes: .* of host memory are free"),
        (
            ("cache.victim.mode=pool", "cache.victim.bytes=1000TiB"),
            r"cache\.victim\.bytes: .* of host memory are free",
        ),
        (
            ("cache.static.bytes=1KiB", "cache.score=none"),
            r"cache\.static\.bytes: holds .* set cache\.score",
        ),
        (("cache.score=in_degre",), r"cache\.score: expected one of auto, none, .*got 'in_"),
    ],
)
def test_a_cache_that_cannot_be_is_an_error_before_anything_starts(
    store, tmp_path, settings, message
):
    with pytest.raises(ValueError, match=message):
        train(config(store, tmp_path, *LOOKAHEAD, *settings))
    assert not any(tmp_path.iterdir())


def test_a_policy_without_its_score_is_remarked(store, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        policy = ("cache.policy=hybrid", "cache.score=none")
        train(config(store, tmp_path, *policy, "train.epochs=1"))
    assert "cache.policy=hybrid depends on cache.score, which is none" in caplog.text


def test_settings_of_a_cache_that_is_not_there_are_remarked(store, tmp_path, caplog):
    given = ("cache.bytes=1MiB", "cache.victim.mode=pool", "cache.window=256", "train.epochs=1")
    with caplog.at_level(logging.WARNING):
        train(config(store, tmp_path / "run", "storage.engine=memory", *given))
    said = [message for message in caplog.messages if message.startswith("there is no cache")]
    # The window is the default, as it would be in a copy of base.yaml.
    assert said == [
        "there is no cache (storage.engine=memory): cache.bytes, cache.victim.mode have no effect; "
        "leave them out"
    ]


def said_of_caches(caplog):
    """Warnings about the cache, in order."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelname == "WARNING" and "cache" in record.getMessage()
    ]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("cache.policy=none", "cache.bytes=1MiB"), "there is no cache (cache.policy=none): "),
        (("cache.policy=lru", "cache.bytes=1MiB"), "cache.bytes: 1 MiB are 21,824 lines, more"),
        (("cache.policy=lru", f"cache.bytes={320 * ROW_BYTES}"), None),
        (("cache.policy=none",), None),
        ((), None),
    ],
)
def test_a_cache_that_does_no_good_is_one_warning(store, tmp_path, caplog, settings, expected):
    train(config(store, tmp_path / "run", "storage.engine=posix", *settings))
    said = said_of_caches(caplog)
    if expected is None:
        assert said == []
    else:
        (line,) = said
        assert line.startswith(expected)


def test_a_cache_without_hits_is_one_warning_per_run(store, tmp_path, caplog, monkeypatch):
    settings = ("storage.engine=posix", "cache.policy=lru", f"cache.bytes={ROW_BYTES}")
    # So small a graph gives even one line a few hits.
    monkeypatch.setattr(cache_remarks, "_USELESS", 0.05)
    train(config(store, tmp_path / "run", *settings))
    (line,) = said_of_caches(caplog)
    assert re.search(r"the cache served \d+ of 1,\d{3} rows of epoch 1: set cache\.bytes", line)
    assert "(it is 48 B), or cache.policy=none" in line


@pytest.mark.parametrize(
    ("epoch", "requests", "hits", "ranks", "is_said"),
    [
        (1, 1000, 0, 1, True),
        (1, 1000, 1, 1, False),
        (1, 600, 0, 1, False),
        (2, 600, 0, 1, True),
        (1, 1800, 0, 3, False),  # a rank requested no row twice
        (1, 1801, 0, 3, True),
    ],
)
def test_hits_of_zero_are_told_where_there_could_be_some(epoch, requests, hits, ranks, is_said):
    counted = dict.fromkeys(COUNTERS, 0) | {"requests": requests, "victim_hits": hits}
    options = CacheOptions(policy="lru", bytes=4096)
    record = counted | {"epoch": epoch}
    remark = cache_remarks.without_hits(record, options, num_nodes=600, num_ranks=ranks)
    assert (remark is not None) == is_said


def test_the_remark_on_too_many_lines_names_bytes_that_hold_as_many_rows(store, tmp_path, caplog):
    def requested(name, num_bytes):
        settings = ("storage.engine=posix", "cache.policy=lru", f"cache.bytes={num_bytes}")
        train(config(store, tmp_path / name, *settings))
        return [(step["requests"], step["hits"]) for step in steps(tmp_path / name)]

    wasted = requested("wasted", "1MiB")
    (line,) = said_of_caches(caplog)
    caplog.clear()
    enough = re.search(r"cache\.bytes=(\d+) holds as many rows", line)[1]
    assert requested("enough", enough) == wasted
    assert said_of_caches(caplog) == []
