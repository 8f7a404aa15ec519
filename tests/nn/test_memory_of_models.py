"""Memory of models and of their steps."""

import torch

from lsm.core.memory import BatchSize
from lsm.nn.memory import model_bytes, step_bytes


def test_memory_of_a_model():
    assert model_bytes(torch.nn.Linear(3, 5)) == 4 * 4 * (3 * 5 + 5)


def test_a_step_is_measured_and_scaled():
    """Each field of a size may be the one that counts: here edges, four times as many."""
    taken = 64 << 20
    size, tried = BatchSize(10, 400, 10), BatchSize(10, 100, 10)
    measured = step_bytes(lambda: torch.ones(taken // 4).sum().item(), size, tried)
    assert 3.9 * taken < measured < 5 * taken
