"""Negatives are uniform over the candidates, or as frequent as nodes are in the batch."""

import pytest
import torch

from lsm.links.negatives import NegativeDraws, all_rows

RANGES = [(10, 30), (0, 5), (30, 31), (50, 90)]
ENDS = torch.tensor([7] * 6 + [2] * 3 + [11])


def counts(draws, num_draws=400, seed=1):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.cat([draws.draw(ENDS, generator) for _ in range(num_draws)])
    return torch.bincount(ids, minlength=100).double()


def chi_square(observed, share):
    expected = share * observed.sum() / share.sum()
    used = expected > 0
    assert not observed[~used].any()
    statistic = ((observed - expected)[used] ** 2 / expected[used]).sum().item()
    return statistic, int(used.sum()) - 1


def test_uniform_draws_have_every_candidate_equally_often():
    share = torch.zeros(100)
    share[all_rows(RANGES, torch.device("cpu"))] = 1
    assert share.sum() == 66
    statistic, freedom = chi_square(counts(NegativeDraws(RANGES, 100, 0.0)), share)
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5


def test_draws_by_degree_follow_the_ends_of_the_batch():
    share = torch.bincount(ENDS, minlength=100)
    statistic, freedom = chi_square(counts(NegativeDraws(RANGES, 100, 1.0)), share)
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5


def test_a_share_is_drawn_by_degree():
    draws = NegativeDraws([(90, 100)], 40, 0.25)
    ids = draws.draw(ENDS, torch.Generator().manual_seed(3))
    assert len(ids) == 40
    assert int((ids < 90).sum()) == 10


@pytest.mark.parametrize("ranges", [[], [(3, 3)], [(0, 4), (9, 7)]])
def test_no_candidates_are_an_error(ranges):
    with pytest.raises(ValueError, match="candidates: expected ranges of rows"):
        NegativeDraws(ranges, 4, 0.0)
    with pytest.raises(ValueError, match="candidates: expected ranges of rows"):
        all_rows(ranges, torch.device("cpu"))
