"""Which device trains and why not, with GPUs that are only described; memory sums; traces."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from lsm import native
from lsm.core.device import (
    PLANNER_LINE_BYTES,
    check_room,
    choose_device,
    empty_rows,
    gpu_of,
    gpu_problem,
    memory_errors,
    model_bytes,
)
from lsm.data.graph_store import GraphStore
from lsm.distributed.collectives import World
from lsm.sampler.neighbor_gpu import place_topology
from lsm.train import placement
from lsm.train import trainer as train_module
from lsm.train.trainer import train
from support.training import REPOSITORY, config, environment, losses, make_store

A100 = SimpleNamespace(name="A100", capability_major=8, capability_minor=0, total_bytes=40 << 30)
T4 = SimpleNamespace(name="T4", capability_major=7, capability_minor=5, total_bytes=16 << 30)


def info(gpus=(A100,), toolkit=13000, driver=13010, problem=""):
    return SimpleNamespace(
        gpus=list(gpus), toolkit_version=toolkit, driver_version=driver, problem=problem
    )


def cuda(available=True, count=1, free=0, total=0):
    return SimpleNamespace(
        is_available=lambda: available,
        device_count=lambda: count,
        mem_get_info=lambda _device: (free, total),
    )


@pytest.mark.parametrize(
    ("index", "torch_cuda", "found", "message"),
    [
        (0, cuda(), info(gpus=(), toolkit=0), "built without CUDA; build again with LSM_CUDA=ON"),
        (0, cuda(), info(driver=12080), "serves CUDA up to 12.8, and this was built with 13.0"),
        (
            0,
            cuda(),
            info(gpus=(), driver=0, problem="too old"),
            r"no NVIDIA driver was found.*--gpus",
        ),
        (
            0,
            cuda(),
            info(gpus=(), problem="no device"),
            r"finds no GPU \(no device\); see nvidia-smi",
        ),
        (0, cuda(available=False), info(), "install a build of torch with CUDA"),
        (1, cuda(), info(), "GPU 1 is not among the 1 that torch and the CUDA runtime show"),
        (0, cuda(), info(gpus=(T4,)), "T4 has compute capability 7.5, and 8.0 or newer"),
    ],
)
def test_why_a_gpu_cannot_train(index, torch_cuda, found, message):
    problem = gpu_problem(index, torch_cuda, found)
    assert problem is not None
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(problem)


def test_a_gpu_that_can():
    assert gpu_problem(0, cuda(), info()) is None
    # The same major version is compatible, also with an older minor one.
    assert gpu_problem(0, cuda(), info(toolkit=12080, driver=12040)) is None


@pytest.mark.skipif(gpu_problem(0) is None, reason="there is a GPU")
def test_without_a_gpu():
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    with pytest.raises(RuntimeError, match=r"device=cuda: .* or set device=cpu"):
        choose_device("cuda")


@pytest.mark.skipif(gpu_problem(0) is None, reason="there is a GPU")
def test_asked_for_by_name_it_is_an_error_of_one_line(tmp_path):
    store = make_store(tmp_path / "store")
    command = [sys.executable, "-m", "lsm", "train", "base", f"data.path={store}", "device=cuda"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=100)
    assert done.returncode != 0
    assert "device=cuda: " in done.stderr
    assert "Traceback" not in done.stderr


def test_room():
    gpu = torch.device("cuda", 0)
    needs = {"the cache (cache.bytes)": 6 << 30, "the model": 1 << 30, "nothing": 0}
    check_room(gpu, needs, cuda(free=7 << 30, total=8 << 30))
    check_room(torch.device("cpu"), needs, None)
    with pytest.raises(
        ValueError, match=r"cache\.bytes\) 6 GiB \+ the model 1 GiB = 7 GiB, and of"
    ):
        check_room(gpu, needs, cuda(free=(7 << 30) - 1, total=8 << 30))


def test_running_out_of_memory_says_what_to_do():
    expected = pytest.raises(RuntimeError, match=r"at epoch 1, .* make cache\.bytes, .* smaller")
    with expected, memory_errors("at epoch 1, iteration 2"):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


def test_in_mid_epoch_it_says_where_and_the_checkpoint_resumes(tmp_path, monkeypatch):
    """As torch reports it: from within a step, and only in this run."""
    store = make_store(tmp_path / "store")
    expected = config(store, tmp_path / "whole")
    train(expected)
    job = config(store, tmp_path / "run", "checkpoint.every_steps=2")
    steps, loss_sum = [], train_module.loss_sum

    def fails_at_the_third(*arguments):
        steps.append(arguments)
        if len(steps) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore words")
        return loss_sum(*arguments)

    monkeypatch.setattr(train_module, "loss_sum", fails_at_the_third)
    with pytest.raises(RuntimeError) as caught:
        train(job)
    assert str(caught.value) == (
        "the GPU ran out of memory at epoch 1, iteration 2 (CUDA out of memory. Tried to allocate "
        "2 GiB.); make cache.bytes, cache.static.bytes, train.batch_size or sampler.num_neighbors "
        "smaller; the last checkpoint resumes"
    )
    monkeypatch.undo()
    train(job)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_what_does_not_fit_is_refused_before_anything_is_put_there(tmp_path, monkeypatch):
    store = make_store(tmp_path / "store")
    monkeypatch.setattr(placement, "choose_device", lambda *_: torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (5 << 20, 8 << 20))
    settings = ("cache.policy=lookahead", "cache.bytes=4MiB", "sampler.staging_bytes=2MiB")
    with pytest.raises(ValueError, match=r"cuda:0: the model with .* = 6 MiB, and of its 8 MiB"):
        train(config(store, tmp_path / "run", "device=cuda", *settings))


@pytest.mark.parametrize(
    ("local_rank", "num_gpus", "index"), [(0, 4, 0), (3, 4, 3), (3, 1, 0), (5, 4, 1), (2, 0, 2)]
)
def test_ranks_take_visible_gpus_in_turn(local_rank, num_gpus, index):
    assert gpu_of(local_rank, num_gpus) == index


@pytest.mark.parametrize(
    ("others", "most", "backend"),
    [
        ([("here", "0000:41:00.0")], 1, "nccl"),
        ([("there", "0000:01:00.0")], 1, "nccl"),  # the same slot of another machine
        ([("here", "0000:01:00.0"), ("here", "0000:41:00.0")], 2, "gloo"),
    ],
)
def test_ranks_that_share_a_gpu(monkeypatch, caplog, others, most, backend):
    """What each needs is added up, and gradients leave NCCL, which refuses them."""
    gpu, world = torch.device("cuda", 0), World(size=1 + len(others))
    found = info(gpus=[SimpleNamespace(bus_id="0000:01:00.0")])
    monkeypatch.setattr(placement, "host_identity", lambda: "here")
    monkeypatch.setattr(placement.native, "find_cuda", lambda: found)
    monkeypatch.setattr(placement.collectives, "gather_objects", lambda own, _world: [own, *others])
    assert placement.ranks_on_gpu(world, gpu) == most
    assert placement.gradient_backend(world, gpu) == backend
    assert ("gradients travel through Gloo" in caplog.text) == (backend == "gloo")
    monkeypatch.setattr(placement, "_device_needs", lambda *_: {"the cache": 3 << 20})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (5 << 20, 8 << 20))
    if most == 1:
        placement.check_job_room(None, world, None, gpu)
        return
    with pytest.raises(ValueError, match=r"cache 3 MiB \+ the same for each other .* 3 MiB = 6"):
        placement.check_job_room(None, world, None, gpu)


def test_memory_that_cannot_be_locked(monkeypatch):
    """As torch says that cudaHostAlloc failed."""

    def refuse(*_arguments, **_options):
        raise RuntimeError("CUDA error: out of memory\nmore words")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", refuse)
        with pytest.raises(RuntimeError, match=r"page-lock 4 KiB .*sampler\.staging_bytes smaller"):
            empty_rows(1024, 4, torch.uint8)
    topology = SimpleNamespace(indptr=torch.arange(3), indices=torch.arange(2, dtype=torch.int32))
    monkeypatch.setattr(torch.Tensor, "pin_memory", refuse)
    with pytest.raises(RuntimeError, match=r"page-lock 32 B for the topology .*placement=host"):
        place_topology(topology, "uva", torch.device("cuda", 0))


def test_memory_of_a_model():
    assert model_bytes(torch.nn.Linear(3, 5)) == 4 * 4 * (3 * 5 + 5)


def test_what_the_native_module_finds():
    found = native.find_cuda()
    assert (found.toolkit_version > 0) == native.build_info()["cuda"]
    assert found.problem or found.gpus


def test_a_trace_holds_every_stage_and_changes_no_loss(tmp_path):
    store = make_store(tmp_path / "store")
    plain = config(store, tmp_path / "plain", "train.precision=tf32")
    profiled = config(store, tmp_path / "profiled", "metrics.profile_steps=3")
    train(plain)
    train(profiled)
    assert losses(tmp_path / "profiled") == losses(tmp_path / "plain")
    trace = json.loads((tmp_path / "profiled" / "profile" / "rank0.json").read_text())
    names = [event.get("name") for event in trace["traceEvents"]]
    assert names.count("lsm/step") == 3
    assert {"lsm/forward", "lsm/backward", "lsm/optimizer"} <= set(names)
    assert not (tmp_path / "plain" / "profile").exists()


def test_compile_wraps_the_model(tmp_path, monkeypatch):
    calls = []

    def compile_(model, dynamic):
        calls.append(dynamic)
        return model

    monkeypatch.setattr(torch, "compile", compile_)
    train(config(make_store(tmp_path / "store"), tmp_path / "run", "train.compile=true"))
    assert calls == [True]


@pytest.mark.skipif(gpu_problem(0) is None, reason="there is a GPU")
def test_the_benchmark_says_that_there_is_no_gpu():
    command = [sys.executable, str(REPOSITORY / "bench" / "gpu.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=100)
    assert done.returncode == 1
    assert done.stderr.startswith("no GPU to measure: ")


def test_what_a_job_puts_on_a_gpu(tmp_path):
    store = GraphStore.open(make_store(tmp_path / "store"))
    settings = ("cache.policy=lookahead", "cache.bytes=8KiB", "sampler.staging_bytes=1MiB")
    victim = ("cache.victim.mode=pool", "cache.victim.bytes=64KiB")
    job = config(tmp_path / "store", tmp_path, *settings, *victim)
    needs = placement._device_needs(job, World(), store)
    assert placement.device_budget(job, World(), store) == sum(needs.values())
    # GraphSAGE 12 -> 16 -> 3: two matrices and a bias per layer, four times over, as float32.
    assert needs.pop("the model with gradients and moments") == 16 * (2 * 12 * 16 + 16 + 99)
    assert needs.pop("rows of batches ahead (sampler.staging_bytes)") == 1 << 20
    rows = store.row_bytes
    assert needs == {
        "the cache (cache.bytes)": 8192,
        "static rows (cache.static.bytes)": 0,
        "prefetched rows": 1024 // rows * rows,
    }
    without = ("cache.victim.mode=none", "cache.score=none", "cache.planner=device")
    device = config(tmp_path / "store", tmp_path, *settings, *without)
    needs = placement._device_needs(device, World(), store)
    assert needs["the planner (cache.planner)"] == 8192 // rows * PLANNER_LINE_BYTES
    shared = placement._device_needs(job, World(0, 2), store)
    assert shared["the cache (cache.bytes)"] == 8192
    assert shared["rows on their way between ranks"] == 1 << 20
