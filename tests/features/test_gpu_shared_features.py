"""A cache that ranks share in the memory of GPUs, on GPUs: the assertions of its twins' tests."""

import pytest
import torch

from lsm import native
from lsm.core.device import gpu_problem
from support.gpus import SKIP_WITHOUT_GPU
from support.shared_gpu_features import check_both, check_killed, exchange_case
from support.training import losses, overrides, run_job

NUM_RANKS = 3

SECOND_PROBLEM = gpu_problem(1)
on_two_gpus = pytest.mark.skipif(
    SECOND_PROBLEM is not None, reason=f"no two GPUs: {SECOND_PROBLEM}"
)


def skip_without_peer_access(transport):
    for index, gpu in ((0, 1), (1, 0)):
        problem = native.peer_access_problem(index, native.find_cuda().gpus[gpu].bus_id)
        if transport == "ipc" and problem:
            pytest.skip(problem)


@pytest.mark.gpu
@SKIP_WITHOUT_GPU
@pytest.mark.parametrize("transport", ["ipc", "gloo"])
@pytest.mark.parametrize("policy", ["lookahead", "hybrid"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_that_share_a_gpu(ranks, store, size, policy, transport):
    check_both(ranks, store, size, transport, policy, num_gpus=1)


@pytest.mark.gpu
@SKIP_WITHOUT_GPU
@pytest.mark.parametrize("transport", ["ipc", "gloo"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dim", [1, 3, 1024])
def test_any_row_format(ranks, dim, dtype, transport):
    ranks.check(exchange_case, 3, transport, dim, dtype, 1)


@pytest.mark.gpu
@SKIP_WITHOUT_GPU
@pytest.mark.parametrize("transport", ["ipc", "gloo"])
def test_an_owner_that_is_killed_in_an_epoch_is_named(few_ranks, store, transport):
    check_killed(few_ranks, store, transport, num_gpus=1)


@pytest.mark.slow
@pytest.mark.gpu
@SKIP_WITHOUT_GPU
def test_a_job_whose_ranks_share_a_gpu(store, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    settings = ("model.dropout=0", "cache.policy=lookahead", "cache.bytes=10KB", "cache.window=4")
    for device in ("cpu", "cuda"):
        more = overrides(store, tmp_path / device, *settings)
        done = run_job(2, "-m", "lsm", "train", "base", *more, f"device={device}")
        assert done.returncode == 0, done.stderr
    expected = [loss for *_, loss in losses(tmp_path / "cpu")]
    assert [loss for *_, loss in losses(tmp_path / "cuda")] == pytest.approx(expected, rel=1e-3)


@pytest.mark.gpu
@SKIP_WITHOUT_GPU
def test_nccl_needs_a_gpu_for_each_rank(ranks):
    for answer in ranks.run(exchange_case, 3, "nccl", 4, torch.float32, 1):
        with pytest.raises(
            RuntimeError, match=r"comm\.transport=nccl: rank 0 and rank 1 share one"
        ):
            raise answer


@pytest.mark.gpu
@SKIP_WITHOUT_GPU
def test_memory_that_the_default_stream_uses_is_not_given_out():
    pool = native.GpuPool(0, 1, 30.0)
    buffer = pool.take(pool.size)
    rows, used = native.as_device_tensor(buffer, torch.uint8), torch.cuda.Event()
    rows.zero_()  # where CUDA loads a kernel, at its first launch, it waits for others
    torch.cuda.synchronize()
    torch.cuda._sleep(1_000_000_000)  # clock cycles: half a second
    rows.zero_()
    used.record()
    size = pool.size
    del buffer, rows
    assert not used.query()
    pool.take(size)
    assert used.query()
    assert pool.size == size


@pytest.mark.multigpu
@on_two_gpus
@pytest.mark.parametrize("transport", ["ipc", "nccl", "gloo"])
@pytest.mark.parametrize("policy", ["lookahead", "hybrid"])
def test_ranks_with_a_gpu_each(ranks, store, policy, transport):
    skip_without_peer_access(transport)
    check_both(ranks, store, 2, transport, policy, num_gpus=2)


@pytest.mark.multigpu
@on_two_gpus
def test_an_owner_on_another_gpu_that_is_killed_in_an_epoch_is_named(few_ranks, store):
    skip_without_peer_access("ipc")
    check_killed(few_ranks, store, "ipc", num_gpus=2)


@pytest.mark.multigpu
@on_two_gpus
@pytest.mark.parametrize("transport", ["ipc", "nccl", "gloo"])
@pytest.mark.parametrize("dim", [1, 3, 1024])
def test_any_row_format_between_gpus(ranks, dim, transport):
    skip_without_peer_access(transport)
    ranks.check(exchange_case, 2, transport, dim, torch.float32, 2)
