"""Cache studies that a configuration describes, and the configurations carried."""

import csv
import json
from pathlib import Path

import pytest
import yaml

from lsm.ablation import overlap_study
from lsm.ablation.config import AblationConfig
from lsm.ablation.study import combinations, open_or_make, run_study
from lsm.ablation.trace_sampling import sample_trace
from lsm.config.load import dotted_keys, find_config, load_tree, parse_config
from lsm.data.graph_store import GraphStore
from support.ablation import SMALL, make_trace, small
from support.command import lsm
from support.shared_sets import make_typed_store

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "ablation"


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


def test_a_store_made_with_other_parameters_is_not_taken_for_the_one_asked_for(tmp_path):
    open_or_make(small("base", tmp_path).graph, progress=False)
    with pytest.raises(ValueError, match=r"graph\.nodes: expected 400, as the store .* got 500"):
        open_or_make(small("base", tmp_path, "graph.nodes=500").graph, progress=False)


def test_a_study_of_a_graph_with_types_is_that_of_its_trace(tmp_path):
    path = make_typed_store(tmp_path / "typed")
    typed = (f"graph.path={path}", "trace.types=[editor,author]", "cache.modes=[independent]")
    records = run_study(small("base", tmp_path, *typed), progress=False)
    settings = small("base", tmp_path, *typed).trace
    trace = sample_trace(
        GraphStore.open(path),
        settings.num_neighbors,
        settings.batch_size,
        types=["author", "editor"],
        ranks=settings.ranks,
        iterations=settings.iterations,
        seed=settings.seed,
        progress=False,
    )
    assert {record["requests"] for record in records} == {len(trace.ids)}
    assert all(record["mean_list"] == trace.mean_list for record in records)


@pytest.mark.parametrize("key", ["reads.enabled", "accumulator.enabled"])
def test_real_reads_of_a_graph_with_types_are_refused(tmp_path, key):
    path = make_typed_store(tmp_path / "typed")
    settings = small("base", tmp_path, f"graph.path={path}", f"{key}=true")
    study = overlap_study.run_study if key.startswith("accumulator") else run_study
    with pytest.raises(ValueError, match=rf"{key}: .* has types of nodes"):
        study(settings, progress=False)
    assert not (tmp_path / "out").exists()
