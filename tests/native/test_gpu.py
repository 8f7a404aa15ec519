"""Kernels on a GPU, against the host: what the twins' tests assert. Needs no more than torch, NumPy
and the tests' own packages, so that it can be run under compute-sanitizer (`make test-gpu
SANITIZER=memcheck`)."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from lsm import native
from lsm.cache.planner import POLICIES, VICTIM_MODES, Source
from lsm.core.device import gpu_problem
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler, place_topology
from lsm.storage.engine import Storage
from support.gpu_executor import check_random_plans, check_random_targets
from support.graphs import assert_same, random_graph
from support.native_plans import assert_same_plans, config_of, skewed_batches
from support.nvme_rows import open_rows, random_rows, read, write_stripes

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
    check_random_targets(tmp_path, 8, row_bytes, prefetch_rows, device=0, num_plans=20)


def large_batches(num_batches=6, num_ids=30_000, num_nodes=100_000):
    rng = np.random.default_rng(1)
    drawn = [
        (num_nodes * rng.random(2 * num_ids) ** 3).astype(np.int64) for _ in range(num_batches)
    ]
    return [native.unique_relabel(torch.from_numpy(ids))[0][:num_ids].clone() for ids in drawn]


@pytest.mark.parametrize("policy", ["lookahead", "hybrid", "s3fifo", "lru"])
def test_plans_of_many_blocks(policy):
    """Enough ids that all of the GPU is busy, and that sets have many rows that ask."""
    settings = config_of(policy, "pool", 8192, 32, window=3)
    assert assert_same_plans(settings, large_batches(), "device") > 5_000


@pytest.mark.parametrize("row_bytes", [100, 4096])
@pytest.mark.parametrize("staging", ["gather", "copy"])
def test_moves_of_many_blocks(tmp_path, row_bytes, staging):
    num_rows = 20_000
    path = tmp_path / "row.bin"  # an executor asks for a storage; nothing is read from it
    path.write_bytes(bytes(4096))
    none, rng = torch.empty(0, dtype=torch.int64), np.random.default_rng(2)
    with Storage([path], num_rows=1, row_bytes=row_bytes, engine="posix") as storage:
        executor = native.GpuExecutor(
            storage.handle(),
            num_lines=num_rows,
            victim_slots=0,
            prefetch_rows=0,
            static_ids=none,
            constant_ids=none,
            timeout_secs=60.0,
            device=0,
        )
    executor.set_staging(staging)
    names = ("evict_line", "evict_slot", "evict_word", "spill_position", "spill_slot", "spill_word")
    names += ("tag_slot", "tag_word")
    lines = torch.zeros(num_rows, row_bytes, dtype=torch.uint8)
    for iteration, share in enumerate((1.0, 0.5, 0.01)):
        is_read = torch.from_numpy(rng.random(num_rows) < share)
        slot = torch.from_numpy(rng.permutation(num_rows))
        staged = torch.from_numpy(rng.integers(0, 256, (num_rows, row_bytes), np.uint8))
        expected = torch.where(is_read[:, None], staged, lines[slot])
        out = torch.empty(num_rows, row_bytes, dtype=torch.uint8, device="cuda:0")
        pinned = staged.pin_memory()
        torch.cuda.synchronize()
        inserted = is_read.nonzero().view(-1)
        executor.replay(
            iteration=iteration,
            source=torch.where(is_read, Source.STORAGE, Source.CACHE).to(torch.uint8),
            slot=torch.where(is_read, -1, slot),
            insert_position=inserted,
            insert_line=slot[inserted],
            **dict.fromkeys(names, none),
            staged=pinned,
            out=out,
        )
        executor.synchronize()
        assert torch.equal(out.cpu(), expected)
        lines[slot[inserted]] = staged[inserted]


@pytest.mark.parametrize("locks", ["none", "device", "system"])
@pytest.mark.parametrize("dim", [1, 4, 1030])
def test_gathers(locks, dim):
    source = torch.arange(50 * dim, dtype=torch.int32, device="cuda:0").view(50, dim)
    ids = torch.randint(50, (20_000,), generator=torch.Generator().manual_seed(dim)).to("cuda:0")
    out = torch.zeros(len(ids), dim, dtype=torch.int32, device="cuda:0")
    references = torch.zeros(50, dtype=torch.int32, device="cuda:0")
    stream = torch.cuda.current_stream().cuda_stream
    native.gather_on(source, ids, out, references, locks, 0, stream)
    assert torch.equal(out, source[ids])
    assert not references.any()


def test_a_gather_in_a_graph():
    """It neither waits nor allocates, so it can be captured, and replayed over other ids."""
    source = torch.arange(4096, dtype=torch.int32, device="cuda:0").view(64, 64)
    ids = torch.zeros(1000, dtype=torch.int64, device="cuda:0")
    out = torch.empty(1000, 64, dtype=torch.int32, device="cuda:0")
    native.gather_on(source, ids, out, None, "none", 0, 0)  # kernels are loaded at their first use
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        native.gather_on(source, ids, out, None, "none", 0, stream.cuda_stream)
    for seed in range(3):
        ids.copy_(torch.randint(64, (1000,), generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, source[ids])


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


@pytest.mark.parametrize("output", ["cpu", "cuda:0"])
def test_samples_at_the_same_time(output):
    graph = random_graph(30_000, 200_000)
    placed = place_topology(graph, "device", torch.device("cuda", 0))
    sampler = DeviceNeighborSampler(
        *(graph, placed, [10, 5], 5), device=0, output=output, num_slots=4
    )
    host = NeighborSampler(graph, [10, 5], 5)
    seeds = torch.randperm(30_000, generator=torch.Generator().manual_seed(0))[:500]

    def sample(iteration):
        return sampler.sample(seeds, epoch=0, iteration=iteration)

    with ThreadPoolExecutor(6) as threads:
        for iteration, sampled in enumerate(threads.map(sample, range(40))):
            expected = host.sample(seeds, epoch=0, iteration=iteration)
            assert torch.equal(sampled.n_id.cpu(), expected.n_id)
            assert torch.equal(sampled.edge_index.cpu(), expected.edge_index)


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


@pytest.mark.parametrize("into_device_memory", [False, True])
@pytest.mark.parametrize("read_bytes", [4096, 3 * 4096])
def test_nvme_waves(read_bytes, into_device_memory):
    """Both ways of submitting, with PRP lists and without; the measurement compares every byte."""
    rates = native.measure_nvme_waves(
        num_blocks=[1, 16],
        read_bytes=read_bytes,
        num_reads=4096,
        into_device_memory=into_device_memory,
        rounds=2,
        device=0,
    )
    assert [row["thread_blocks"] for row in rates] == [1, 16]
    for row in rates:
        assert row["split_reads_per_s"] > 0
        assert row["synchronous_reads_per_s"] > 0


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
    paths = write_stripes(tmp_path, rows, 1)
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
