"""cuFile reads rows to GPU memory: the real one, in its compatibility mode where the machine has no
nvidia-fs."""

import numpy as np
import pytest
import torch

from lsm.storage.gds import GdsStorage
from support.gpus import ON_A_GPU
from support.nvme_rows import random_rows, write_stripes

pytestmark = ON_A_GPU


@pytest.mark.parametrize("num_files", [1, 2])
@pytest.mark.parametrize("row_bytes", [512, 3000, 4096])
def test_rows(tmp_path, monkeypatch, row_bytes, num_files):
    pytest.importorskip("cuda.bindings.cufile", reason="cuda-bindings has no cuFile here")
    monkeypatch.setenv("CUFILE_ALLOW_COMPAT_MODE", "true")
    monkeypatch.setenv("CUFILE_LOGFILE_PATH", str(tmp_path / "cufile.log"))
    rows = random_rows(600, row_bytes)
    paths = write_stripes(tmp_path, rows, num_files)
    with GdsStorage(paths, num_rows=len(rows), row_bytes=row_bytes) as storage:
        assert storage.reads_to_gpu
        for seed in range(3):
            ids = np.random.default_rng(seed).integers(0, len(rows), 200)
            out = torch.empty(len(ids), row_bytes, dtype=torch.uint8, device="cuda:0")
            storage.submit(torch.from_numpy(ids), out).wait()
            assert np.array_equal(out.cpu().numpy(), rows[ids])
