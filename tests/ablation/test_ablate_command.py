"""`lsm ablate`: records, plots and messages to users."""

import csv
import json

import numpy as np
import pytest

from lsm.ablation.runs import Combination
from lsm.ablation.study import run_study
from lsm.ablation.trace import Trace
from lsm.cache import planner as cache
from support.ablation import random_trace, run_one, small
from support.command import lsm


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
        for lines in (16, 28)
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
        (["--lines", f"{10**20}"], "expected a cache that this machine's memory"),
        (["--seed", f"{10**20}"], "--seed: expected at most 18446744073709551615"),
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

    (tmp_path / "other.npz").write_bytes((tmp_path / "run.npz").read_bytes())
    before = (tmp_path / "out/records.json").read_bytes()
    other = ["--trace", tmp_path / "other.npz", *options[2:], "--out", tmp_path / "out"]
    assert lsm(monkeypatch, "ablate", *other) == 1
    assert f"holds the results of the trace {tmp_path / 'run.npz'}" in capsys.readouterr().err
    assert (tmp_path / "out/records.json").read_bytes() == before
    (tmp_path / "run.npz").rename(tmp_path / "moved.npz")
    moved = ["--trace", tmp_path / "moved.npz", *options[2:], "--out", tmp_path / "out"]
    assert lsm(monkeypatch, "ablate", *moved) == 1
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "moved.npz").rename(tmp_path / "elsewhere/run.npz")
    same = ["--trace", tmp_path / "elsewhere/run.npz", *options[2:], "--out", tmp_path / "out"]
    assert lsm(monkeypatch, "ablate", *same) == 0


def test_every_policy_has_the_lines_that_are_told(tmp_path, monkeypatch):
    """Also optimal, which has one set: no policy has more hits. Every size is in the plot."""
    pytest.importorskip("matplotlib")
    random_trace().save(tmp_path / "t.npz")
    options = ["--trace", tmp_path / "t.npz", "--policies", "belady,optimal,none"]
    options += ["--out", tmp_path / "out"]
    assert lsm(monkeypatch, "ablate", *options, "--lines", "20") == 0
    records = json.loads((tmp_path / "out/records.json").read_text())
    belady, optimal, none = records
    assert belady["lines"] == optimal["lines"] == 32
    assert optimal["hits"] >= belady["hits"] > none["hits"] == 0
    assert lsm(monkeypatch, "ablate", *options, "--lines", "20,40,64") == 0
    records = json.loads((tmp_path / "out/records.json").read_text())
    assert [each["lines"] for each in records[:2]] == [32, 64]
    assert [each["size"] for each in records] == pytest.approx(
        [each["lines"] / random_trace().mean_list for each in records]
    )


def test_results_of_a_study_are_not_replaced_by_those_of_a_trace(tmp_path, monkeypatch, capsys):
    run_study(small("base", tmp_path, "plot.enabled=false", "cache.windows=[4]"), progress=False)
    before = (tmp_path / "out/records.json").read_bytes()
    Trace(np.arange(4), np.arange(5), num_nodes=9, num_ranks=1).save(tmp_path / "run.npz")
    options = ["--trace", tmp_path / "run.npz", "--lines", "32", "--out", tmp_path / "out"]
    assert lsm(monkeypatch, "ablate", *options) == 1
    assert "holds the results of a study of a config" in capsys.readouterr().err
    assert (tmp_path / "out/records.json").read_bytes() == before


def test_a_trace_that_is_missing_is_named_with_its_option(monkeypatch, capsys, tmp_path):
    assert lsm(monkeypatch, "ablate", "--trace", tmp_path / "nope.npz", "--lines", 10) == 1
    assert capsys.readouterr().err == (
        f"error: --trace: {tmp_path / 'nope.npz'}: no such file; `lsm trace STORE` writes one\n"
    )
