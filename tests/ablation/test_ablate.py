"""Cache-policy studies: records against counts that are made here, and messages to users."""

import csv
import json
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import yaml

from lsm.ablation import plots, runs
from lsm.ablation.config import AblationConfig, PlotConfig
from lsm.ablation.runs import Combination
from lsm.ablation.study import combinations, open_or_make, run_study
from lsm.ablation.trace import Trace
from lsm.cache import planner as cache
from lsm.config.load import dotted_keys, find_config, load_tree, parse_config
from lsm.reference.hashing import mix64, owner
from lsm.reference.planner import COUNTERS, ReferencePlanner
from support.command import lsm

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "ablation"
SERVED = ("hits", "victim_hits", "static_hits", "constant_hits")


def make_trace(lists, num_nodes, num_ranks=1, **more):
    """A trace of the request lists, iteration by iteration and in it rank by rank."""
    return Trace(
        ids=np.array([node for one in lists for node in one], np.int64),
        offsets=np.cumsum([0, *map(len, lists)]),
        num_nodes=num_nodes,
        num_ranks=num_ranks,
        **more,
    )


def random_trace(num_iterations=40, num_ranks=2, num_nodes=120, seed=0, scored=True):
    """Some nodes are requested often, most seldom; lists of 0 to 29 ids."""
    rng = np.random.default_rng(seed)
    lists = []
    for _ in range(num_iterations * num_ranks):
        ids = (num_nodes * rng.random(rng.integers(30)) ** 2).astype(np.int64)
        lists.append(list(dict.fromkeys(ids.tolist())))
    score = rng.random(num_nodes).astype(np.float32) if scored else None
    return make_trace(lists, num_nodes, num_ranks, static_score=score)


def run_one(trace, policy, lines, **parameters):
    combination = Combination(policy=policy, lines=lines, **parameters)
    (record,) = runs.run(trace, [combination], progress=False)
    return record


def test_requests_count_once_per_owner_and_iteration_or_per_rank():
    # Iteration 0: ranks want 0 1 2 and 2 1 5; iteration 1: 0 2 and 0. Everything fits.
    trace = make_trace([[0, 1, 2], [2, 1, 5], [0, 2], [0]], num_nodes=8, num_ranks=2)
    shared = run_one(trace, "lru", 8, ways=4)
    assert (shared["requests"], shared["hits"], shared["misses"]) == (4 + 2, 2, 4)
    assert (shared["requests_2nd"], shared["hits_2nd"], shared["misses_2nd"]) == (2, 2, 0)
    assert (shared["hit_ratio"], shared["hit_ratio_2nd"]) == (2 / 6, 1)
    own = run_one(trace, "lru", 8, ways=4, mode="independent")
    # Rank 0 has 0 and 2 of its own; rank 1 has never seen 0.
    assert (own["requests"], own["hits"], own["misses"]) == (6 + 3, 2, 7)
    assert (own["requests_2nd"], own["hits_2nd"], own["misses_2nd"]) == (3, 2, 1)


def test_a_cache_holds_what_its_rank_owns_only():
    # Two lines per rank and one set each: 0 2 and 1 3 stay, whichever rank asks.
    trace = make_trace([[0, 1], [2, 3], [3, 2], [1, 0]], num_nodes=4, num_ranks=2)
    assert run_one(trace, "lru", 2, ways=2)["hits"] == 4
    assert run_one(trace, "lru", 2, ways=2, mode="independent")["hits"] == 0


def lru_hits(batches, num_sets, ways):
    """Hits of a batch-synchronous LRU cache: one dict per set, the least recent first; equally
    recent lines are evicted in the order of their ways, and lines touched in a batch stay in it."""
    sets = [[None] * ways for _ in range(num_sets)]  # [id, last touch] per way
    hits = 0
    for t, ids in enumerate(batches):
        misses = []
        for node in ids:
            lines = sets[mix64(node) % num_sets]
            line = next((line for line in lines if line and line[0] == node), None)
            if line:
                line[1] = t
                hits += 1
            else:
                misses.append(node)
        for node in misses:
            lines = sets[mix64(node) % num_sets]
            way = min(range(ways), key=lambda way: lines[way][1] if lines[way] else -1)
            if lines[way] is None or lines[way][1] < t:
                lines[way] = [node, t]
    return hits


@pytest.mark.parametrize("hash", ["stride", "mix64"])
def test_lru_counts_are_those_of_a_simulation_in_a_few_lines(hash):
    trace = random_trace(num_ranks=3)
    expected = 0
    for rank in range(3):
        batches = []
        for t in range(trace.num_iterations):
            ids = OrderedDict.fromkeys(
                int(node) for r in range(3) for node in trace.request_list(t, r)
            )
            batches.append([node for node in ids if owner(node, 3, hash) == rank])
        expected += lru_hits(batches, num_sets=5, ways=4)
    record = run_one(trace, "lru", 20, ways=4, hash=hash)
    assert record["hits"] == expected > 0
    assert record["hits"] + record["misses"] == record["requests"]


def reference_counts(trace, combination, rank):
    """Counters of every iteration by the plain planner of ``lsm.reference``."""
    batches = trace.owner_batches(rank, combination.hash, combination.mode == "shared")
    planner = ReferencePlanner(
        combination.planner_config(), scores=trace.static_score, trace=batches
    )
    steps, pushed = [], 0
    for t in range(len(batches)):
        while pushed < min(t + combination.window, len(batches)):
            planner.push(batches[pushed])
            pushed += 1
        steps.append(planner.plan().counters)
    return steps


@pytest.mark.parametrize(
    ("policy", "victim"),
    [
        (policy, victim)
        for policy in cache.POLICIES
        for victim in ("none", "queues", "pool")
        if policy != "belady" or victim == "none"  # the bound has no victim buffer
    ],
)
def test_records_are_the_sums_of_the_plain_planner(policy, victim):
    trace = random_trace()
    combination = Combination(
        policy=policy,
        lines=16,
        ways=4,
        window=6,
        update_period=3,
        victim=victim,
        victim_rows=3,
        seed=2,
    )
    (record,) = runs.run(trace, [combination], progress=False)
    steps = [reference_counts(trace, combination, rank) for rank in range(2)]
    for name in COUNTERS:
        assert record[name] == sum(step[name] for rank in steps for step in rank), name
        assert record[f"{name}_2nd"] == sum(step[name] for rank in steps for step in rank[20:]), (
            name
        )
    assert sum(record[name] for name in SERVED) + record["misses"] == record["requests"]
    served = sum(record[f"{name}_2nd"] for name in SERVED)
    assert record["hit_ratio_2nd"] == served / record["requests_2nd"]


def test_one_job_or_many_give_the_same_records_in_the_order_asked_for():
    trace = random_trace()
    asked = [
        Combination(policy=policy, lines=lines, ways=4, window=window)
        for policy in ("lookahead", "lru", "hybrid", "belady")
        for lines in (8, 24)
        for window in (4, 12)
    ]
    one = runs.run(trace, asked, jobs=1, progress=False)
    assert runs.run(trace, asked, jobs=4, progress=False) == one
    for record, combination in zip(one, asked, strict=True):
        assert (record["policy"], record["lines"], record["window"]) == (
            combination.policy,
            combination.lines,
            combination.window,
        )
    # A policy that looks at no window has a record for each, all alike.
    assert {key: value for key, value in one[4].items() if key != "window"} == {
        key: value for key, value in one[5].items() if key != "window"
    }
    assert one[0]["hits"] != one[1]["hits"]


def test_no_policy_beats_the_bound():
    trace = random_trace(num_iterations=80)
    records = runs.run(
        trace,
        [Combination(policy=name, lines=16, ways=4, window=8) for name in runs.POLICIES],
        progress=False,
    )
    bound = next(record for record in records if record["policy"] == "optimal")
    assert all(record["hits"] <= bound["hits"] for record in records)
    assert bound["hits"] < bound["requests"]


def test_a_constant_buffer_serves_the_best_nodes():
    lists = [[0, 1, 2, 3], [0, 1, 2, 3]]
    score = np.array([0, 3, 1, 2], np.float32)
    trace = make_trace(lists, num_nodes=4, static_score=score)
    # 1 and 3 are constant; 0 and 2 share the only set of one line: neither stays long enough.
    record = run_one(trace, "round_robin", 1, ways=1, constant_rows=2)
    assert (record["constant_hits"], record["requests"]) == (4, 8)
    assert record["hit_ratio"] == (4 + record["hits"]) / 8
    everything = run_one(trace, "round_robin", 1, ways=1, constant_rows=4, constant_score="random")
    assert (everything["constant_hits"], everything["hit_ratio"]) == (8, 1)
    bare = make_trace(lists, num_nodes=4)
    with pytest.raises(ValueError, match="a constant buffer by static score needs"):
        run_one(bare, "lru", 4, ways=4, constant_rows=2)


def test_surprises_are_said():
    trace = random_trace(scored=False)
    with pytest.warns(UserWarning, match="no static_score: static take every node"):
        run_one(trace, "static", 16, ways=4)
    with pytest.raises(ValueError, match="victim rows 1000000000000: expected a cache that"):
        run_one(trace, "lru", 16, ways=4, victim="queues", victim_rows=10**12)


# The command line.


def test_the_command_writes_a_record_per_combination(tmp_path, monkeypatch, capsys):
    trace = random_trace()
    trace.save(tmp_path / "t.npz")
    out = tmp_path / "out.json"
    options = ["--policies", "lru,lookahead", "--lines", "16,30", "--ways", 4, "--window", "4,8"]
    victim = ["--victim", "pool", "--victim-rows", 5, "--update-period", 2, "--seed", 1]
    command = ["ablate", "--trace", tmp_path / "t.npz", *options, *victim, "--json", out]
    assert lsm(monkeypatch, *command, "--near-fraction", 0.25) == 0
    records = json.loads(out.read_text())
    assert [(r["policy"], r["lines"], r["window"]) for r in records] == [
        (policy, lines, window)
        for policy in ("lru", "lookahead")
        for lines in (16, 30)
        for window in (4, 8)
    ]
    for record in records:
        assert (record["ways"], record["victim"], record["victim_rows"]) == (4, "pool", 5)
        assert (record["update_period"], record["near_fraction"]) == (2, 0.25)
        for end in ("", "_2nd"):
            served = record["hits" + end] + record["victim_hits" + end]
            assert served + record["misses" + end] == record["requests" + end] > 0
            assert record["hit_ratio" + end] == served / record["requests" + end]
    combination = Combination(
        policy="lookahead", lines=28, ways=4, window=8, victim="pool", victim_rows=5, seed=1
    )
    assert records[-1]["hits"] == run_one(trace, **dict(combination))["hits"]
    shown = capsys.readouterr()
    assert "lookahead" in shown.out
    (warning,) = shown.err.splitlines()
    assert warning.startswith("warning: ")
    assert "30" in warning
    assert "28" in warning


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policies", "lru,mru"], "expected one of round_robin, random, lru"),
        (["--lines", "0"], "expected at least 1, got 0"),
        (["--lines", "-5"], "got -5"),
        (["--lines", "1k"], "--lines: expected whole numbers separated by commas, got '1k'"),
        (["--ways", "0"], "ways"),
        (
            ["--policies", "lookahead", "--window", "0"],
            "--window: expected at least 1, got 0",
        ),
        (["--policies", "lookahead", "--window", "70000"], "--window: expected at most 65535"),
        (["--victim", "stack"], "--victim: expected one of none, queues, pool, got 'stack'"),
        (["--victim", "pool"], "--victim-rows: mode 'pool' expects at least 1 row, got 0"),
        (["--mode", "both"], "--mode: expected one of shared, independent, got 'both'"),
        (["--hash", "md5"], "--hash: expected one of stride, mix64, got 'md5'"),
        (["--near-fraction", "-1"], "--near-fraction: expected at least 0"),
        (["--update-period", "0"], "--update-period: expected at least 1"),
        (["--ways", "0"], "--ways: expected at least 1"),
        (
            ["--lines", "0"],
            "--lines: expected at least 1, got 0; for no cache at all set --policies=",
        ),
        (["--lines", "0", "--policies", "belady"], "--lines: expected at least 1, got 0"),
        (["--victim", "pool", "--victim-rows", "-1"], "--victim-rows: expected at least 1"),
        (["--json", "nowhere/out.json"], "--json: nowhere: no such directory"),
        (["--trace", "none.npz"], "none.npz"),
        (["--trace", "bad.npz"], "list 1 (iteration 1, rank 0), position 1: expected no id twice"),
        (["eviction"], "expected either a CONFIG or --trace FILE"),
    ],
)
def test_a_mistake_is_one_line_before_anything_starts(
    tmp_path, monkeypatch, capsys, options, message
):
    monkeypatch.chdir(tmp_path)
    random_trace().save("t.npz")
    ids, offsets = np.array([1, 2, 2]), np.array([0, 1, 3])
    np.savez("bad.npz", ids=ids, offsets=offsets, num_nodes=3, num_ranks=1)
    monkeypatch.setattr(cache, "simulate", None)
    given = {"--trace": "t.npz", "--policies": "lru", "--lines": "16", "--ways": "4"}
    free = [option for option in options if not option.startswith("-")] if len(options) == 1 else []
    given |= dict(zip(options[::2], options[1::2], strict=False)) if not free else {}
    arguments = [*free, *(text for pair in given.items() for text in pair)]
    assert lsm(monkeypatch, "ablate", *arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_options_and_a_config_do_not_mix(monkeypatch, capsys):
    assert lsm(monkeypatch, "ablate") == 1
    assert lsm(monkeypatch, "ablate", "eviction", "--lines", "16") == 1
    assert lsm(monkeypatch, "ablate", "--trace", "t.npz") == 1
    first, second, third = capsys.readouterr().err.splitlines()
    assert "expected either a CONFIG or --trace" in first
    assert "--lines: goes with --trace" in second
    assert "--lines: not set" in third


# Studies.

SMALL = (
    "graph.nodes=400",
    "trace.batch_size=4",
    "trace.iterations=20",
    "cache.sizes=[1, 2]",
    "cache.ways=4",
)


def small(name, folder, *more):
    paths = [f"graph.path={folder}/store", f"output={folder}/out"]
    return load_tree(AblationConfig, find_config(name, "ablation"), [*SMALL, *paths, *more])


def test_base_yaml_states_the_defaults_and_comments_every_key():
    base = CONFIGS / "base.yaml"
    assert load_tree(AblationConfig, base) == AblationConfig()
    keys = [line.strip().partition(":")[0] for line in base.read_text().splitlines()]
    keys = [key for key in keys if key and not key.startswith("#")]
    assert keys == [key.rpartition(".")[2] for key in dotted_keys(AblationConfig)]


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.yaml")), ids=lambda file: file.stem)
def test_configs_are_valid_and_hold_only_differences(file):
    config = load_tree(AblationConfig, find_config(file.stem, "ablation"))
    trace = make_trace([[0]], num_nodes=10**6)
    assert len(combinations(config, trace)) > 1
    if file.stem != "base":
        default = AblationConfig().model_dump()
        for section, values in yaml.safe_load(file.read_text()).items():
            own = values.items() if isinstance(values, dict) else ()
            assert not [key for key, value in own if default[section][key] == value]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cache": {"policy": ["lru"]}}, "unknown key cache.policy; did you mean cache.policies?"),
        ({"trace": {"iteration": 3}}, "did you mean trace.iterations?"),
        ({"cach": {}}, "unknown key cach; did you mean cache?"),
        (
            {"zzzz": 1},
            "the sections are output, graph, trace, accumulator, cache, reads, plot",
        ),
        ({"cache": {"policies": ["mru"]}}, "cache.policies: expected some of round_robin"),
        ({"cache": {"sizes": []}}, "cache.sizes: expected at least 1 value(s)"),
        ({"cache": {"sizes": [0]}}, "cache.sizes.0: expected more than 0"),
        ({"cache": {"victim": {"modes": ["stack"]}}}, "cache.victim.modes.0: expected one of"),
    ],
)
def test_a_mistake_in_a_config_is_named(values, message):
    with pytest.raises(ValueError, match=r".") as caught:
        parse_config(values, AblationConfig)
    assert message in str(caught.value)


def test_a_mistake_that_the_planner_finds_is_named_by_its_key(tmp_path):
    config = small("base", tmp_path, "plot.enabled=false", "cache.windows=[4, 70000]")
    with pytest.raises(ValueError, match=r"cache\.windows: expected at most 65535"):
        run_study(config, progress=False)


def test_a_study_writes_every_result(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    arguments = [*SMALL, f"graph.path={tmp_path}/store", f"output={tmp_path}/out"]
    arguments += ["--json", tmp_path / "copy.json"]
    assert lsm(monkeypatch, "ablate", "pvp", *arguments, "cache.windows=[4, 8]") == 0
    out = tmp_path / "out"
    records = json.loads((out / "records.json").read_text())
    assert json.loads((tmp_path / "copy.json").read_text()) == records
    with open(out / "records.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["hit_ratio"]) for row in rows] == [r["hit_ratio"] for r in records]
    assert len((out / "table.md").read_text().splitlines()) == 2 + len(records)
    assert (out / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((out / "study.json").read_text())["config"]["trace"]["iterations"] == 20
    assert str(out) in capsys.readouterr().out
    for record in records:
        assert record["lines"] == max(4, 4 * round(record["size"] * record["mean_list"] / 4))
        if record["victim"] == "pool":
            assert record["victim_rows"] == record["lines"]


@pytest.mark.parametrize("name", ["eviction", "sharing", "window", "constant"])
def test_each_study_draws_its_plot(tmp_path, name):
    pytest.importorskip("matplotlib")
    config = small(name, tmp_path, "cache.windows=[4, 8]")
    records = run_study(config, progress=False)
    assert (tmp_path / "out" / "plot.png").stat().st_size > 5000
    assert (tmp_path / "out" / "plot.svg").read_text().startswith("<?xml")
    assert (tmp_path / "out" / "plot.pdf").read_bytes().startswith(b"%PDF")
    # The same study again gives the same records, from the store that is there now.
    assert run_study(config, jobs=1, progress=False) == records


def test_panels_have_common_axes(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr(plots, "finish", lambda figure, axes, *_: drawn.append(axes))
    record = dict(Combination(policy="dynamic", lines=1)) | {"num_nodes": 1000}
    records = [
        record | {"size": size, "lines": lines, "update_period": period, "hit_ratio_2nd": hits}
        for size, lines in ((10.0, 9), (40.0, 36))
        for period, hits in ((1, 0.1), (4, 0.9))
    ]
    for kind in ("lines", "dots"):
        config = PlotConfig(kind=kind, panels="update_period")
        plots.draw(config, records, tmp_path / "plot.png")
        first, second = drawn.pop()
        assert first.get_xlim() == second.get_xlim()
        assert first.get_ylim() == second.get_ylim()
        low, high = first.get_ylim() if kind == "lines" else first.get_xlim()
        assert low == 0
        assert high > 0.9  # of the second panel
        if kind == "lines":
            names = [each.get_text().replace("\n", " ") for each in first.get_xticklabels()]
        else:
            names = first.get_legend_handles_labels()[1]
        assert names == ["10 lists = 9 rows (0.9%)", "40 lists = 36 rows (4%)"]


@pytest.mark.parametrize(
    ("count", "text"),
    [(768, "768"), (8880, "8.9K"), (15_552, "15.6K"), (1_000_000, "1M"), (269_346_174, "269M")],
)
def test_short_counts(count, text):
    assert plots._short_count(count) == text


def test_a_trace_gives_a_plot_and_csv(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    offsets = np.arange(5) * 2
    ids = np.array([0, 1, 1, 2, 3, 4, 5, 6])  # both ranks request node 1 at iteration 0
    Trace(ids, offsets, num_nodes=100, num_ranks=2).save(tmp_path / "run.npz")
    options = ["--trace", tmp_path / "run.npz", "--policies", "lru", "--lines", "32,64"]
    assert lsm(monkeypatch, "ablate", *options, "--out", tmp_path / "out") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "8 requests in the trace of 2 ranks, 7 to the cache that they share: a row" in said
    made = {file.name for file in (tmp_path / "out").iterdir()}
    assert made >= {"plot.png", "plot.svg", "plot.pdf", "records.csv", "records.json", "table.md"}
    with open(tmp_path / "out/records.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["lines"], row["requests"], row["trace_requests"]) for row in rows] == [
        ("32", "7", "8"),
        ("64", "7", "8"),
    ]
    independent = [*options, "--mode", "independent", "--out", tmp_path / "out"]
    assert lsm(monkeypatch, "ablate", *independent) == 0  # the same trace may be simulated again
    assert "requests in the trace" not in capsys.readouterr().out


def test_results_of_a_study_are_not_replaced_by_those_of_a_trace(tmp_path, monkeypatch, capsys):
    run_study(small("base", tmp_path, "plot.enabled=false", "cache.windows=[4]"), progress=False)
    before = (tmp_path / "out/records.json").read_bytes()
    Trace(np.arange(4), np.arange(5), num_nodes=9, num_ranks=1).save(tmp_path / "run.npz")
    options = ["--trace", tmp_path / "run.npz", "--lines", "32", "--out", tmp_path / "out"]
    assert lsm(monkeypatch, "ablate", *options) == 1
    assert "holds the results of a study of a config" in capsys.readouterr().err
    assert (tmp_path / "out/records.json").read_bytes() == before


def test_a_missing_matplotlib_is_said_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RuntimeError, match=r"pip install matplotlib, or set plot.enabled"):
        run_study(small("eviction", tmp_path), progress=False)
    assert not list(tmp_path.iterdir())
    run_study(small("base", tmp_path, "plot.enabled=false", "cache.windows=[4]"), progress=False)
    assert not (tmp_path / "out" / "plot.png").exists()
    with pytest.raises(RuntimeError, match="plots need matplotlib"):
        plots.require_matplotlib()


def test_a_store_made_with_other_parameters_is_not_taken_for_the_one_asked_for(tmp_path):
    open_or_make(small("base", tmp_path).graph, progress=False)
    with pytest.raises(ValueError, match=r"graph\.nodes: expected 400, as the store .* got 500"):
        open_or_make(small("base", tmp_path, "graph.nodes=500").graph, progress=False)


def test_a_trace_that_is_missing_is_named_with_its_option(monkeypatch, capsys, tmp_path):
    assert lsm(monkeypatch, "ablate", "--trace", tmp_path / "nope.npz", "--lines", 10) == 1
    assert capsys.readouterr().err == (
        f"error: --trace: {tmp_path / 'nope.npz'}: no such file; `lsm trace STORE` writes one\n"
    )
