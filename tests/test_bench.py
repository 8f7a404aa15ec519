"""The benchmark scripts run, at small sizes, so that they cannot rot, and report what they did."""

import json
import os
import subprocess
import sys

import pytest
from store_files import REPOSITORY

import lsm
from lsm.data.synth import synthesize


def run(*command: object) -> str:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def bench(script: str, *options: object) -> dict:
    return json.loads(run(REPOSITORY / "bench" / script, *options))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("stores") / "graph"
    synthesize(path, nodes=4000, dim=64, classes=5, avg_degree=8)
    return lsm.GraphStore.open(path)


@pytest.mark.parametrize("options", [["--stripes", "2"], ["--synth"]])
def test_convert(tmp_path, options):
    record = bench("convert.py", "--bytes", "4MiB", "--check", "--dir", tmp_path, *options)
    assert record["num_nodes"] == 1024
    assert 4 << 20 < record["bytes"] < 5 << 20
    assert record["rss_before_bytes"] <= record["peak_rss_bytes"]
    assert list(tmp_path.iterdir()) == []


def test_features(tmp_path):
    options = ["--size", "4MiB", "--rows-per-batch", 100, "--batches", 5, "--rounds", 1]
    record = bench("features.py", "--dir", tmp_path, "--check", "--engines", "posix", *options)
    assert [row["row_bytes"] for row in record["features"]] == [1024, 4096]
    for row in record["features"]:
        assert set(row["rows_per_s"]) == {"FeatureLoader(posix)", "numpy.memmap(MADV_RANDOM)"}
    assert list(tmp_path.iterdir()) == []


def test_sampler(store):
    record = bench("sampler.py", "--store", store.path, "--batches", 5, "--check")
    assert record["nodes"] == 4000
    assert record["edges"] == store.num_edges


def test_training(store):
    options = ["--iters", 2, "--rounds", 2, "--warmup", 1, "--batch-size", 200]
    record = bench("training.py", "--store", store.path, "--engine", "memory,posix", *options)
    assert [result["engine"] for result in record["training"]] == ["memory", "posix"]
    for result in record["training"]:
        slowest, fastest = (result[f"iterations_per_s_{end}"] for end in ("min", "max"))
        assert 0 < slowest <= result["iterations_per_s"] <= fastest


def test_storage(tmp_path):
    out = tmp_path / "record.json"
    options = ["--size", "4MiB", "--blocks", "4KiB,16KiB", "--depths", "1,8", "--seconds", "0.1"]
    table = run("-m", "lsm", "bench", "storage", "--path", tmp_path, "--engine", "posix",
                *options, "--repeats", 1, "--json", out)  # fmt: skip
    points = json.loads(out.read_text())["points"]
    assert [(point["block_bytes"], point["queue_depth"]) for point in points] == [
        (4096, 1),
        (4096, 8),
        (16384, 1),
        (16384, 8),
    ]
    assert len(table.splitlines()) == 1 + len(points)
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_merged_reads(tmp_path):
    options = ["--size", "4MiB", "--rounds", 1, "--engine", "posix"]
    record = bench("merged_reads.py", "--dir", tmp_path, *options)
    for row in record["merged_reads"]:
        reads = [row["medians"][way]["reads"] for way in ("one by one", "together")]
        assert reads[1] < reads[0]
    assert list(tmp_path.iterdir()) == []


def test_planner():
    record = bench("planner.py", "--lines", 2048, "--ids", 500)
    assert record
