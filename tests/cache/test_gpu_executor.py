"""A GPU's executor moves exactly the rows that a plan names."""

import numpy as np
import pytest
import torch

from lsm import native
from lsm.cache.planner import Source
from lsm.storage.engine import Storage
from support.gpu_executor import check_random_plans, check_random_targets
from support.gpus import ON_A_GPU

pytestmark = ON_A_GPU


@pytest.mark.parametrize("row_bytes", [1, 6, 100, 16, 512, 4096, 9216])
@pytest.mark.parametrize("prefetch_rows", [0, 2, 50])
def test_moves(tmp_path, row_bytes, prefetch_rows):
    check_random_plans(tmp_path, 7, row_bytes, prefetch_rows, device=0, num_plans=20)
    check_random_targets(tmp_path, 8, row_bytes, prefetch_rows, device=0, num_plans=20)


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
            static_rows=none,
            constant_rows=none,
            timeout_secs=60.0,
            device=0,
        )
    executor.set_staging(staging)
    lines = torch.zeros(num_rows, row_bytes, dtype=torch.uint8)
    for iteration, share in enumerate((1.0, 0.5, 0.01)):
        is_read = torch.from_numpy(rng.random(num_rows) < share)
        slot = torch.from_numpy(rng.permutation(num_rows))
        staged = torch.from_numpy(rng.integers(0, 256, (num_rows, row_bytes), np.uint8))
        expected = torch.where(is_read[:, None], staged, lines[slot])
        out = torch.empty(num_rows, row_bytes, dtype=torch.uint8, device="cuda:0")
        pinned = staged[is_read].pin_memory()
        torch.cuda.synchronize()
        inserted = is_read.nonzero().view(-1)
        plan = native.Plan(
            iteration=iteration,
            source=torch.where(is_read, Source.STORAGE, Source.CACHE).to(torch.uint8),
            moves={
                "slot": torch.where(is_read, -1, slot),
                "insert_position": inserted,
                "insert_line": slot[inserted],
            },
        )
        executor.replay(plan, staged=pinned, out=out)
        executor.synchronize()
        assert torch.equal(out.cpu(), expected)
        lines[slot[inserted]] = staged[inserted]
