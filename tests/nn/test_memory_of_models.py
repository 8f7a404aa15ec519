"""Memory of models and of their steps."""

import gc

import pytest
import torch

from lsm.core.memory import BatchSize
from lsm.nn.memory import (
    EMBEDDINGS,
    check_embeddings,
    embedding_bytes,
    model_bytes,
    step_bytes,
    terms,
)


def test_memory_of_a_model():
    assert model_bytes(torch.nn.Linear(3, 5)) == 4 * 4 * (3 * 5 + 5)


def test_embeddings_with_sparse_gradients_count_apart():
    table, dense = torch.nn.Embedding(100, 5, sparse=True), torch.nn.Embedding(10, 5)
    model = torch.nn.ModuleDict({"table": table, "dense": dense})
    assert embedding_bytes(model) == 4 * 100 * 5
    assert model_bytes(model) == 4 * 4 * 10 * 5
    # The table, two moments, the best epoch's, and a checkpoint of the four.
    assert terms(0, 0, 2000).host[EMBEDDINGS] == 16_000
    assert terms(0, 0, 2000).gpu[EMBEDDINGS] == 8000
    # And a gradient of every row, twice while another is added.
    assert terms(0, 0, 2000, accumulates=True).host[EMBEDDINGS] == 22_000
    assert terms(0, 0, 2000, accumulates=True).gpu[EMBEDDINGS] == 14_000


def test_embeddings_that_do_not_fit_are_named():
    check_embeddings(1 << 20, 8 << 20)
    with pytest.raises(ValueError, match=r"memory.bytes: .* the embeddings of types without feat"):
        check_embeddings(1 << 20, (8 << 20) - 1)
    with pytest.raises(ValueError, match=r"expected room for .* 11 MiB.* got 8 MiB"):
        check_embeddings(1 << 20, 8 << 20, accumulates=True)


def test_a_step_is_measured_and_scaled():
    """Each field of a size may be the one that counts: here edges, four times as many."""
    taken = 64 << 20
    size, tried = BatchSize(10, 400, 10), BatchSize(10, 100, 10)
    measured = step_bytes(lambda: torch.ones(taken // 4).sum().item(), size, tried)
    assert 3.9 * taken < measured < 5 * taken


def test_garbage_that_a_step_would_collect_hides_no_memory():
    """The first step leaves 64 MiB in a cycle; the second, which is measured, takes as much, and
    objects enough for a collection before."""
    taken, size, is_first = 64 << 20, BatchSize(10, 100, 10), True

    def step():
        nonlocal is_first
        objects = [[] for _ in range(100_000)]
        taken_now = [torch.ones(taken // 4)]
        if is_first:
            is_first = False
            taken_now.append(taken_now)
        del objects, taken_now

    gc.collect()
    assert step_bytes(step, size, size) > 0.9 * taken
    assert gc.isenabled()
    gc.collect()
