"""Updates are those of torch.optim.Adagrad; gradients of one row are summed first."""

import pytest
import torch

from lsm.embed.adagrad import initial_rows, update_all_rows, update_rows
from lsm.embed.options import EmbedOptions

DIM, ROWS = 5, 8


def gradients(step, count=30):
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(ROWS - 1, (count,), generator=generator)  # the last row has none
    return ids, torch.randn(count, DIM, generator=generator)


def test_adagrad_of_elements_is_that_of_torch():
    options = EmbedOptions(model="distmult", dim=DIM, lr=0.3, eps=1e-8, init_scale=1.0)
    rows = initial_rows(options, ROWS, seed=3)
    expected = torch.nn.Parameter(rows[:, :DIM].clone())
    optimizer = torch.optim.Adagrad([expected], lr=0.3, eps=1e-8)
    for step in range(5):
        ids, grads = gradients(step)
        update_rows(options, rows, ids, grads)
        expected.grad = torch.zeros(ROWS, DIM).index_add_(0, ids, grads)
        optimizer.step()
    torch.testing.assert_close(rows[:, :DIM], expected.detach())
    torch.testing.assert_close(rows[:, DIM:], optimizer.state[expected]["sum"])


def test_adagrad_of_rows_has_one_sum_of_mean_squares():
    options = EmbedOptions(model="distmult", dim=DIM, optimizer="row_adagrad")
    rows = initial_rows(options, ROWS, seed=3)
    assert rows.shape == (ROWS, DIM + 1)
    embedding, state = rows[:, :DIM].double(), torch.zeros(ROWS, dtype=torch.float64)
    for step in range(5):
        ids, grads = gradients(step)
        update_rows(options, rows, ids, grads)
        for row in set(ids.tolist()):
            total = grads[ids == row].double().sum(0)
            state[row] += (total**2).mean()
            embedding[row] -= options.lr * total / (state[row].sqrt() + options.eps)
    torch.testing.assert_close(rows[:, :DIM].double(), embedding, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(rows[:, DIM].double(), state, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adagrad", "row_adagrad"])
def test_all_rows_are_updated_as_single_ones_are(optimizer):
    options = EmbedOptions(dim=6, optimizer=optimizer)
    rows = initial_rows(options, ROWS, seed=1)
    some = rows.clone()
    grads = torch.randn(ROWS, 6)
    grads[2] = 0
    update_all_rows(options, rows, grads)
    update_rows(options, some, torch.arange(ROWS), grads)
    assert torch.equal(rows, some)
    assert torch.equal(rows[2], initial_rows(options, ROWS, seed=1)[2])


def test_initial_rows_have_the_scale_and_no_state():
    options = EmbedOptions(dim=64, init_scale=0.5)
    rows = initial_rows(options, 500, seed=9)
    assert rows[:, :64].std().item() == pytest.approx(0.5, rel=0.02)
    assert not rows[:, 64:].any()
    assert torch.equal(rows, initial_rows(options, 500, seed=9))
    assert not torch.equal(rows, initial_rows(options, 500, seed=10))
