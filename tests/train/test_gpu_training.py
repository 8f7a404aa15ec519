"""Training on a GPU, against training on the host."""

import pytest

from lsm.train.trainer import train
from support.gpus import ON_A_GPU
from support.training import config, losses, make_store

pytestmark = ON_A_GPU


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
