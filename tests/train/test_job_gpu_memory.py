"""GPU memory that a job takes, checked before the run and during it."""

import pytest
import torch

from lsm.cache.memory import line_bytes
from lsm.core.memory import Shape
from lsm.data.graph_store import GraphStore
from lsm.data.links.splits import LinkSplits
from lsm.distributed.collectives import World
from lsm.run import devices
from lsm.train import gpu_memory
from lsm.train.gpu_memory import device_terms
from lsm.train.setup import Setup
from lsm.train.tasks.link_prediction import LinkPrediction
from lsm.train.tasks.node_prediction import NodePrediction
from lsm.train.trainer import train
from support.training import config, losses, make_store


def test_memory_that_a_job_takes_on_a_gpu(tmp_path):
    store = GraphStore.open(make_store(tmp_path / "store"))

    def setup(job, world=World()):  # noqa: B008 (a constant)
        return Setup(job, world, torch.device("cuda", 0), store, NodePrediction())

    settings = ("cache.policy=lookahead", "cache.bytes=8KiB", "loader.staging_bytes=1MiB")
    victim = ("cache.victim.mode=pool", "cache.victim.bytes=64KiB")
    job = config(tmp_path / "store", tmp_path, *settings, *victim)
    needs = device_terms(setup(job))
    # GraphSAGE 12 -> 16 -> 3: two matrices and a bias per layer, four times over, as float32.
    assert needs.pop("the model with gradients and moments") == 16 * (2 * 12 * 16 + 16 + 99)
    assert needs.pop("the embeddings of types without features") == 0
    assert needs.pop("rows of batches ahead (loader.staging_bytes)") == 1 << 20
    rows = store.row_bytes
    assert needs == {
        "the cache (cache.bytes)": 8192,
        "static rows (cache.static.bytes)": 0,
        "prefetched rows": 1024 // rows * rows,
    }
    without = ("cache.victim.mode=none", "cache.score=none", "cache.planner=device")
    device = config(tmp_path / "store", tmp_path, *settings, *without)
    needs = device_terms(setup(device))
    assert needs["the planner (cache.planner)"] == 8192 // rows * line_bytes(
        device.cache, on_gpu=True
    )
    shared = device_terms(setup(job, World(0, 2)))
    assert shared["the cache (cache.bytes)"] == 8192
    assert shared["rows on their way between ranks"] == 1 << 20


def test_a_job_that_does_not_fit_is_refused_before_it_allocates(tmp_path, monkeypatch):
    store = make_store(tmp_path / "store")
    monkeypatch.setattr(devices, "choose_device", lambda *_: torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (5 << 20, 8 << 20))
    settings = ("cache.policy=lookahead", "cache.bytes=4MiB", "loader.staging_bytes=2MiB")
    with pytest.raises(ValueError, match=r"device: the model with .* = 6 MiB, and 5 MiB of cuda:0"):
        train(config(store, tmp_path / "run", "device=cuda", *settings))


def test_ranks_of_one_gpu_share_its_memory(monkeypatch):
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(gpu_memory, "device_terms", lambda *_: {"the cache": 3 << 20})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (5 << 20, 8 << 20))
    monkeypatch.setattr(gpu_memory, "ranks_on_gpu", lambda *_: 1)
    setup = Setup(None, World(), gpu, None, None)
    gpu_memory.check_job_room(setup)
    monkeypatch.setattr(gpu_memory, "ranks_on_gpu", lambda *_: 2)
    with pytest.raises(ValueError, match=r"cache 3 MiB = 3 MiB, and 2\.5 MiB of cuda:0 .* 2 ranks"):
        gpu_memory.check_job_room(setup)


@pytest.mark.parametrize("task", ["node", "link"])
def test_the_topology_takes_room_of_a_cache_only_where_a_gpu_samples(tmp_path, monkeypatch, task):
    path = make_store(tmp_path / "store")
    store = GraphStore.open(path)
    LinkSplits.make(store, valid=0.1, test=0.2)
    job = config(path, tmp_path, f"train.task={task}", "cache.policy=lookahead")
    chosen = LinkPrediction(job) if task == "link" else NodePrediction()
    chosen.check(job, store, 1)
    setup = Setup(job, World(), torch.device("cuda", 0), store, chosen)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (8 << 30, 8 << 30))

    def room(topology_bytes):
        shape = Shape(store.num_nodes, store.row_bytes, topology_bytes, on_gpu=True)
        return gpu_memory.cache_room(setup, shape)

    assert room(0) > 0
    assert room(0) - room(1 << 30) == (1 << 29 if task == "node" else 0)


def test_out_of_memory_in_an_epoch_says_where_and_the_checkpoint_resumes(tmp_path, monkeypatch):
    """As torch reports it: from within a step, and only in this run."""
    store = make_store(tmp_path / "store")
    expected = config(store, tmp_path / "whole")
    train(expected)
    job = config(store, tmp_path / "run", "checkpoint.every_steps=2")
    loss_sum = NodePrediction.loss_sum

    def fails_at_the_third(task, model, batch):
        if batch.iteration == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore words")
        return loss_sum(task, model, batch)

    monkeypatch.setattr(NodePrediction, "loss_sum", fails_at_the_third)
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
