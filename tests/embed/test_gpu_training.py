"""Embeddings trained on a GPU: the same bits in every run, and as good as on the host."""

import pytest

from lsm.embed.trainer import train
from support.gpus import ON_A_GPU
from support.triples import config, tables

pytestmark = ON_A_GPU


STORED = [("stored", name) for name in ("distmult", "complex", "transe_l1", "transe_l2", "rotate")]
FUSED = [("fused", "complex"), ("fused", "transe_l2")]


@pytest.mark.parametrize(("gpu_scores", "model"), STORED + FUSED)
@pytest.mark.parametrize("partitions", [1, 6])
def test_a_run_repeats_bit_for_bit(store, tmp_path, gpu_scores, model, partitions):
    method = (f"embed.model={model}", f"embed.gpu_scores={gpu_scores}")
    more = (*method, f"embed.partitions={partitions}", "device=cuda")
    runs = [tmp_path / name for name in ("first", "second")]
    for run in runs:
        train(config(store, run, *more))
    assert tables(runs[0]) == tables(runs[1])


def test_quality_is_that_of_the_host(store, tmp_path):
    more = ("train.epochs=30", "embed.dim=32", "embed.init_scale=0.1", "embed.partitions=4")
    found = [
        train(config(store, tmp_path / device, *more, f"device={device}"))["test_mrr"]
        for device in ("cpu", "cuda")
    ]
    # Different negatives, of the same distribution.
    assert found[1] == pytest.approx(found[0], abs=0.1)
