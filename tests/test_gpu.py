"""GPU code on a GPU, against the host: what the twins' tests assert, with the kernels."""

import os

import numpy as np
import pytest
import torch
from graphs import assert_same, random_graph
from test_device_executor import check_random_plans
from test_nvme import open_rows, random_rows, read, write_stripes
from test_planner_twin import assert_same_plans, config_of, skewed_batches
from training import config, losses, make_store

from lsm import native
from lsm.cache import POLICIES, VICTIM_MODES
from lsm.device import gpu_problem
from lsm.device_sampler import DeviceNeighborSampler, place_topology
from lsm.sampler import NeighborSampler
from lsm.train import train

PROBLEM = gpu_problem(0)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(PROBLEM is not None, reason=f"no GPU: {PROBLEM}"),
]


@pytest.mark.parametrize("mode", VICTIM_MODES)
@pytest.mark.parametrize("policy", POLICIES)
def test_plans(policy, mode):
    for num_lines, ways in ((96, 12), (128, 64), (90, 45), (3200, 32)):
        settings = config_of(policy, mode, num_lines, ways, window=9, seed=3)
        assert_same_plans(settings, skewed_batches(seed=0), "device")


@pytest.mark.parametrize("row_bytes", [1, 6, 100, 16, 512, 4096, 9216])
@pytest.mark.parametrize("prefetch_rows", [0, 2, 50])
def test_moves(tmp_path, row_bytes, prefetch_rows):
    check_random_plans(tmp_path, 7, row_bytes, prefetch_rows, device=0, num_plans=20)


@pytest.mark.parametrize("placement", ["uva", "device"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("fanouts", [[10, 5], [100, 2], [3, 0, 4], [-1, 2]])
def test_samples(placement, dtype, fanouts):
    graph = random_graph(30_000, 200_000, dtype=dtype)
    placed = place_topology(graph, placement, torch.device("cuda", 0))
    sampler = DeviceNeighborSampler(graph, placed, fanouts, 5, device=0)
    host = NeighborSampler(graph, fanouts, 5)
    for iteration in range(3):
        generator = torch.Generator().manual_seed(iteration)
        seeds = torch.randperm(30_000, generator=generator)[:500]
        sampled = sampler.sample(seeds, epoch=0, iteration=iteration)
        assert_same(sampled, host.sample(seeds, epoch=0, iteration=iteration))


@pytest.mark.parametrize("row_bytes", [100, 4096, 9000])
@pytest.mark.parametrize("submit_blocks", [None, 1])
def test_nvme_reads(tmp_path, row_bytes, submit_blocks):
    """Many times the queue's depth, over two controllers, so that queues wrap; rows that straddle
    blocks; transfers with and without PRP lists."""
    rows = random_rows(3000, row_bytes)
    paths = write_stripes(tmp_path, rows, 2)
    options = {"submit_from": "gpu", "submit_blocks": submit_blocks, "queue_depth": 48}
    emulation = {"num_controllers": 2, "reorder": True, "seed": 1}
    with open_rows(paths, rows, num_threads=2, emulation=emulation, **options) as storage:
        for seed in range(3):
            ids = np.random.default_rng(seed).integers(0, 3000, 2000)
            assert np.array_equal(read(storage, ids), rows[ids])


def test_nvme_faults(tmp_path):
    """What fails says so with its LBA, a lost command costs its queue, and reading goes on."""
    rows = random_rows(64, 4096)
    paths = write_stripes(tmp_path, rows, 1)
    with open_rows(
        paths, rows, submit_from="gpu", queue_depth=1, command_timeout_secs=1.0
    ) as storage:
        for _ in range(2):
            storage.inject_fault(native.Fault.stall)
            with pytest.raises(TimeoutError, match=r"LBA 40 .* did not complete within 1 s"):
                read(storage, [5])
            assert np.array_equal(read(storage, [1, 9, 30]), rows[[1, 9, 30]])
        os.truncate(paths[0], 32 * 4096)
        with pytest.raises(OSError, match=r"LBA 480 of namespace 1 .*unrecovered read error"):
            read(storage, [60])
    faults = {"error_rate": 0.05, "loss_rate": 0.05, "seed": 2}
    with open_rows(
        *(paths, rows), emulation=faults, submit_from="gpu", command_timeout_secs=1.0
    ) as storage:
        ends = set()
        for row in range(30):
            try:
                assert np.array_equal(read(storage, [row]), rows[[row]])
                ends.add("right")
            except (OSError, TimeoutError) as error:
                ends.add(type(error).__name__)
        assert "right" in ends
        assert len(ends) > 1


def test_training_over_nvme(tmp_path):
    store = make_store(tmp_path / "store")
    settings = ("device=cuda", "storage.engine=nvme", "model.dropout=0")
    host = train(config(store, tmp_path / "host", *settings))
    gpu = train(config(store, tmp_path / "gpu", *settings, "storage.submit_from=gpu"))
    assert gpu["bytes_read"] == host["bytes_read"]
    expected = [loss for *_, loss in losses(tmp_path / "host")]
    # The order of the GPU's sums is not the same from run to run.
    assert [loss for *_, loss in losses(tmp_path / "gpu")] == pytest.approx(expected, rel=1e-3)


CACHES = {
    "none": ("cache.policy=none",),
    "lookahead": ("cache.policy=lookahead", "cache.bytes=10KB", "cache.window=4"),
    "pvp": (
        *("cache.policy=hybrid", "cache.bytes=10KB", "cache.window=4", "cache.score=in_degree"),
        *("cache.victim.mode=pool", "cache.victim.bytes=5KB", "cache.planner=device"),
    ),
}


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("placement", ["host", "uva", "device"])
def test_training(tmp_path, cache, placement):
    """The same plans, so the same bytes; losses differ by the order of the GPU's sums."""
    store = make_store(tmp_path / "store")
    settings = (*CACHES[cache], "model.dropout=0")
    host = train(config(store, tmp_path / "host", "device=cpu", *settings))
    gpu = train(
        config(store, tmp_path / "gpu", "device=cuda", f"topology.placement={placement}", *settings)
    )
    assert gpu["bytes_read"] == host["bytes_read"]
    expected = [loss for *_, loss in losses(tmp_path / "host")]
    # Ten steps of float32: rounding differs in the last bits and grows a little with every step.
    assert [loss for *_, loss in losses(tmp_path / "gpu")] == pytest.approx(expected, rel=1e-3)
