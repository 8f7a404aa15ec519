"""The benchmark of GPU code runs, at tiny sizes and with the twins in place of kernels, so that it
works once there is a GPU. Its figures here mean nothing."""

import json
import subprocess
import sys

import pytest
import torch

from support.gpus import WITHOUT_GPU
from support.training import REPOSITORY, environment

sys.path.append(str(REPOSITORY / "bench"))
import gpu
import gpu_profile

pytestmark = pytest.mark.slow

TINY = (
    *(
        "--row-bytes",
        "64",
        "--gather-bytes",
        "64",
        "1024",
        "--lines",
        "8",
        "--rows",
        "3",
        "--cold-rows",
        "100",
    ),
    *("--planner-lines", "640", "--ids", "300", "--nodes", "2000", "--edges", "9000"),
    *("--host-threads", "2", "--sample-lanes", "2", "--rounds", "3", "--train-nodes", "3000"),
    *("--train-dim", "8", "--iterations", "2", "--train-rounds", "1", "--check"),
    *("--embed-edges", "60", "--embed-negatives", "20", "--embed-dim", "6"),
    *("--embed-nodes", "90", "--embed-relations", "3"),
)


@pytest.fixture
def on_host(monkeypatch):
    monkeypatch.setattr(gpu, "GPU", torch.device("cpu"))


def test_all_parts(on_host, tmp_path):
    path = tmp_path / "record.json"
    made = gpu.run(list(gpu.PARTS), gpu.parse_args([*TINY, "--json", str(path)]))
    assert json.loads(path.read_text()) == json.loads(json.dumps(made))
    assert [part for part in gpu.PARTS if "error" in made[part]] == []
    assert set(made["gather"]) == {"copy", "64_bytes", "1024_bytes", "seconds"}
    locks = {"locks_none", "locks_device", "locks_system"}
    assert set(made["gather"]["64_bytes"]) == {*locks, "ratio"}
    assert len(made["reach"]) == 12
    for line in made["reach"].values():
        assert line["measured"] > 0
        assert line["reached"] == (line["measured"] >= line["at_least"])
    assert 0 < made["training"]["cached"]["hit_ratio"] < 1
    assert set(made["training"]["cached"]["ms"]) == {"next", "to_device", "launch", "loss"}
    assert {"commit", "command", "config", "machine", "gpu"} <= set(made)


def test_a_profile(on_host):
    """Of the host's operators here, since twins launch nothing."""
    made = gpu_profile.run(gpu.parse_args(list(TINY)))
    assert set(made["training"]) == {"cached", "resident"}
    assert {"complex_stored", "transe_l1_stored"} <= set(made["embed"])
    for each in (*made["training"].values(), *made["embed"].values()):
        assert each["ms"] > 0
        assert each["gpu_ms"] == each["launches"] == 0
        assert each["kernels"] == []
        spent = [operator["ms"] for operator in each["operators"]]
        assert spent == sorted(spent, reverse=True)
        assert spent[0] > 0
    named = {operator["name"] for operator in made["training"]["cached"]["operators"]}
    assert any(name.startswith("aten::") for name in named)


def test_the_fused_softmax_is_measured_beside_stored_scores():
    """By Triton's interpreter, which is chosen before Triton is imported."""
    pytest.importorskip("triton", reason="Triton has wheels for Linux on x86-64 only")
    script = (
        "import json, sys, torch, gpu; gpu.GPU = torch.device('cpu');"
        "print(json.dumps(gpu.run(['embed'], gpu.parse_args(sys.argv[1:]))['embed']))"
    )
    variables = environment(TRITON_INTERPRET="1")
    variables["PYTHONPATH"] += f":{REPOSITORY / 'bench'}"
    command = [sys.executable, "-c", script, *TINY]
    done = subprocess.run(
        command, capture_output=True, text=True, env=variables, timeout=300, check=True
    )
    made = json.loads(done.stdout.splitlines()[-1])
    assert "error" not in made
    fused = {key for key in made if key.endswith("_fused")}
    names = ("dot", "distmult", "complex", "transe_l2")
    assert fused == {f"{name}{more}_fused" for name in names for more in ("", "_tf32")}
    assert {key.removesuffix("_fused") for key in fused} <= set(made)
    assert all(made[key]["ms"] > 0 for key in fused)
    of_dot = [made[f"dot{more}"] for more in ("", "_tf32", "_fused", "_tf32_fused")]
    assert made["fastest_dot"]["ms"] == min(each["ms"] for each in of_dot)


def test_a_fused_softmax_that_fails_leaves_stored_scores(on_host, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "lsm.embed.gradients.fused_softmax", raising=False)
    made = gpu.run(["embed"], gpu.parse_args(list(TINY)))
    assert made["embed"]["error"].startswith("transe_l2, fused: RuntimeError: ")
    assert "embeddings, dot: batches per second" in made["reach"]


def test_a_part_that_fails_leaves_the_others(on_host, monkeypatch):
    def fail(*_arguments):
        raise RuntimeError("CUDA: out of memory")

    monkeypatch.setitem(gpu.PARTS, "cold", fail)
    made = gpu.run(["cold", "gather"], gpu.parse_args(list(TINY)))
    assert made["cold"]["error"] == "RuntimeError: CUDA: out of memory"
    assert list(made["reach"]) == [
        f"gather of hits of {size} bytes, against a copy" for size in (64, 1024)
    ]


def test_a_wrong_result_is_an_error(on_host, monkeypatch):
    monkeypatch.setattr(gpu.native, "gather_on", lambda *_arguments: None)
    made = gpu.run(["gather"], gpu.parse_args(list(TINY)))
    assert "the gather with locks=none is wrong" in made["gather"]["error"]


@WITHOUT_GPU
def test_it_says_that_there_is_no_gpu():
    command = [sys.executable, str(REPOSITORY / "bench" / "gpu.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=100)
    assert done.returncode == 1
    assert done.stderr.startswith("no GPU to measure: ")


def test_rows_of_every_size_are_gathered_by_default():
    assert gpu.parse_args([]).gather_bytes == [256, 512, 1024, 2048, 4096]


def test_streams_of_benches_have_connections_of_their_own():
    variables = {**environment(), "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'bench'}"}
    variables.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    script = "import os, common; print(os.environ['CUDA_DEVICE_MAX_CONNECTIONS'])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=variables, timeout=300
    )
    assert done.stdout == "32\n", done.stderr
