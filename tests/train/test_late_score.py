"""Scores that are computed during training: used when they are there, stored once, and given up."""

import errno
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from lsm import native
from lsm.cache import scores
from lsm.cache.late_score import LateScore
from lsm.cache.options import CacheOptions
from lsm.cache.scores import AUTO, StoppedError, reverse_pagerank, stored_score
from lsm.data.graph_store import GraphStore
from lsm.data.verify import verify_store
from lsm.distributed.collectives import World
from lsm.features.cached import CachedFeatureLoader
from lsm.features.open import open_features
from lsm.storage.options import StorageOptions
from lsm.train.job import open_job
from lsm.train.tasks.node_prediction import NodePrediction
from lsm.train.trainer import train
from support.training import config, losses, make_store, overrides, run_job

ROW_BYTES = 48
LOOKAHEAD = ("cache.policy=lookahead", "cache.window=4", f"cache.bytes={192 * ROW_BYTES}")
PATIENCE_SECS = 60


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "store")


def reference(store):
    graph = GraphStore.open(store)
    return reverse_pagerank(graph.topology(), graph.split("train"))


@pytest.fixture
def held(monkeypatch):
    """Scores are not computed before this event."""
    event, whole = threading.Event(), scores._compute

    def compute(*arguments, **options):
        assert event.wait(PATIENCE_SECS)
        return whole(*arguments, **options)

    monkeypatch.setattr(scores, "_compute", compute)
    return event


def test_scores_given_later_count_from_the_next_plan_on(store):
    graph = GraphStore.open(store)
    (file,) = graph.feature_paths
    rows = torch.from_numpy(np.fromfile(file, np.float32)[: 600 * 12]).view(600, 12)
    generator = torch.Generator().manual_seed(0)
    score = torch.rand(600, generator=generator)
    requests = [torch.randperm(600, generator=generator)[:150] for _ in range(30)]
    options = CacheOptions(bytes=96 * ROW_BYTES, window=1)

    def hits(late, given):
        counts = []
        with open_features(
            graph, options, storage=StorageOptions(engine="posix"), scores=given
        ) as loader:
            for number, ids in enumerate(requests):
                if number == late:
                    loader.set_scores(score)
                assert torch.equal(loader.fetch(ids), rows[ids])
                counts.append(loader.stats()["cache_hits"])
                if number == 20:
                    loader.announce(ids)
                    loader.forget_announced()  # a new planner, which goes by them as well
        return counts

    from_start, never, late = hits(None, score), hits(None, None), hits(10, None)
    assert hits(0, None) == from_start != never
    assert late[:10] == never[:10]
    assert late[10:] != never[10:]


def test_training_begins_without_the_score_and_keeps_it(store, tmp_path, held, monkeypatch, caplog):
    used = []
    whole = CachedFeatureLoader.set_scores

    def set_scores(self, score):
        whole(self, score)
        used.append(score)

    monkeypatch.setattr(CachedFeatureLoader, "set_scores", set_scores)
    with (
        caplog.at_level(logging.INFO),
        open_job(config(store, tmp_path / "run", *LOOKAHEAD), World(), NodePrediction()) as job,
    ):
        batches = list(job.loaders["train"].iterate(0))  # nothing waits for it
        assert used == []
        held.set()
        deadline = time.monotonic() + PATIENCE_SECS
        while not used and time.monotonic() < deadline:
            time.sleep(0.01)
        batches += job.loaders["train"].iterate(1)
    assert len(batches) == 10
    (score,) = used
    assert torch.equal(score, reference(store))
    assert torch.equal(GraphStore.open(store).score(AUTO), score)
    assert f"score {AUTO} is computed, and stored in {store}" in caplog.text
    assert "not stored" not in caplog.text
    assert verify_store(store, progress=False) == []


def test_a_stored_score_is_taken_from_the_start(store, tmp_path, held):
    held.set()
    stored_score(GraphStore.open(store), AUTO)
    held.clear()
    with open_job(config(store, tmp_path / "run", *LOOKAHEAD), World(), NodePrediction()) as job:
        assert torch.equal(job.loaders["train"].features.planner.scores, reference(store))


def test_a_score_that_cannot_be_stored_is_used_and_said_not_to_be(store, monkeypatch, caplog):
    def refuse(self, name, score):
        raise OSError(errno.EROFS, "Read-only file system", str(self.path))

    monkeypatch.setattr(GraphStore, "save_score", refuse)
    got = threading.Event()
    used = []

    def use(score):
        used.append(score)
        got.set()

    with caplog.at_level(logging.INFO), LateScore(store, AUTO, use, computes=True):
        assert got.wait(PATIENCE_SECS)
    assert torch.equal(used[0], reference(store))
    assert f"score {AUTO} is computed, but not stored" in caplog.text
    assert "Read-only file system" in caplog.text


def test_what_goes_wrong_is_told_and_training_goes_on(store, tmp_path, monkeypatch, caplog):
    def fail(*arguments, **options):
        raise MemoryError("no room")

    monkeypatch.setattr(scores, "_compute", fail)
    train(config(store, tmp_path / "run", *LOOKAHEAD))
    assert f"score {AUTO}: the cache does without it: no room" in caplog.text
    assert len(losses(tmp_path / "run")) == 10


def test_a_process_that_does_not_compute_waits_for_the_one_that_does(store):
    got, used = threading.Event(), []

    def use(score):
        used.append(score)
        got.set()

    with LateScore(store, AUTO, use, computes=False):
        assert used == []
        stored_score(GraphStore.open(store), AUTO)
        assert got.wait(PATIENCE_SECS)
    assert torch.equal(used[0], reference(store))
    waiting = LateScore(store, "in_degree", use, computes=False)
    waiting.close()
    assert not waiting._thread.is_alive()


def test_a_computation_can_be_stopped(store):
    graph, stop = GraphStore.open(store), native.StopFlag()
    given = graph.topology(), graph.split("train")
    assert torch.equal(reverse_pagerank(*given, stop=stop), reference(store))
    stop.set()
    for num_threads in (1, 3):
        with pytest.raises(StoppedError):
            reverse_pagerank(*given, num_threads=num_threads, stop=stop)
    # A job that ends before has it stopped; this would take for ever.
    with pytest.raises(StoppedError):
        reverse_pagerank(*given, iterations=2**31 - 1, stop=stop)


def test_a_job_that_ends_gives_the_score_up(store):
    native_stop, used = [], []

    def compute_for_ever(graph, name, stop):
        native_stop.append(stop)
        return reverse_pagerank(
            graph.topology(), graph.split("train"), iterations=2**31 - 1, stop=stop
        )

    whole, scores.stored_score = scores.stored_score, compute_for_ever
    try:
        late = LateScore(store, AUTO, used.append, computes=True)
        late.close()
    finally:
        scores.stored_score = whole
    assert not late._thread.is_alive()
    assert used == []
    assert GraphStore.open(store).scores == []


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (("cache.policy=static",), AUTO),
        (("cache.policy=hybrid",), AUTO),
        (("cache.policy=lru", f"cache.static.bytes={20 * ROW_BYTES}"), AUTO),
        (("cache.policy=lookahead", f"cache.constant.bytes={20 * ROW_BYTES}"), AUTO),
        (("cache.policy=lru",), None),
        (("cache.policy=none",), None),
        (("cache.policy=lookahead", "cache.score=none"), None),
        (("cache.policy=lookahead", "cache.score=in_degree"), "in_degree"),
    ],
)
def test_auto_is_computed_first_where_rows_are_chosen_by_it_and_not_where_none_is_used(
    store, tmp_path, settings, named
):
    given = (f"cache.bytes={192 * ROW_BYTES}",) if settings != ("cache.policy=none",) else ()
    with open_job(
        config(store, tmp_path / "run", *settings, *given), World(), NodePrediction()
    ) as job:
        assert GraphStore.open(store).scores == ([named] if named else [])
        features = job.loaders["train"].features
        if named:
            assert torch.equal(features.planner.scores, GraphStore.open(store).score(named))
        else:
            assert getattr(features, "_scores", None) is None


def test_losses_do_not_depend_on_when_the_score_comes(store, tmp_path):
    for name, score in (("first", "auto"), ("second", "auto"), ("without", "none")):
        train(config(store, tmp_path / name, *LOOKAHEAD, f"cache.score={score}"))
    assert losses(tmp_path / "first") == losses(tmp_path / "second") == losses(tmp_path / "without")


def test_scores_that_are_stored_at_the_same_time_are_all_stored(store):
    names = [f"score-{number % 4}" for number in range(12)]
    start = threading.Barrier(len(names))

    def save(name):
        graph = GraphStore.open(store)
        score = torch.full((600,), float(name[-1]))
        start.wait(PATIENCE_SECS)
        graph.save_score(name, score)

    with ThreadPoolExecutor(len(names)) as executor:
        list(executor.map(save, names))
    graph = GraphStore.open(store)
    assert sorted(graph.scores) == sorted(set(names))
    for name in graph.scores:
        assert graph.score(name).unique().tolist() == [float(name[-1])]
    assert verify_store(store, progress=False) == []


@pytest.mark.slow
def test_two_ranks_take_the_score_when_it_comes_and_the_same_steps(store, tmp_path):
    both = ("storage.engine=posix", "comm.timeout_secs=30", "train.epochs=4")

    def run(name, *settings):
        arguments = overrides(store, tmp_path / name, *both, *settings)
        job = run_job(2, "-m", "lsm", "train", "base", *arguments)
        assert job.returncode == 0, job.stderr
        assert "does without it" not in job.stderr
        return losses(tmp_path / name)

    plain = run("plain", "cache.policy=none")
    assert run("late", *LOOKAHEAD) == plain
    assert run("again", *LOOKAHEAD) == plain
