"""cuFile reads rows to GPU memory: the real one, in its compatibility mode where the machine has no
nvidia-fs."""

import os
import re

import numpy as np
import pytest
import torch

from lsm.storage.gds import GdsStorage
from support.gpus import ON_A_GPU
from support.nvme_rows import random_rows, write_stripes

pytestmark = ON_A_GPU


@pytest.fixture(autouse=True)
def compatibility_mode(tmp_path, monkeypatch):
    pytest.importorskip("cuda.bindings.cufile", reason="cuda-bindings has no cuFile here")
    monkeypatch.setenv("CUFILE_ALLOW_COMPAT_MODE", "true")
    monkeypatch.setenv("CUFILE_LOGFILE_PATH", str(tmp_path / "cufile.log"))


@pytest.mark.parametrize("num_files", [1, 2])
@pytest.mark.parametrize("row_bytes", [512, 3000, 4096])
def test_rows(tmp_path, row_bytes, num_files):
    rows = random_rows(600, row_bytes)
    paths = write_stripes(tmp_path, rows, num_files)
    with GdsStorage(paths, num_rows=len(rows), row_bytes=row_bytes) as storage:
        assert storage.reads_to_gpu
        for seed in range(3):
            ids = np.random.default_rng(seed).integers(0, len(rows), 200)
            out = torch.empty(len(ids), row_bytes, dtype=torch.uint8, device="cuda:0")
            storage.submit(torch.from_numpy(ids), out).wait()
            assert np.array_equal(out.cpu().numpy(), rows[ids])


@pytest.mark.parametrize("first", [1, 100, 511])
@pytest.mark.parametrize("row_bytes", [99, 512, 3000])
def test_rows_in_unaligned_memory(tmp_path, row_bytes, first):
    """Neither the rows' memory nor its places are multiples of a block; bytes next to it stay."""
    rows = random_rows(300, row_bytes)
    paths = write_stripes(tmp_path, rows, 2)
    ids = np.random.default_rng(1).integers(0, len(rows), 70)
    places = np.random.default_rng(2).permutation(len(ids))
    num_bytes = len(ids) * row_bytes
    memory = torch.full((first + num_bytes + 64,), 7, dtype=torch.uint8, device="cuda:0")
    out = memory[first : first + num_bytes].view(len(ids), row_bytes)
    with GdsStorage(paths, num_rows=len(rows), row_bytes=row_bytes) as storage:
        storage.submit(torch.from_numpy(ids), out, torch.from_numpy(places)).wait()
    assert np.array_equal(out.cpu().numpy()[places], rows[ids])
    assert (memory[:first] == 7).all()
    assert (memory[first + num_bytes :] == 7).all()


@pytest.mark.parametrize("row_bytes", [512, 3000, 4096])
def test_rows_past_the_end(tmp_path, row_bytes):
    """They are an error that names the file, and later reads succeed."""
    rows = random_rows(200, row_bytes)
    (path,) = write_stripes(tmp_path, rows, 1)
    with GdsStorage([path], num_rows=len(rows), row_bytes=row_bytes) as storage:
        os.truncate(path, 100 * row_bytes + row_bytes // 2)
        out = torch.empty(3, row_bytes, dtype=torch.uint8, device="cuda:0")
        for last in (100, 150, 199):
            with pytest.raises(OSError, match=re.escape(str(path))):
                storage.submit(torch.tensor([3, last, 50]), out).wait()
        storage.submit(torch.tensor([3, 99, 50]), out).wait()
        assert np.array_equal(out.cpu().numpy(), rows[[3, 99, 50]])
