"""The study of overlapping accesses runs, at a small size, and reports its measurements."""

import csv
import json

import pytest

from lsm.ablation.config import AblationConfig
from lsm.ablation.overlap_study import run_study
from lsm.config.load import find_config, load_tree
from lsm.storage.disk_profile import load_profile
from support.training import make_store

SMALL = (
    "graph.nodes=3000",
    "accumulator.engine=posix",
    "accumulator.accesses=[1, 16]",
    "accumulator.batch_sizes=[2, 8]",
    "accumulator.rows=1500",
    "accumulator.repeats=1",
    "accumulator.seconds=0.05",
)


@pytest.mark.parametrize("plotted", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_study(tmp_path, plotted):
    paths = [f"graph.path={tmp_path}/store", f"output={tmp_path}/out"]
    paths += [f"accumulator.directory={tmp_path}/disk", f"plot.enabled={plotted}"]
    config = load_tree(AblationConfig, find_config("accumulator", "ablation"), [*SMALL, *paths])
    records = run_study(config, progress=False)
    out = tmp_path / "out"
    assert json.loads((out / "records.json").read_text()) == records
    overlap = [each for each in records if each["study"] == "overlap"]
    batches = [each for each in records if each["study"] == "batches"]
    model = load_profile(out / "profile.json").access_model()
    for each in overlap:
        assert each["iops_min"] <= each["iops"] <= each["iops_max"]
        assert each["iops_model"] == round(model.iops(each["accesses"]))
    ways = ["one iteration", "4 iterations", "accumulator", "auto"]
    assert [each["way"] for each in batches] == 4 * ways  # two batch sizes, with and without cache
    for each in batches:
        assert each["rows_per_s"] > 0
        if each["way"] in ways[:2]:
            assert each["iterations_in_flight"] <= (1 if each["way"] == "one iteration" else 4)
    for name, rows in (("overlap", overlap), ("batches", batches)):
        with open(out / f"{name}.csv", newline="") as file:
            assert len(list(csv.DictReader(file))) == len(rows)
        assert (out / f"{name}.png").exists() == (plotted == "true")
    assert str(tmp_path) not in (out / "study.json").read_text()
    assert list((tmp_path / "disk").iterdir()) == []  # the test file is gone


def test_a_store_of_any_other_size(tmp_path):
    """Its nodes count, and not graph.nodes, by which a missing store is made."""
    paths = [f"graph.path={make_store(tmp_path / 'store')}", f"output={tmp_path}/out"]
    paths += [f"accumulator.directory={tmp_path}", "plot.enabled=false"]
    few = ["graph.nodes=100", "accumulator.rows=200", "accumulator.batch_sizes=[2]"]
    changes = [*SMALL, *few, "accumulator.accesses=[1]", *paths]
    config = load_tree(AblationConfig, find_config("accumulator", "ablation"), changes)
    assert len(run_study(config, progress=False)) == 1 + 8
