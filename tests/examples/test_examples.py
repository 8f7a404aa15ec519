"""Every script in examples/ runs on a store given as its argument, and does its task."""

import ast
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import lsm

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def losses(output):
    return [float(text) for text in re.findall(r"^epoch \d+: loss ([\d.]+)", output, re.MULTILINE)]


@pytest.mark.parametrize("name", ["own_loop", "pyg_model"])
def test_the_loss_falls(name, example_store, run_python):
    first, *_, last = losses(run_python(EXAMPLES / f"{name}.py", example_store))
    assert last < first / 2


def test_own_loop_learns_what_it_did_not_train_on(example_store, run_python):
    output = run_python(EXAMPLES / "own_loop.py", example_store)
    assert float(re.findall(r"valid ([\d.]+)", output)[-1]) > 0.5  # four classes


def test_the_loader_of_pyg_learns_behind_a_cache(example_store, run_python):
    output = run_python(EXAMPLES / "pyg_loaders.py", example_store)
    first, *_, last = losses(output)
    assert last < first / 2
    assert 0 < float(re.search(r"cache hits ([\d.]+)%", output)[1]) < 100


def test_pyg_model_hits_its_cache(example_store, run_python):
    output = run_python(EXAMPLES / "pyg_model.py", example_store)
    shares = [float(text) for text in re.findall(r"cache hits ([\d.]+)%", output)]
    assert len(shares) == 3
    assert all(0 < share < 100 for share in shares)


@pytest.fixture
def typed_store(tmp_path, run_python):
    store = tmp_path / "typed"
    synth = ("--types", "4", "--nodes", "2000", "--dim", "16", "--out", str(store))
    run_python("-m", "lsm", "data", "synth", *synth)
    return store


def test_two_ranks_train_attention_over_types(typed_store, run_python):
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    options = ("--input-type", "target", "--epochs", "5", "--batch-size", "64", "--cache", "16KiB")
    output = run_python(*torchrun, EXAMPLES / "rgat.py", typed_store, *options)
    first, *_, last = losses(output)
    assert last < 0.8 * first
    classes = lsm.GraphStore.open(typed_store).nodes("target").num_classes
    assert float(re.findall(r"valid ([\d.]+)", output)[-1]) > 2 / classes


def test_a_graph_with_types_is_learnt_behind_its_cache(typed_store, run_python):
    options = ("--input-type", "target", "--epochs", "6", "--cache", "16KiB")
    output = run_python(EXAMPLES / "typed_graph.py", typed_store, *options)
    first, *_, last = losses(output)
    assert last < 0.8 * first
    test, hits = map(float, re.search(r"test ([\d.]+); ([\d.]+)% of", output).groups())
    classes = lsm.GraphStore.open(typed_store).nodes("target").num_classes
    assert test > 2 / classes
    assert 0 < hits < 100


def test_two_ranks_train_together_and_share_their_cache(example_store, run_python):
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    output = run_python(*torchrun, EXAMPLES / "ddp.py", example_store)
    first, *_, last = losses(output)
    assert last < first / 2
    shares = [float(text) for text in re.findall(r"read ([\d.]+)%", output)]
    assert len(shares) == 3  # printed by one rank
    assert all(0 < share < 90 for share in shares)


def test_feature_loader_reads_and_hits(example_store, run_python):
    output = run_python(EXAMPLES / "feature_loader.py", example_store)
    assert "[500, 32] torch.float32" in output
    hits, requests = re.search(r"rows: ([\d,]+) of ([\d,]+) requests hit", output).groups()
    assert int(requests.replace(",", "")) == 8 * 500
    assert 0 < int(hits.replace(",", "")) < 8 * 500


def test_no_policy_reads_less_than_the_optimal_one(example_store, run_python):
    output = run_python(EXAMPLES / "policy_study.py", example_store)
    header, *rows = (line.split() for line in output.splitlines())
    assert header[-3:] == ["5%", "10%", "20%"]
    shares = {name: [float(text) for text in values] for name, *values in rows}
    optimal = shares.pop("optimal")
    assert set(shares) == {"lru", "static", "hybrid", "lookahead"}
    for values in shares.values():
        assert all(value >= best for value, best in zip(values, optimal, strict=True))
        assert values == sorted(values, reverse=True)  # more lines, fewer reads


@pytest.mark.skipif(
    find_spec("dgl") is None, reason="dgl is not installed here; `make test-dgl` runs this"
)
def test_dgl_blocks_trains(example_store, run_python):
    first, *_, last = losses(run_python(EXAMPLES / "dgl_blocks.py", example_store))
    assert last < first


@pytest.mark.skipif(find_spec("lightning") is None, reason="lightning is not installed here")
def test_lightning_trains_on_two_processes(example_store, run_python):
    output = run_python(EXAMPLES / "lightning_ddp.py", example_store, "--devices=2")
    first, *_, last = losses(output)
    assert last < first


# Keeps what it is given, in place of the package.
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_use_public_names_only(path):
    tree = ast.parse(path.read_text())
    modules = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    modules += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name for name in modules if name.startswith("lsm.")} <= {"lsm.pyg"}
