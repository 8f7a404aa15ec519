"""A GPU's kernels submit NVMe reads to emulated controllers and poll their completions."""

import os

import numpy as np
import pytest

from lsm import native
from support.gpus import ON_A_GPU
from support.nvme_rows import open_rows, random_rows, read, write_stripes

pytestmark = ON_A_GPU


@pytest.mark.parametrize("row_bytes", [100, 4096, 9000])
@pytest.mark.parametrize("submit_blocks", [None, 1])
def test_reads(tmp_path, row_bytes, submit_blocks):
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


@pytest.mark.parametrize("row_bytes", [99, 4096, 9000])
@pytest.mark.parametrize("submit_from", ["host", "gpu"])
def test_reads_through_gpu_memory(tmp_path, row_bytes, submit_from):
    """Controllers write to buffers in GPU memory, from where rows come to the host."""
    rows = random_rows(600, row_bytes)
    paths = write_stripes(tmp_path, rows, 2)
    options = {"submit_from": submit_from, "read_to": "gpu", "queue_depth": 24}
    with open_rows(paths, rows, num_threads=2, **options) as storage:
        assert storage.reads_to_gpu
        ids = np.random.default_rng(7).integers(0, 600, 200)
        assert np.array_equal(read(storage, ids), rows[ids])


@pytest.mark.parametrize("into_device_memory", [False, True])
@pytest.mark.parametrize("read_bytes", [4096, 3 * 4096])
def test_waves(read_bytes, into_device_memory):
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


def test_faults(tmp_path):
    """Errors name their LBA, a lost command costs its queue, and later reads succeed."""
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
    faults = {"error_rate": 0.05, "loss_rate": 0.05, "seed": 2, "after": 2}
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
