"""The benchmark scripts run at small sizes, so that they cannot rot, and report their work."""

import json
import runpy
import sys

import pytest
import torch

import lsm
from bench.memory_limit import MemoryLimit
from lsm.ablation.trace_sampling import sample_trace
from lsm.data.synth import synthesize
from lsm.embed.orders.order import make_order
from support.store_files import REPOSITORY
from support.training import forking_python, run_alone, run_forked

pytestmark = pytest.mark.slow


def run(*command: object, is_forked: bool = True) -> str:
    """The output of ``python COMMAND``; a fork is not in a group of limited memory."""
    done = (run_forked if is_forked else run_alone)(*command, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def bench(monkeypatch, capsys):
    """Runs a script in this process, which has the libraries already; gives its record."""
    num_threads = torch.get_num_threads()

    def run_script(script: str, *options: object) -> dict:
        path = str(REPOSITORY / "bench" / script)
        monkeypatch.setattr(sys, "argv", [path, *map(str, options)])
        capsys.readouterr()
        runpy.run_path(path, run_name="__main__")
        return json.loads(capsys.readouterr().out)

    monkeypatch.syspath_prepend(REPOSITORY / "bench")
    yield run_script
    torch.set_num_threads(num_threads)


@pytest.fixture
def forking(monkeypatch):
    """Programs that a script in this process starts by sys.executable are forks."""
    monkeypatch.setattr(sys, "executable", forking_python())


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("stores") / "graph"
    synthesize(path, nodes=4000, dim=64, classes=5, avg_degree=8)
    return lsm.GraphStore.open(path)


@pytest.mark.parametrize("options", [["--stripes", "2"], ["--synth"]])
def test_convert(bench, tmp_path, options):
    record = bench("convert.py", "--bytes", "4MiB", "--check", "--dir", tmp_path, *options)
    assert record["num_nodes"] == 1024
    assert 4 << 20 < record["bytes"] < 5 << 20
    assert record["rss_before_bytes"] <= record["peak_rss_bytes"]
    assert list(tmp_path.iterdir()) == []


def test_features(bench, tmp_path):
    options = ["--size", "4MiB", "--rows-per-batch", 100, "--batches", 5, "--rounds", 1]
    record = bench("features.py", "--dir", tmp_path, "--check", "--engines", "posix", *options)
    assert [row["row_bytes"] for row in record["features"]] == [1024, 4096]
    for row in record["features"]:
        assert set(row["rows_per_s"]) == {"FeatureLoader(posix)", "numpy.memmap(MADV_RANDOM)"}
    assert list(tmp_path.iterdir()) == []


def test_sampler(bench, store):
    record = bench("sampler.py", "--store", store.path, "--batches", 5, "--check")
    assert record["nodes"] == 4000
    assert record["edges"] == store.num_edges


def test_sampler_kinds(bench):
    options = ["--nodes", 2000, "--degree", 20, "--fanouts", "3,3", "--batch-size", 20]
    record = bench("sampler_kinds.py", *options, "--iterations", 20, "--window", 4)
    first, *others = record["sampler_kinds"]
    assert first["kind"] == "neighbor"
    assert len(others) == 4
    for row in others:
        assert row["input_nodes"] < first["input_nodes"]


def test_pyg_loaders(bench, tmp_path):
    options = ["--nodes", 2000, "--dim", 1024, "--batch-size", 200, "--rounds", 1]
    options += ["--engine", "posix", "--hidden", 8, "--workdir", tmp_path]
    record = bench("pyg_loaders.py", *options)
    own, *others = record["loaders"].values()
    assert own["seconds_relative"] == 1
    assert len(others) == 4
    parts, without_ids, one_by_one, by_workers = others
    assert parts["bytes_read"] == without_ids["bytes_read"] == own["bytes_read"]
    assert one_by_one["bytes_read"] > own["bytes_read"] > 0
    assert "bytes_read" not in by_workers
    assert list(tmp_path.iterdir()) == []


def test_training(bench, store):
    options = ["--iters", 2, "--rounds", 2, "--warmup", 1, "--batch-size", 200]
    record = bench("training.py", "--store", store.path, "--engine", "memory,posix", *options)
    assert [result["engine"] for result in record["training"]] == ["memory", "posix"]
    for result in record["training"]:
        slowest, fastest = (result[f"iterations_per_s_{end}"] for end in ("min", "max"))
        assert 0 < slowest <= result["iterations_per_s"] <= fastest


def test_loop_profile(bench):
    # More iterations than are sampled ahead, so that some are sampled meanwhile.
    options = ["--nodes", 3000, "--batch-size", 100, "--iters", 25, "--warmup", 2, "--rounds", 1]
    found = bench("loop_profile.py", *options, "--top", 1000)["loop_profile"]
    took = sum(each["us"] for each in found["functions"])
    assert took == pytest.approx(found["python_us_per_iteration"], rel=0.05)
    assert took > 0
    names = {each["function"] for each in found["functions"]}
    assert "sampler/neighbor.py:NeighborSampler.sample" in names  # of another thread
    assert any(name.startswith("loader/") for name in names)  # of this one


def test_memory_peak(bench, tmp_path):
    options = ["--graphs", "9000x4", "--fanouts", "3,2", "--batch-sizes", 16, "--steps", 4]
    record = bench("memory_peak.py", "--dir", tmp_path, "--memory-bytes", "600MiB", *options)
    (row,) = record["memory_peak"]
    assert "failed" not in row
    assert row["steps"] >= 4
    assert 0.1 < row["share_of_budget"] < 1.1
    assert list(tmp_path.iterdir()) == []


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


def test_merged_reads(bench, tmp_path):
    options = ["--size", "4MiB", "--rounds", 1, "--engine", "posix"]
    record = bench("merged_reads.py", "--dir", tmp_path, *options)
    for row in record["merged_reads"]:
        reads = [row["medians"][way]["reads"] for way in ("one by one", "together")]
        assert reads[1] < reads[0]
    assert list(tmp_path.iterdir()) == []


def test_nvme(bench, tmp_path):
    options = ["--size", "8MiB", "--memory", "8MiB", "--reads", 8192, "--rounds", 1]
    record = bench("nvme.py", "--dir", tmp_path, "--peer", "posix", *options)["nvme"]
    for shape, most in (("contiguous", 4), ("sparse", 40)):
        assert record["queue_code"][f"{shape}, memory"]["tail_doorbells_per_1000"] < most
    assert set(record["engines"]) == {"nvme", "posix"}
    assert sum(record["faults"]["ends"].values()) == 8192
    assert "hung" not in record["faults"]["ends"]
    counts = record["transfers"]["64KiB"]["nvme"]  # frames of 512 KiB, read and written
    assert counts["commands"] == 8 * 2 * 8
    assert 8 <= counts["doorbells"] <= counts["commands"]
    assert set(record["transfers"]["2MiB"]) == {"nvme", "posix"}
    assert list(tmp_path.iterdir()) == []


def test_planner(bench):
    options = ["--lines", 2048, "--ids", 500, "--nodes", 20_000, "--rounds", 2, "--check"]
    plain, pool = bench("planner.py", *options)["planner"]
    assert (plain["victim_mode"], plain["victim_rows"]) == ("none", 0)
    assert (pool["victim_mode"], pool["victim_rows"]) == ("pool", 2048)
    assert 0 < plain["hit_ratio"] < pool["hit_ratio"] < 1
    for result in (plain, pool):
        slowest, fastest = result["ids_per_s_of_rounds"]
        assert 0 < slowest <= result["ids_per_s"] <= fastest
        assert result["ids_per_cpu_s"] > 0


def test_cached_features(bench, tmp_path, store):
    trace = sample_trace(store, [5, 5], 16, iterations=12)
    trace.save(tmp_path / "trace.npz")
    options = [
        "--engine",
        "posix",
        "--cache-share",
        "0.1",
        "--window",
        4,
        "--staging-bytes",
        "1MiB",
    ]
    record = bench(
        "cached_features.py", "--trace", tmp_path / "trace.npz", "--dir", tmp_path, "--check",
        "--merge-iterations", "1,4,half", "--prefetch", 8, *options)  # fmt: skip
    assert record["trace"] == {"nodes": 4000, "lists": 12, "mean_list": trace.mean_list}
    assert [row["row_bytes"] for row in record["cached_features"]] == [1024, 4096]
    for row in record["cached_features"]:
        assert row["cache_bytes"] == 400 * row["row_bytes"]
        one, four, half = row["readers"].values()
        assert 0 < one["hit_ratio"] == four["hit_ratio"] == half["hit_ratio"] < 1
        assert max(four["reads"], half["reads"]) <= one["reads"]
    assert [path.name for path in tmp_path.iterdir()] == ["trace.npz"]


def test_limited_training(forking, bench, store):
    planned = "--cache-policy lookahead --cache-bytes 256KiB --victim-bytes 128KiB --window 4"
    options = ["--engine", "posix", "--iters", 10, "--rounds", 1, "--batch-size", 200]
    record = bench(
        "limited_training.py", "--store", store.path, "--limit", "none",
        "--ours=", "--ours", planned, *options)  # fmt: skip
    assert record["limit"] == {"bytes": None, "feature_bytes": 4000 * 256, "mechanism": "none"}
    every, cached = record["training"]
    assert "failed" not in every | cached
    assert "hit_ratio" not in every
    assert 0 < cached["hit_ratio"] < 1


def test_limited_inference(tmp_path):
    try:
        with MemoryLimit(1 << 30):
            pass
    except RuntimeError as error:
        pytest.skip(str(error))
    options = ["--nodes", 3000, "--dim", 256, "--models", "gcn", "--rounds", 1, "--share", 16]
    script = REPOSITORY / "bench" / "limited_inference.py"
    record = json.loads(run(script, "--workdir", tmp_path, *options, is_forked=False))
    (ours,) = record["gcn"]["ours"]
    assert ours["memory_bytes"] > 16 * 3000 * 1024
    assert ours["peak_anonymous_bytes"] <= ours["limit_bytes"]
    assert ours["bytes_ratio"] >= 1
    assert list(tmp_path.iterdir()) == []


def test_embed_disk(forking, bench, tmp_path):
    sizes = ["--nodes", 2000, "--edges-per-node", 1, "--dim", 6, "--partitions", 7]
    sizes += ["--batch-size", 500, "--chunk", 100, "--limit", "none", "--form", "best"]
    record = bench("embed_disk.py", "--dir", tmp_path, *sizes)
    loads = len(make_order("best", 7, 3, 1).loads)
    for form in record["forms"].values():
        assert form["moved_bytes"] / record["frame_bytes"] == 2 * loads
        assert form["against_bound"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_defaults(tmp_path, store):
    sweep = ["storage.engine=memory", "storage.engine=abacus"]
    options = [option for setting in sweep for option in ("--sweep", setting)]
    options += ["--cases", "fits", "--rounds", 2, "--warmup", 1, "--workdir", tmp_path]
    script = REPOSITORY / "bench" / "defaults.py"
    run(script, "--store", store.path, *options, "--out", tmp_path / "record")
    (case,) = json.loads((tmp_path / "record.json").read_text())["defaults"]
    runs = case["runs"]
    assert [len(runs["sweep"][setting]) for setting in sweep] == [2, 1]  # the best goes on
    assert "storage.engine" in runs["sweep"][sweep[1]][0]["failed"]
    assert case["reached"]["sweep"]["setting"] == sweep[0]
    for result in (*runs["defaults"][""], *runs["sweep"][sweep[0]]):
        # An epoch of 2,400 seeds is three iterations, the first of which is not measured.
        assert result["iterations"] == 2
        assert 0 < result["train_secs"] < result["epoch_secs"]
    table = (tmp_path / "record.md").read_text()
    assert f"| fits | sweep | `{sweep[0]}` |" in table
    assert {path.name for path in tmp_path.iterdir()} == {"record.json", "record.md"}


def test_exchange():
    options = ("--rows", 200, "--nodes", 2000, "--dim", 33, "--iterations", 2, "--warmup", 1)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    script = REPOSITORY / "bench" / "exchange.py"
    record = json.loads(run(*torchrun, script, *options, "--device", "twin", "--check"))
    results = record["exchange"]
    measured = {name for name, result in results.items() if isinstance(result, dict)}
    assert measured == {"all_to_all_single", "shm", "gloo", "twin_ipc", "twin_gloo"}
    assert results["twin_nccl"].startswith("comm.transport=nccl: rank 0: the host stands for a GPU")
    assert all(results[name]["rows_ms"] > 0 for name in measured)


def test_embed_export(bench, tmp_path):
    formats = "npy,safetensors,tsv,word2vec"
    options = ["--rows", 5000, "--dim", 8, "--partitions", 3, "--formats", formats]
    record = bench("embed_export.py", "--dir", tmp_path, "--check", *options)
    assert [found["format"] for found in record["exports"]] == formats.split(",")
    for found in record["exports"]:
        assert found["written_bytes"] > 5000 * 8 * 2
        assert found["peak_bytes"] > record["import_peak_bytes"] / 2
    assert list(tmp_path.iterdir()) == []
