"""A GPU's planner makes the host's plans."""

import numpy as np
import pytest
import torch

from lsm import native
from lsm.cache.planner import POLICIES, VICTIM_MODES
from support.gpus import ON_A_GPU
from support.native_plans import (
    assert_same_plans,
    assert_same_plans_of_large_pools,
    config_of,
    skewed_batches,
)

pytestmark = ON_A_GPU


@pytest.mark.parametrize("mode", VICTIM_MODES)
@pytest.mark.parametrize("policy", POLICIES)
def test_plans(policy, mode):
    for num_lines, ways in ((96, 12), (128, 64), (90, 45), (3200, 32)):
        settings = config_of(policy, mode, num_lines, ways, window=9, seed=3)
        assert_same_plans(settings, skewed_batches(seed=0), "device")


def test_large_pools():
    assert_same_plans_of_large_pools("device")


def large_batches(num_batches=6, num_ids=30_000, num_nodes=100_000):
    rng = np.random.default_rng(1)
    drawn = [
        (num_nodes * rng.random(2 * num_ids) ** 3).astype(np.int64) for _ in range(num_batches)
    ]
    return [native.unique_relabel(torch.from_numpy(ids))[0][:num_ids].clone() for ids in drawn]


@pytest.mark.parametrize("policy", ["lookahead", "hybrid", "s3fifo", "lru"])
def test_plans_of_many_blocks(policy):
    """Enough ids that all of the GPU is busy, and that sets have many rows that ask."""
    settings = config_of(policy, "pool", 8192, 32, window=3)
    assert assert_same_plans(settings, large_batches(), "device") > 5_000
