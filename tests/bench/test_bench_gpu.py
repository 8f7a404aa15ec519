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

TINY = (
    *("--row-bytes", "64", "--lines", "500", "--rows", "200", "--cold-rows", "100"),
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
    assert set(made["gather"]) == {
        *("copy", "locks_none", "locks_device", "locks_system", "ratio", "seconds")
    }
    assert len(made["reach"]) == 8
    for line in made["reach"].values():
        assert line["measured"] > 0
        assert line["reached"] == (line["measured"] >= line["at_least"])
    assert 0 < made["training"]["cached"]["hit_ratio"] < 1
    assert {"commit", "command", "config", "machine", "gpu"} <= set(made)


def test_a_part_that_fails_leaves_the_others(on_host, monkeypatch):
    def fail(*_arguments):
        raise RuntimeError("CUDA: out of memory")

    monkeypatch.setitem(gpu.PARTS, "cold", fail)
    made = gpu.run(["cold", "gather"], gpu.parse_args(list(TINY)))
    assert made["cold"]["error"] == "RuntimeError: CUDA: out of memory"
    assert list(made["reach"]) == ["gather of hits, against a copy"]


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
