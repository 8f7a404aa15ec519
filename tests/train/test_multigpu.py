"""Training on several GPUs: gradients over NCCL, caches of their own or one that they share."""

import pytest

from lsm.core.device import gpu_problem
from support.training import losses, make_store, overrides, run_job

PROBLEM = gpu_problem(1)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.multigpu,
    pytest.mark.skipif(PROBLEM is not None, reason=f"no two GPUs: {PROBLEM}"),
]


COMM = {
    "independent": ("comm.mode=independent",),
    "auto": (),
    "nccl": ("comm.transport=nccl",),
    "gloo": ("comm.transport=gloo",),
    "partition-aware": ("comm.mode=partition-aware", "cache.score=in_degree"),
}


@pytest.mark.parametrize("comm", COMM)
def test_losses_are_those_of_the_host(tmp_path, comm):
    store = make_store(tmp_path / "store")
    settings = ("model.dropout=0", "cache.policy=lookahead", "cache.bytes=10KB", "cache.window=4")
    for device in ("cpu", "cuda"):
        shared = COMM[comm] if device == "cuda" else ()
        more = overrides(store, tmp_path / device, *settings, *shared)
        done = run_job(2, "-m", "lsm", "train", "base", *more, f"device={device}")
        assert done.returncode == 0, done.stderr
    expected = [loss for *_, loss in losses(tmp_path / "cpu")]
    # Ten steps of float32: rounding differs in the last bits and grows a little with every step.
    assert [loss for *_, loss in losses(tmp_path / "cuda")] == pytest.approx(expected, rel=1e-3)
