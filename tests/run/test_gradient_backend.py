"""Ranks that share a GPU, and the backend of their gradients."""

from types import SimpleNamespace

import pytest
import torch

from lsm.distributed.collectives import World
from lsm.run import devices
from support.described_gpus import cuda_info


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
    monkeypatch.setattr(devices, "ranks_on_gpu", lambda *_: 1)
    monkeypatch.setattr(devices.collectives, "gather_objects", lambda own, _world: [own, there])
    world, gpu = World(rank=0, size=2), torch.device("cuda", 0)
    assert devices.gradient_backend(world, gpu, here) == backend


@pytest.mark.parametrize(
    ("others", "most", "backend"),
    [
        ([("here", "0000:41:00.0")], 1, "nccl"),
        ([("there", "0000:01:00.0")], 1, "nccl"),  # the same slot of another machine
        ([("here", "0000:01:00.0"), ("here", "0000:41:00.0")], 2, "gloo"),
    ],
)
def test_ranks_that_share_a_gpu(monkeypatch, caplog, others, most, backend):
    """Gradients leave NCCL, which refuses such ranks."""
    gpu, world = torch.device("cuda", 0), World(size=1 + len(others))
    found = cuda_info(gpus=[SimpleNamespace(bus_id="0000:01:00.0")])
    monkeypatch.setattr(devices, "host_identity", lambda: "here")
    monkeypatch.setattr(devices.native, "find_cuda", lambda: found)
    places = [("here", "0000:01:00.0"), *others]
    monkeypatch.setattr(devices.collectives, "gather_objects", lambda *_: places)
    assert devices.ranks_on_gpu(world, gpu) == most
    # All others have no link over NCCL, as this one.
    answers = iter([places, [False] * world.size])
    monkeypatch.setattr(devices.collectives, "gather_objects", lambda *_: next(answers))
    assert devices.gradient_backend(world, gpu, ["ipc"]) == backend
    monkeypatch.setattr(devices.collectives, "gather_objects", lambda *_: places)
    assert ("gradients travel through Gloo" in caplog.text) == (backend == "gloo")
