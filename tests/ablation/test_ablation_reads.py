"""Real reads of a study: rows equal the store's, hits the simulated ones, and bytes are counted."""

import csv
import json

import pytest

from lsm.ablation import reads, runs
from lsm.ablation.config import AblationConfig, ReadsConfig
from lsm.ablation.runs import Combination
from lsm.ablation.study import run_study
from lsm.ablation.trace_sampling import sample_trace
from lsm.cache import planner
from lsm.config.load import find_config, load_tree, parse_config
from lsm.data.synth import synthesize
from lsm.features.loader import FeatureLoader

ROW_BYTES = 4096
CHECKED = ReadsConfig(engine="posix", check=True)
POLICIES = [name for name in planner.POLICIES if name != "belady"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Rows of one block each, so that bytes read are rows read."""
    path = tmp_path_factory.mktemp("stores") / "graph"
    return synthesize(path, nodes=600, dim=ROW_BYTES // 4, classes=4, avg_degree=6)


@pytest.fixture(scope="module")
def trace(store):
    return sample_trace(store, [4, 3], 6, ranks=2, iterations=15, score="reverse_pagerank")


def read_one(store, trace, combination, config=CHECKED, **changes):
    (record,) = runs.run(trace, [combination], progress=False)
    return reads.read_all(config, store, trace, [combination], [record | changes], progress=False)[
        0
    ]


@pytest.mark.parametrize("mode", ["shared", "independent"])
@pytest.mark.parametrize("victim", ["none", "queues", "pool"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_cache_delivers_the_rows_and_hits_as_simulated(store, trace, policy, victim, mode):
    combination = Combination(
        policy=policy,
        lines=48,
        ways=8,
        window=6,
        victim=victim,
        victim_rows=7,
        mode=mode,
        seed=3,
    )
    # read_all raises if rows differ from the store or hits from the simulation.
    record = read_one(store, trace, combination)
    assert record["bytes_read"] == record["misses"] * ROW_BYTES
    assert record["read_amplification"] == 1
    assert record["rows_per_s"] == record["requests"] / record["read_secs"]


def test_without_a_cache_every_request_is_read(store, trace):
    record = read_one(store, trace, Combination(policy="none", lines=48))
    assert (
        record["misses"]
        == record["requests"]
        == record["misses_2nd"]
        + sum(len(ids) for rank in range(2) for ids in trace.owner_batches(rank)[:7])
    )
    assert record["hit_ratio"] == 0
    assert record["bytes_read"] == record["requests"] * ROW_BYTES


def test_a_constant_buffer_by_score_is_read_for_and_one_at_random_refused(store, trace):
    by_score = Combination(policy="lru", lines=48, ways=8, constant_rows=60)
    record = read_one(store, trace, by_score)
    # Each of the two ranks fills its buffer first.
    assert record["bytes_read"] == (record["misses"] + 2 * 60) * ROW_BYTES
    assert record["constant_hits"] > 0
    with pytest.raises(ValueError, match=r"cache\.constant\.chosen_by: expected static_score"):
        reads.require_runnable(
            [Combination(policy="lru", lines=48, constant_rows=9, constant_score="random")]
        )


def test_reads_of_several_iterations_are_fewer_together(store, trace):
    combination = Combination(policy="lookahead", lines=48, ways=8, window=6)
    config = CHECKED.model_copy(
        update={"merge_iterations": [1, 4], "prefetch": 8, "max_gap_bytes": 16384, "repeats": 2}
    )
    (record,) = runs.run(trace, [combination], progress=False)
    one, four = reads.read_all(config, store, trace, [combination], [record], progress=False)
    assert (one["merge_iterations"], four["merge_iterations"]) == (1, 4)
    assert four["reads"] < one["reads"]
    assert four["bytes_read"] > four["misses"] * ROW_BYTES  # gaps are read, too
    for each in (one, four):
        assert each["read_secs_min"] <= each["read_secs"] <= each["read_secs_max"]


def test_wrong_rows_and_other_hits_are_errors(store, trace, monkeypatch):
    combination = Combination(policy="lru", lines=48, ways=8)
    with pytest.raises(RuntimeError, match=r"lru: hits: \d+ were simulated, but \d+ happened"):
        read_one(store, trace, combination, hits=1)

    fetch = FeatureLoader.fetch
    monkeypatch.setattr(FeatureLoader, "fetch", lambda self, ids: fetch(self, (ids + 1) % 600))
    with pytest.raises(RuntimeError, match="rows of iteration 0 differ from those of"):
        read_one(store, trace, combination)


def test_a_study_with_reads_reports_them_beside_the_hits(tmp_path):
    pytest.importorskip("matplotlib")
    config = load_tree(
        AblationConfig,
        find_config("reads", "ablation"),
        [
            *("graph.nodes=500", "graph.dim=16", f"graph.path={tmp_path}/store"),
            *("trace.batch_size=4", "trace.iterations=12", f"output={tmp_path}/out"),
            *("cache.sizes=[1]", "cache.ways=4", "cache.windows=[4]"),
            *("reads.engine=posix", "reads.check=true", "reads.merge_iterations=[1, 2]"),
        ],
    )
    records = run_study(config, progress=False)
    bounds = [record for record in records if record["policy"] == "optimal"]
    assert [record["bytes_read"] for record in bounds] == [None]
    assert [r["merge_iterations"] for r in records if r["policy"] == "none"] == [1, 2]
    assert all(r["bytes_read"] > 0 for r in records if r["policy"] != "optimal")
    out = tmp_path / "out"
    assert json.loads((out / "records.json").read_text()) == records
    with open(out / "records.csv", newline="") as file:
        assert [row["reads"] for row in csv.DictReader(file)] == [
            "" if record["reads"] is None else str(record["reads"]) for record in records
        ]
    head, _, *rows = (out / "table.md").read_text().splitlines()
    for column in ("bytes_read", "read_amplification", "read_secs", "rows_per_s"):
        assert f" {column} " in head
    assert len(rows) == len(records)
    assert (out / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_of_reads_needs_reads():
    with pytest.raises(ValueError, match=r"bytes_read is of real reads; set reads\.enabled"):
        parse_config({"plot": {"y": "bytes_read"}}, AblationConfig)
