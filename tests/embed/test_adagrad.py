"""Updates are those of torch.optim.Adagrad; gradients of one row are summed first."""

import pytest
import torch

from lsm import native
from lsm.embed.adagrad import initial_rows, update_rows
from lsm.embed.options import EmbedOptions
from support.adagrad import update_rows_by_torch

DIM, ROWS = 5, 8


def gradients(step, count=30):
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(ROWS - 1, (count,), generator=generator)  # the last row has none
    return ids, torch.randn(count, DIM, generator=generator)


WAYS = pytest.mark.parametrize("update", [update_rows, update_rows_by_torch])


@WAYS
def test_adagrad_of_elements_is_that_of_torch(update):
    options = EmbedOptions(model="distmult", dim=DIM, lr=0.3, eps=1e-8, init_scale=1.0)
    rows = initial_rows(options, ROWS, seed=3)
    expected = torch.nn.Parameter(rows[:, :DIM].clone())
    optimizer = torch.optim.Adagrad([expected], lr=0.3, eps=1e-8)
    for step in range(5):
        ids, grads = gradients(step)
        update(options, rows, ids, grads)
        expected.grad = torch.zeros(ROWS, DIM).index_add_(0, ids, grads)
        optimizer.step()
    torch.testing.assert_close(rows[:, :DIM], expected.detach())
    torch.testing.assert_close(rows[:, DIM:], optimizer.state[expected]["sum"])


@WAYS
def test_adagrad_of_rows_has_one_sum_of_mean_squares(update):
    options = EmbedOptions(model="distmult", dim=DIM, optimizer="row_adagrad")
    rows = initial_rows(options, ROWS, seed=3)
    assert rows.shape == (ROWS, DIM + 1)
    embedding, state = rows[:, :DIM].double(), torch.zeros(ROWS, dtype=torch.float64)
    for step in range(5):
        ids, grads = gradients(step)
        update(options, rows, ids, grads)
        for row in set(ids.tolist()):
            total = grads[ids == row].double().sum(0)
            state[row] += (total**2).mean()
            embedding[row] -= options.lr * total / (state[row].sqrt() + options.eps)
    torch.testing.assert_close(rows[:, :DIM].double(), embedding, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(rows[:, DIM].double(), state, rtol=1e-5, atol=1e-6)


def test_initial_rows_have_the_scale_and_no_state():
    options = EmbedOptions(dim=64, init_scale=0.5)
    rows = initial_rows(options, 500, seed=9)
    assert rows[:, :64].std().item() == pytest.approx(0.5, rel=0.02)
    assert not rows[:, 64:].any()
    assert torch.equal(rows, initial_rows(options, 500, seed=9))
    assert not torch.equal(rows, initial_rows(options, 500, seed=10))


@pytest.mark.parametrize("optimizer", ["adagrad", "row_adagrad"])
def test_updates_are_the_same_with_any_number_of_threads(optimizer):
    options = EmbedOptions(dim=20, optimizer=optimizer)
    generator = torch.Generator().manual_seed(6)
    ids = torch.randint(5000, (20_000,), generator=generator)  # two digits of the radix sort
    grads = torch.randn(20_000, 20, generator=generator)
    one, many = (initial_rows(options, 5000, seed=1) for _ in range(2))
    native.update_rows(one, ids, grads, options.lr, options.eps, native.ThreadPool(1))
    native.update_rows(many, ids, grads, options.lr, options.eps, native.ThreadPool(4))
    assert torch.equal(one, many)
    by_torch = initial_rows(options, 5000, seed=1)
    update_rows_by_torch(options, by_torch, ids, grads)
    torch.testing.assert_close(one, by_torch, rtol=1e-4, atol=1e-6)


def test_rows_without_a_gradient_keep_their_bits():
    options = EmbedOptions(dim=6)
    rows = initial_rows(options, ROWS, seed=1)
    before = rows.clone()
    update_rows(options, rows, torch.tensor([3, 1]), torch.stack((torch.ones(6), torch.zeros(6))))
    changed = (rows != before).any(1)
    assert changed.nonzero().flatten().tolist() == [3]


def test_an_id_out_of_range_is_named_before_any_update():
    options = EmbedOptions(dim=6)
    rows = initial_rows(options, ROWS, seed=1)
    before = rows.clone()
    with pytest.raises(ValueError, match=r"ids: expected ids in \[0, 8\), got 8"):
        update_rows(options, rows, torch.tensor([3, 8]), torch.ones(2, 6))
    assert torch.equal(rows, before)
