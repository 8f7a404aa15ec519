"""The loader whose cache is GPU memory delivers the rows of storage and makes the host's plans:
here with the twins of the GPU's planner, executor and sampler; so does a whole training run."""

import pytest
import torch

from lsm import native
from lsm.cache.tier_sizes import TierSizes
from lsm.core.counters import COUNTERS
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler
from lsm.storage.options import StorageOptions
from lsm.train import loaders
from lsm.train import rows as rows_of_job
from lsm.train.trainer import train
from support.cached_features import ROW_BYTES, batches, deliver, hot_scores, open_loader, options
from support.gpu_twin import twin_opener
from support.training import config, losses, make_store


@pytest.fixture(scope="module")
def store(row_store):
    return row_store


def open_twin_loader(store, planner="device", prefetch_rows=30, staging="auto", **changes):
    opener = twin_opener(planner=planner, prefetch_rows=prefetch_rows, staging=staging)
    return opener(
        store,
        options(**changes),
        scores=hot_scores() if "score" in changes else None,
        storage=StorageOptions(engine="posix"),
    )


@pytest.mark.parametrize(("planner", "staging"), [("auto", "copy"), ("device", "auto")])
@pytest.mark.parametrize("victim_mode", ["none", "queues", "pool"])
def test_rows_and_counters_are_those_of_the_host(store, rows, victim_mode, planner, staging):
    requests = batches(25)
    changes = {
        "victim_mode": victim_mode,
        "victim_bytes": 60 * ROW_BYTES,
        "constant_bytes": 20 * ROW_BYTES,
        "static_bytes": 10 * ROW_BYTES,
        "score": "hot",
    }
    with (
        open_loader(store, **changes) as host,
        open_twin_loader(store, planner, staging=staging, **changes) as loader,
    ):
        for _ in deliver(host, requests):
            pass
        for ids, _, delivered in deliver(loader, requests):
            assert torch.equal(delivered, torch.from_numpy(rows)[ids])
        expected, stats = host.stats(), loader.stats()
        for name in COUNTERS:
            assert stats[f"cache_{name}"] == expected[f"cache_{name}"], name
        if victim_mode != "none":
            assert 0 < stats["cache_victim_prefetched"] <= stats["cache_victim_hits"]


def test_which_planner_goes_on_is_found_out_once(store, rows):
    requests = batches(20)
    with open_twin_loader(store, "auto") as loader:
        assert loader.planner.place == "auto"
        for ids, _, delivered in deliver(loader, requests):
            assert torch.equal(delivered, torch.from_numpy(rows)[ids])
        found = loader.planner.place
        assert found in ("host", "device")
        loader.announce(requests[0])
        loader.forget_announced()  # makes a new planner
        for ids, _, delivered in deliver(loader, requests):
            assert torch.equal(delivered, torch.from_numpy(rows)[ids])
        assert loader.planner.place == found


def test_batches_that_are_forgotten(store, rows):
    requests = batches(12)
    with open_twin_loader(store, victim_mode="pool", victim_bytes=60 * ROW_BYTES) as loader:
        for ids in requests[:6]:
            loader.announce(ids)
        loader.prefetch(requests[0]).result()
        loader.forget_announced()
        for ids, _, delivered in deliver(loader, requests):
            assert torch.equal(delivered, torch.from_numpy(rows)[ids])


def test_a_planner_that_is_not(store):
    with pytest.raises(ValueError, match="planner: expected one of auto, host, device, got 'gpu'"):
        open_twin_loader(store, "gpu")


def test_a_cache_in_gpu_memory_takes_none_of_the_host(monkeypatch):
    free = 100 * ROW_BYTES
    monkeypatch.setattr("lsm.distributed.machine_share.available_bytes", lambda: free)
    large = {"bytes": 1000 * ROW_BYTES, "score": "hot", "static_bytes": 200 * ROW_BYTES}
    TierSizes.of(options(**large), ROW_BYTES, in_gpu_memory=True)
    with pytest.raises(ValueError, match=r"cache\.bytes: .* of host memory are free"):
        TierSizes.of(options(**large), ROW_BYTES)
    constant = options(constant_bytes=101 * ROW_BYTES, **large)
    with pytest.raises(ValueError, match=r"^cache\.constant\.bytes: cache\.constant\.bytes "):
        TierSizes.of(constant, ROW_BYTES, in_gpu_memory=True)


def test_training_takes_the_same_steps(tmp_path, monkeypatch):
    graph = make_store(tmp_path / "store")
    settings = (
        "cache.policy=lookahead",
        "cache.bytes=10KB",
        "cache.window=4",
        "cache.victim.mode=pool",
        "cache.victim.bytes=5KB",
        "sampler.kind=labor",
        "sampler.batch_dependency=3",
    )
    train(config(graph, tmp_path / "host", "storage.engine=posix", *settings))
    monkeypatch.setattr(
        rows_of_job,
        "open_features",
        twin_opener(planner="device", prefetch_rows=50),
    )
    monkeypatch.setattr(
        loaders,
        "_gpu_samplers",
        lambda _setup, topology: (
            lambda drawing: DeviceNeighborSampler(
                topology,
                topology,
                drawing.num_neighbors,
                sampling=drawing.sampling,
                device=native.TWIN_BACKWARDS,
            )
        ),
    )
    train(config(graph, tmp_path / "twin", "storage.engine=posix", *settings))
    assert losses(tmp_path / "twin") == losses(tmp_path / "host")
