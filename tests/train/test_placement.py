"""GPU memory that a job takes, checked before the run and during it."""

from types import SimpleNamespace

import pytest
import torch

from lsm.core.device import PLANNER_LINE_BYTES
from lsm.data.graph_store import GraphStore
from lsm.distributed.collectives import World
from lsm.run import devices
from lsm.train import placement
from lsm.train.tasks import node_classification
from lsm.train.trainer import train
from support.described_gpus import cuda_info
from support.training import config, losses, make_store


def test_memory_that_a_job_takes_on_a_gpu(tmp_path):
    store = GraphStore.open(make_store(tmp_path / "store"))
    settings = ("cache.policy=lookahead", "cache.bytes=8KiB", "loader.staging_bytes=1MiB")
    victim = ("cache.victim.mode=pool", "cache.victim.bytes=64KiB")
    job = config(tmp_path / "store", tmp_path, *settings, *victim)
    needs = placement._device_needs(job, World(), store)
    assert placement.device_budget(job, World(), store) == sum(needs.values())
    # GraphSAGE 12 -> 16 -> 3: two matrices and a bias per layer, four times over, as float32.
    assert needs.pop("the model with gradients and moments") == 16 * (2 * 12 * 16 + 16 + 99)
    assert needs.pop("rows of batches ahead (loader.staging_bytes)") == 1 << 20
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


def test_a_job_that_does_not_fit_is_refused_before_it_allocates(tmp_path, monkeypatch):
    store = make_store(tmp_path / "store")
    monkeypatch.setattr(devices, "choose_device", lambda *_: torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (5 << 20, 8 << 20))
    settings = ("cache.policy=lookahead", "cache.bytes=4MiB", "loader.staging_bytes=2MiB")
    with pytest.raises(ValueError, match=r"cuda:0: the model with .* = 6 MiB, and of its 8 MiB"):
        train(config(store, tmp_path / "run", "device=cuda", *settings))


@pytest.mark.parametrize(
    ("here", "there", "backend"),
    [
        (["ipc"], False, "nccl"),
        ([], False, "nccl"),
        (["ipc", "nccl"], False, "gloo"),
        (["ipc"], True, "gloo"),  # some other two ranks use it: all take the same
    ],
)
def test_gradients_leave_nccl_to_rows(monkeypatch, here, there, backend):
    monkeypatch.setattr(placement, "ranks_on_gpu", lambda *_: 1)
    monkeypatch.setattr(placement.collectives, "gather_objects", lambda own, _world: [own, there])
    world, gpu = World(rank=0, size=2), torch.device("cuda", 0)
    assert placement.gradient_backend(world, gpu, here) == backend


@pytest.mark.parametrize(
    ("others", "most", "backend"),
    [
        ([("here", "0000:41:00.0")], 1, "nccl"),
        ([("there", "0000:01:00.0")], 1, "nccl"),  # the same slot of another machine
        ([("here", "0000:01:00.0"), ("here", "0000:41:00.0")], 2, "gloo"),
    ],
)
def test_ranks_that_share_a_gpu(monkeypatch, caplog, others, most, backend):
    """The needs of both are added up, and gradients leave NCCL, which refuses such ranks."""
    gpu, world = torch.device("cuda", 0), World(size=1 + len(others))
    found = cuda_info(gpus=[SimpleNamespace(bus_id="0000:01:00.0")])
    monkeypatch.setattr(placement, "host_identity", lambda: "here")
    monkeypatch.setattr(placement.native, "find_cuda", lambda: found)
    places = [("here", "0000:01:00.0"), *others]
    monkeypatch.setattr(placement.collectives, "gather_objects", lambda *_: places)
    assert placement.ranks_on_gpu(world, gpu) == most
    # All others have no link over NCCL, as this one.
    answers = iter([places, [False] * world.size])
    monkeypatch.setattr(placement.collectives, "gather_objects", lambda *_: next(answers))
    assert placement.gradient_backend(world, gpu, ["ipc"]) == backend
    monkeypatch.setattr(placement.collectives, "gather_objects", lambda *_: places)
    assert ("gradients travel through Gloo" in caplog.text) == (backend == "gloo")
    monkeypatch.setattr(placement, "_device_needs", lambda *_: {"the cache": 3 << 20})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (5 << 20, 8 << 20))
    if most == 1:
        placement.check_job_room(None, world, None, gpu)
        return
    with pytest.raises(ValueError, match=r"cache 3 MiB \+ the same for each other .* 3 MiB = 6"):
        placement.check_job_room(None, world, None, gpu)


def test_out_of_memory_in_an_epoch_says_where_and_the_checkpoint_resumes(tmp_path, monkeypatch):
    """As torch reports it: from within a step, and only in this run."""
    store = make_store(tmp_path / "store")
    expected = config(store, tmp_path / "whole")
    train(expected)
    job = config(store, tmp_path / "run", "checkpoint.every_steps=2")
    steps, loss_sum = [], node_classification.loss_sum

    def fails_at_the_third(*arguments):
        steps.append(arguments)
        if len(steps) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore words")
        return loss_sum(*arguments)

    monkeypatch.setattr(node_classification, "loss_sum", fails_at_the_third)
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
