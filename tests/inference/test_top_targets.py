"""The best targets of nodes, against a sort of all scores in NumPy."""

import numpy as np
import pytest
import torch

import lsm
from lsm.inference import top_targets
from lsm.inference.top_targets import Best
from support.link_runs import NUM_NODES, learn, link_store, rows_of, typed_link_store
from support.training import LSM, run_forked, run_job


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return link_store(tmp_path_factory.mktemp("links"))


@pytest.fixture(scope="module")
def run(store, tmp_path_factory):
    return learn(store, tmp_path_factory.mktemp("run") / "run", "links.scorer=distmult")


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Several tiles and blocks in a small graph."""
    monkeypatch.setattr(top_targets, "TILE_SOURCES", 8)
    monkeypatch.setattr(top_targets, "TILE_DESTINATIONS", 16)
    monkeypatch.setattr(top_targets, "_MOST_BLOCK_BYTES", 48 * 12 * 4)
    monkeypatch.setattr(top_targets, "_EDGES_AT_ONCE", 50)


def best_of(scores, k, left_out=()):
    """The ids and the scores of the ``k`` best columns of each row, ties by id."""
    scores = scores.copy()
    for row, column in left_out:
        scores[row, column] = -np.inf
    ids = np.stack([np.lexsort((np.arange(scores.shape[1]), -row))[:k] for row in scores])
    found = np.take_along_axis(scores, ids, 1)
    return np.where(found == -np.inf, -1, ids), found


def all_scores(run, sources, destinations):
    with torch.no_grad():
        return lsm.load_model(run).scorer.matrix(sources, destinations).numpy()


def same(out, expected):
    """True if the targets are those expected, but for scores that differ by rounding."""
    ids, scores = expected
    found, values = np.load(out / "targets.npy"), np.load(out / "scores.npy")
    assert found.dtype == np.int64
    assert values.dtype == np.float32
    return np.array_equal(found, ids) and np.allclose(values, scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("excluded", [True, False])
def test_targets_are_the_best_of_all_scores(store, run, tmp_path, excluded):
    out = tmp_path / "out"
    lsm.predict(run, None, out, top_k=7, exclude_known=excluded, progress=False)
    rows = rows_of(run, tmp_path / "rows")
    known = [*map(tuple, store.to_pyg().edge_index.t().tolist()), *((n, n) for n in range(300))]
    expected = best_of(all_scores(run, rows, rows), 7, known if excluded else ())
    assert same(out, expected)
    assert sorted(each.name for each in out.iterdir()) == [
        "inference.json",
        "scores.npy",
        "targets.npy",
    ]


def test_links_of_given_splits_are_no_targets(store, tmp_path):
    """As in ogbl-citation2, where links of validation and test are no edges of the graph."""
    draw = np.random.default_rng(0)
    edges = store.to_pyg().edge_index.t().numpy()
    for split in ("train", "valid", "test"):
        pairs = draw.integers(NUM_NODES, size=(700, 2))
        np.save(tmp_path / f"{split}.npy", np.concatenate([pairs, edges[:9]]))
    splits = lsm.LinkSplits.make(store, tmp_path / "splits", given=tmp_path)
    run = learn(store, tmp_path / "run", f"data.links={splits.path}")
    lsm.predict(run, None, tmp_path / "out", top_k=200, progress=False)
    given = (splits.edges(split).t().tolist() for split in ("train", "valid", "test"))
    known = [*map(tuple, edges.tolist()), *((n, n) for n in range(NUM_NODES))]
    known += [tuple(pair) for pairs in given for pair in pairs]
    rows = rows_of(run, tmp_path / "rows")
    assert same(tmp_path / "out", best_of(all_scores(run, rows, rows), 200, known))


def test_targets_of_some_nodes_from_the_command_line(run, tmp_path):
    (tmp_path / "nodes.txt").write_text("250\n3\n17\n250\n")
    command = ("predict", run, "--top-k", "5", "--nodes", tmp_path / "nodes.txt")
    done = run_forked(LSM, *command, "--no-exclude-known", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    rows, ids = rows_of(run, tmp_path / "rows"), np.load(tmp_path / "out" / "nodes.npy")
    assert ids.tolist() == [3, 17, 250]
    assert same(tmp_path / "out", best_of(all_scores(run, rows[ids], rows), 5))


def test_targets_between_two_types_end_where_all_are_known(tmp_path):
    store = typed_link_store(tmp_path)
    run = learn(store, tmp_path / "run", "model.name=rsage", "links.scorer=mlp")
    lsm.predict(run, None, tmp_path / "out", top_k=90, progress=False)
    users, items = (rows_of(run, tmp_path / name, name) for name in ("user", "item"))
    known = store.to_pyg()["user", "buys", "item"].edge_index.t().tolist()
    expected = best_of(all_scores(run, users, items), 90, known)
    assert (expected[0] == -1).any(1).all()
    assert same(tmp_path / "out", expected)


def test_targets_are_the_same_for_any_memory_and_threads(run, tmp_path, monkeypatch):
    found = []
    for number, sizes in enumerate([(1, 16), (5, 48), (100, 304)]):

        def divide(stage, _free, sizes=sizes):
            stage._group, stage._block_rows = sizes

        monkeypatch.setattr(top_targets._TopStage, "_divide", divide)
        out = tmp_path / str(number)
        lsm.predict(run, None, out, top_k=9, num_threads=number + 1, progress=False)
        found.append([np.load(out / f"{name}.npy").tobytes() for name in ("targets", "scores")])
    assert found[0] == found[1] == found[2]


def test_a_constant_scorer_takes_the_first_ids(store, run, tmp_path, monkeypatch):
    def nothing(scorer, source, destination):
        return torch.zeros(len(source), len(destination))

    monkeypatch.setattr("lsm.nn.link_scorers.DistMult.matrix", nothing)
    lsm.predict(run, None, tmp_path / "out", top_k=4, exclude_known=False, progress=False)
    assert (np.load(tmp_path / "out" / "targets.npy") == [0, 1, 2, 3]).all()


def test_ties_and_scores_that_are_no_numbers():
    draw = np.random.default_rng(0)
    scores = draw.integers(4, size=(20, 100)).astype(np.float32)
    scores[3, 5] = scores[4] = np.nan
    best, halves = Best(20, 6), [Best(20, 6), Best(20, 6)]
    for first in range(0, 100, 30):
        best.add(torch.from_numpy(scores[:, first : first + 30].copy()), first)
    for half, first in zip(halves, (0, 50), strict=True):
        half.add(torch.from_numpy(scores[:, first : first + 50].copy()), first)
    halves[0].merge(halves[1])
    ids, values = best_of(np.nan_to_num(scores, nan=-np.inf), 6)
    for each in (best, halves[0]):
        assert np.array_equal(each.ids, ids)
        assert np.array_equal(each.scores, values)
        assert each.has_nan.nonzero().view(-1).tolist() == [3, 4]


@pytest.mark.slow
def test_ranks_share_the_sources(run, tmp_path):
    command = ["predict", run, "--top-k", "5", "--no-progress"]
    for world in (1, 3):
        run_job(world, LSM, *command, "--out", tmp_path / str(world))
    one, three = (np.load(tmp_path / str(world) / "targets.npy") for world in (1, 3))
    assert one.shape == (NUM_NODES, 5)
    assert np.array_equal(one, three)
