"""Ranks of links by the rows of all nodes, against a count over all scores in NumPy."""

import numpy as np
import pytest
import torch

import lsm
from lsm.config.load import load_config
from lsm.distributed.environment import World
from lsm.inference import link_ranks, pair_scores, top_targets
from lsm.inference.driver import infer
from lsm.inference.options import InferenceOptions
from lsm.train.saved import SavedRun
from lsm.train.tasks.choose import task_of
from support.link_runs import NUM_NODES, learn, link_store, rows_of, typed_link_store


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Several tiles, groups and blocks in a small graph."""
    for room in (top_targets, link_ranks):
        monkeypatch.setattr(room, "TILE_SOURCES", 8)
        monkeypatch.setattr(room, "TILE_DESTINATIONS", 16)
    monkeypatch.setattr(pair_scores, "CALL_PAIRS", 16)


def ranks_of(run, out, *settings, split="test", **options):
    """The ranks of a split by inference, and its links and task."""
    saved = SavedRun.open(run)
    config = load_config(run / "config.yaml", list(settings))
    task = task_of(config)
    task.check(config, saved.store, 1)
    model = saved.load_model()
    outputs = task.exact_outputs(model, saved.store, split)
    given = InferenceOptions(**outputs, progress=False, **options)
    infer(model, saved.store, out, given)
    return np.load(out / "ranks.npy"), task.splits.edges(split).numpy(), task


def expected_rank(own, others):
    above, ties = (others > own).sum(), (others == own).sum()
    return 1 + above + ties / 2


def assert_ranks(found, scores, links, candidates, known):
    """``scores``: of all sources and destinations. Scores that differ by rounding may tie."""
    for rank, (source, destination), among in zip(found, links.T, candidates, strict=True):
        among = np.array([each for each in among if (source, each) not in known])
        own, others = scores[source, destination], scores[source, among]
        close = np.abs(others - own) <= 1e-4 * np.abs(own)
        least = 1 + (others[~close] > own).sum()
        assert least <= rank <= least + close.sum()
        if not close.any():
            assert rank == expected_rank(own, others)


def all_scores(run, sources, destinations):
    with torch.no_grad():
        return lsm.load_model(run).scorer.matrix(sources, destinations).numpy()


@pytest.mark.parametrize("filtered", ["true", "false"])
@pytest.mark.parametrize("count", [50, 1000])
def test_ranks_among_drawn_candidates(tmp_path, filtered, count):
    store = link_store(tmp_path)
    keys = (f"links.eval_candidates={count}", f"links.filtered={filtered}")
    run = learn(store, tmp_path / "run", "links.scorer=mlp", *keys)
    found, links, task = ranks_of(run, tmp_path / "out", *keys)
    rows = rows_of(run, tmp_path / "rows")
    edges = store.to_pyg().edge_index if filtered == "true" else torch.empty(2, 0)
    known = {*map(tuple, edges.t().tolist()), *map(tuple, links.T.tolist())}
    if filtered == "false":
        known = set()
    drawn = np.sort(np.random.default_rng(0).choice(NUM_NODES, min(count, NUM_NODES), False))
    scores = all_scores(run, rows, rows)
    own = [[each for each in drawn if each != link[1]] for link in links.T]
    assert_ranks(found, scores, links, own, known)
    metrics = task.exact_metrics(store, "test", found, World())
    assert metrics["mrr"] == pytest.approx((1 / found).mean())


def test_ranks_among_given_candidates_between_types(tmp_path):
    store = typed_link_store(tmp_path)
    ends = lsm.LinkSplits.open(tmp_path / "g.links")
    draw, given = np.random.default_rng(0), tmp_path / "given"
    given.mkdir()
    for split in ("valid", "test"):
        pairs = ends.edges(split).t().numpy()
        np.save(given / f"{split}.npy", pairs)
        np.save(given / f"{split}_candidates.npy", draw.integers(90, size=(len(pairs), 20)))
    lsm.LinkSplits.make(store, edge_type=("user", "buys", "item"), given=given, force=True)
    run = learn(store, tmp_path / "run", "model.name=rsage")
    found, links, task = ranks_of(run, tmp_path / "out")
    users, items = (rows_of(run, tmp_path / name, name) for name in ("user", "item"))
    candidates = task.splits.candidates("test").numpy()
    assert_ranks(found, all_scores(run, users, items), links, candidates, set())


def test_ranks_are_the_same_for_any_memory_and_threads(tmp_path, monkeypatch):
    run = learn(link_store(tmp_path), tmp_path / "run", "links.eval_candidates=200")
    found = [ranks_of(run, tmp_path / "one", num_threads=1)[0]]
    before = link_ranks._DrawnStage.__init__

    def small(stage, *arguments):
        before(stage, *arguments)
        stage._group, stage._block = 2, 32

    monkeypatch.setattr(link_ranks._DrawnStage, "__init__", small)
    found.append(ranks_of(run, tmp_path / "two", num_threads=3)[0])
    assert np.array_equal(*found)
    with pytest.raises(ValueError, match="--memory-bytes: expected at least"):
        ranks_of(run, tmp_path / "three", memory_bytes=1 << 20)


def test_equal_scores_have_the_rank_of_chance(tmp_path, monkeypatch):
    run = learn(link_store(tmp_path), tmp_path / "run", "links.eval_candidates=50")
    dot = type(lsm.load_model(run).scorer)
    monkeypatch.setattr(dot, "forward", lambda self, a, b: (a * b).sum(-1) * 0)
    monkeypatch.setattr(dot, "matrix", lambda self, a, b: a @ b.t() * 0)
    found, links, _ = ranks_of(run, tmp_path / "out", "links.filtered=false")
    drawn = np.sort(np.random.default_rng(0).choice(NUM_NODES, 50, False))
    expected = [1 + np.count_nonzero(drawn != link[1]) / 2 for link in links.T]
    assert found.tolist() == expected
