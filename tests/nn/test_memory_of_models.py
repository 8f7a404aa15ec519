"""Memory of models and of their steps."""

import gc
from functools import partial

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
    steps = [(lambda: torch.ones(taken // 4).sum().item(), tried)]
    measured = step_bytes(steps, size, 8 * taken)
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
    assert step_bytes([(step, size)], size, 8 * taken) > 0.9 * taken
    assert gc.isenabled()
    gc.collect()


@pytest.mark.parametrize(("most", "num_taken"), [(200 << 20, 4), (100 << 20, 3), (1, 2)])
def test_no_step_is_taken_that_steps_on_fewer_nodes_show_to_be_too_large(most, num_taken):
    """Each node takes 1 MiB, and the model's gradients 16. The first two show what the third will
    take, 32 and 48 MiB; the fourth takes 144."""
    taken = []

    def step(num_nodes):
        taken.append(num_nodes)
        torch.ones((16 + num_nodes) << 18).sum().item()

    sizes = [BatchSize(nodes=count, edges=10) for count in (2, 8, 32, 128)]
    steps = [(partial(step, size.nodes), size) for size in sizes]
    found = step_bytes(iter(steps), BatchSize(nodes=256, edges=10), most)
    assert taken == [count for size in sizes[:num_taken] for count in [size.nodes] * 2]
    last = sizes[num_taken - 1].nodes
    scaled = (16 + last) * (256 // last) << 20
    assert 0.9 * scaled < found < 1.1 * scaled
