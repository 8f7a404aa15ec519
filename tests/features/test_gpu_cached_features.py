"""The loader whose cache is GPU memory, on a GPU. Needs no more than torch, NumPy, pydantic and
the tests' own packages, so that it can be run under compute-sanitizer (`make test-gpu
SANITIZER=memcheck`)."""

import pytest
import torch

from lsm.features.open import open_features
from lsm.features.tiers_gpu import GpuOptions
from lsm.storage.options import StorageOptions
from support.cached_features import ROW_BYTES, batches, deliver, options
from support.gpus import ON_A_GPU

pytestmark = ON_A_GPU


@pytest.mark.parametrize("staging", ["gather", "copy", "auto"])
@pytest.mark.parametrize("planner", ["host", "device", "auto"])
def test_rows_of_a_loader(row_store, rows, planner, staging):
    settings = options(victim_mode="pool", victim_bytes=60 * ROW_BYTES)
    with open_features(
        row_store,
        settings,
        device=torch.device("cuda", 0),
        storage=StorageOptions(engine="posix"),
        gpu=GpuOptions(planner=planner, staging=staging, prefetch_rows=30),
    ) as loader:
        for ids, _, delivered in deliver(loader, batches(40)):
            assert delivered.is_cuda
            assert torch.equal(delivered.cpu(), torch.from_numpy(rows)[ids])


def test_rows_that_a_stream_of_the_consumer_still_uses(row_store, rows):
    """Their memory goes to no later batch before the stream has read them."""
    stream, found, requests = torch.cuda.Stream(0), [], batches(40)
    with (
        open_features(
            row_store,
            options(),
            device=torch.device("cuda", 0),
            storage=StorageOptions(engine="posix"),
            gpu=GpuOptions(),
        ) as loader,
        torch.cuda.stream(stream),
    ):
        for _, _, delivered in deliver(loader, requests):
            torch.cuda._sleep(20_000_000)  # cycles: the stream reads long after the batch has gone
            found.append(delivered.clone())
            del delivered
    stream.synchronize()
    for ids, copied in zip(requests, found, strict=True):
        assert torch.equal(copied.cpu(), torch.from_numpy(rows)[ids])
