"""The step of a plan is that of the split whose batches are largest, also of the test alone."""

from collections import deque

import numpy as np
import pytest

import lsm.train.job
from lsm.data.convert.npy import convert_npy
from lsm.train.trainer import train
from support.store_files import save_npy
from support.training import config

NUM_NODES = 40_000


@pytest.mark.parametrize("num_valid", [0, 5])
def test_a_step_on_many_test_nodes_counts(tmp_path, monkeypatch, num_valid):
    """10,000 test nodes in a batch, against 10 of training: rows of 512 bytes, and layers of 256
    values, for about 40,000 nodes."""
    draw, first = np.random.default_rng(0), 10 + num_valid
    arrays = {
        "edge_index": draw.integers(NUM_NODES, size=(2, 8 * NUM_NODES)),
        "node_feat": draw.standard_normal((NUM_NODES, 128)).astype(np.float32),
        "node_label": draw.integers(3, size=NUM_NODES),
        "train_idx": np.arange(10),
        "val_idx": np.arange(10, first),
        "test_idx": np.arange(first, first + 10_000),
    }
    store = convert_npy(save_npy(tmp_path / "npy", arrays), tmp_path / "store", progress=False)
    plans, plan_memory = deque(maxlen=1), lsm.train.job.plan_memory
    monkeypatch.setattr(lsm.train.job, "plan_memory", lambda setup: note(plan_memory(setup)))

    def note(plan):
        plans.append(plan)
        return plan

    more = "train.epochs=1", "train.select=last", "model.hidden_dim=256", "train.eval.batch_size={}"
    steps = []
    for size in (10, 10_000):
        run = tmp_path / f"run{size}"
        train(config(store.path, run, *more[:-1], more[-1].format(size)))
        steps.append(plans[0].terms["step"])
    assert steps[1] > steps[0] + 20_000 * 256 * 4
