"""RowAdam takes the steps of torch.optim.SparseAdam."""

import pytest
import torch

from lsm.train.row_adam import RowAdam

ROWS, WIDTH = 50, 6


def gradient(ids, generator, *, coalesced=False):
    values = torch.randn(len(ids), WIDTH, generator=generator)
    found = torch.sparse_coo_tensor(ids.unsqueeze(0), values, (ROWS, WIDTH))
    return found.coalesce() if coalesced else found


def steps(kind, gradients, **options):
    """The table and the state after the gradients, of which None is none."""
    table = torch.nn.Parameter(torch.randn(ROWS, WIDTH, generator=torch.manual_seed(3)))
    optimizer = kind([table], **options)
    for each in gradients:
        table.grad = each
        optimizer.step()
    return table.detach(), optimizer.state_dict()


def drawn(num_ids, num_steps=5, **options):
    generator = torch.manual_seed(1)
    return [
        gradient(torch.randint(ROWS, (num_ids,), generator=generator), generator, **options)
        for _ in range(num_steps)
    ]


@pytest.mark.parametrize("num_ids", [1, 2, 7, 50, 300])
def test_rows_of_the_same_id_count_once(num_ids):
    gradients = drawn(num_ids)
    table, state = steps(RowAdam, gradients, lr=0.1, betas=(0.8, 0.95), eps=1e-6)
    expected, others = steps(torch.optim.SparseAdam, gradients, lr=0.1, betas=(0.8, 0.95), eps=1e-6)
    torch.testing.assert_close(table, expected, rtol=1e-5, atol=1e-6)
    for name in ("exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(state["state"][0][name], others["state"][0][name])
    assert state["state"][0]["step"] == others["state"][0]["step"]
    assert state["param_groups"] == others["param_groups"]


@pytest.mark.parametrize("coalesced", [False, True])
def test_distinct_ids_have_equal_bits(coalesced):
    generator = torch.manual_seed(2)
    ids = [torch.randperm(ROWS, generator=generator)[:20] for _ in range(4)]
    gradients = [gradient(each, generator, coalesced=coalesced) for each in ids]
    table, _ = steps(RowAdam, gradients, lr=0.01)
    expected, _ = steps(torch.optim.SparseAdam, gradients, lr=0.01)
    assert torch.equal(table, expected)


def test_rows_without_a_gradient_stay():
    """Also row 0, where unused places point."""
    generator = torch.manual_seed(4)
    ids = torch.tensor([7, 7, 7, 9])
    before, _ = steps(RowAdam, [])
    table, state = steps(RowAdam, [gradient(ids, generator), gradient(ids, generator)], lr=0.1)
    others = torch.ones(ROWS, dtype=torch.bool).index_fill(0, ids, False)
    assert torch.equal(table[others], before[others])
    assert not state["state"][0]["exp_avg"][others].any()
    assert (table[~others] != before[~others]).all()


def test_gradients_that_are_empty_or_none():
    empty = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), torch.empty(0, WIDTH))
    empty = torch.sparse_coo_tensor(empty._indices(), empty._values(), (ROWS, WIDTH))
    before, _ = steps(RowAdam, [])
    table, state = steps(RowAdam, [None, empty])
    assert torch.equal(table, before)
    assert state["state"][0]["step"] == 1


def test_a_dense_gradient_is_refused():
    with pytest.raises(RuntimeError, match="is dense"):
        steps(RowAdam, [torch.ones(ROWS, WIDTH)])


def test_a_state_of_sparse_adam_goes_on():
    gradients = drawn(40, num_steps=4)
    table, state = steps(torch.optim.SparseAdam, gradients[:2], lr=0.1)
    goes_on = torch.nn.Parameter(table.clone())
    optimizer = RowAdam([goes_on])
    optimizer.load_state_dict(state)
    for each in gradients[2:]:
        goes_on.grad = each
        optimizer.step()
    expected, _ = steps(torch.optim.SparseAdam, gradients, lr=0.1)
    torch.testing.assert_close(goes_on.detach(), expected, rtol=1e-5, atol=1e-6)
