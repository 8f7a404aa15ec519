"""The highest scores of blocks of rows, against a sort in NumPy."""

import numpy as np
import pytest
import torch

from lsm.embed.use import highest as highest_module
from lsm.embed.use.highest import highest, highest_of_blocks
from lsm.embed.use.neighbors import nearest


def sorted_columns(scores, k):
    """The columns of the ``k`` highest scores of each row, ties by column."""
    columns = np.arange(scores.shape[1])
    return np.stack([np.lexsort((columns, -row))[:k] for row in scores])


@pytest.mark.parametrize("values", [2, 5, 10_000])
@pytest.mark.parametrize("k", [1, 7, 59, 60])
def test_the_first_of_equal_scores(values, k):
    draw = np.random.default_rng(values)
    scores = draw.integers(values, size=(40, 60)).astype(np.float32)
    scores[3, 5:] = -np.inf
    expected = np.sort(sorted_columns(scores, k), axis=1)
    assert np.array_equal(highest(torch.from_numpy(scores), k), expected)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_blocks_are_scored_in_bounded_memory(monkeypatch, size):
    monkeypatch.setattr(highest_module, "SCORE_BYTES", 8 * 4 * size)
    scores = torch.randint(20, (30, 100), generator=torch.Generator().manual_seed(size)).float()
    scores[2] = -torch.inf
    blocks = [(first, torch.zeros(min(size, 100 - first), 1)) for first in range(0, 100, size)]
    most = 0

    def scores_of(chunk, first, rows):
        nonlocal most
        found = scores[chunk, first : first + len(rows)]
        most = max(most, found.numel() * 8)
        return found

    ids, best = highest_of_blocks(blocks, 30, 9, scores_of)
    assert most <= 8 * 4 * size
    expected = sorted_columns(scores.numpy(), 9)
    assert np.array_equal(ids, expected)
    assert np.array_equal(best, np.take_along_axis(scores.numpy(), expected, 1))


def test_fewer_rows_than_are_asked_for():
    blocks = [(0, torch.tensor([[3.0], [5.0]])), (2, torch.tensor([[4.0]]))]
    ids, best = highest_of_blocks(blocks, 2, 5, lambda chunk, _, rows: rows.T.float().repeat(2, 1))
    assert ids.tolist() == [[1, 2, 0, -1, -1]] * 2
    assert best.tolist() == [[5, 4, 3, -np.inf, -np.inf]] * 2


def test_neighbors_of_many_entities_take_the_memory_of_a_few(monkeypatch):
    """Equal rows have equal scores, however many entities are asked for."""
    rows = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    rows[150:] = rows[50:100]
    blocks = [(first, rows[first : first + 64]) for first in range(0, 200, 64)]
    own = torch.arange(200)
    whole = nearest(blocks, rows, own, 12)
    monkeypatch.setattr(highest_module, "SCORE_BYTES", 8 * 64 * 3)
    parts = nearest(blocks, rows, own, 12)
    assert torch.equal(whole[0], parts[0])
    assert torch.equal(whole[1], parts[1])
    units = (rows / rows.norm(dim=1, keepdim=True)).double()
    scores = (units @ units.T).float().fill_diagonal_(-torch.inf).numpy()
    np.testing.assert_allclose(parts[1], -np.sort(-scores, axis=1)[:, :12], atol=1e-6)
    assert parts[0][50, 0] == 150
