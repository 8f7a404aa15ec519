"""Chi-square tests of the draws against the exact distribution. Seeds are fixed: no flakes."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import stats

from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from support.graphs import from_edges

# One test in a thousand would fail by chance if the seeds were not fixed.
SIGNIFICANCE = 1e-3


def draws(degree, fanout, num_draws, **name):
    """[num_draws, fanout] positions: all destinations have the in-neighbours 0 .. degree - 1."""
    destinations = degree + np.repeat(np.arange(num_draws), degree)
    sources = np.tile(np.arange(degree), num_draws)
    graph = from_edges(sources, destinations, degree + num_draws)
    seeds = torch.arange(degree, degree + num_draws)
    sampled = NeighborSampler(graph, [fanout]).sample(seeds, BatchName(**name))
    return sampled.n_id[sampled.edge_index[0]].numpy().reshape(num_draws, fanout)


def assert_uniform(categories, num_categories):
    counts = np.bincount(categories, minlength=num_categories)
    assert len(counts) == num_categories
    assert counts.sum() / num_categories > 5  # the chi-square approximation needs that
    assert stats.chisquare(counts).pvalue > SIGNIFICANCE


# One line per way of looking up what is taken: bits, list, table.
@pytest.mark.parametrize(
    ("degree", "fanout"),
    [
        *[(5, 1), (5, 2), (6, 3), (10, 9), (12, 10), (64, 1), (64, 2)],
        *[(65, 1), (65, 2), (66, 64), (70, 1)],
        *[(66, 65), (67, 65), (80, 79)],
    ],
)
def test_every_subset_is_equally_likely(degree, fanout):
    # The smaller of the subset and its complement names the subset.
    num_draws = 60_000 if degree < 64 else 30_000
    drawn = draws(degree, fanout, num_draws)
    member = np.zeros((num_draws, degree), bool)
    np.put_along_axis(member, drawn, True, axis=1)
    assert (member.sum(axis=1) == fanout).all()
    if fanout > degree // 2:
        member = ~member
    small = int(member[0].sum())
    number = {subset: i for i, subset in enumerate(combinations(range(degree), small))}
    subsets = np.nonzero(member)[1].reshape(num_draws, small).tolist()
    assert_uniform(np.array([number[tuple(subset)] for subset in subsets]), len(number))


@pytest.mark.parametrize(
    ("degree", "fanout"), [(12, 10), (30, 10), (100, 10), (1000, 64), (200, 100), (3000, 65)]
)
def test_every_neighbor_is_equally_likely(degree, fanout):
    num_draws = 400_000 // degree
    counts = np.bincount(draws(degree, fanout, num_draws).ravel(), minlength=degree)
    p = fanout / degree
    # Without replacement, counts have variance n p (1 - p) and correlation -1 / (degree - 1).
    scale = num_draws * p * (1 - p) * degree / (degree - 1)
    statistic = ((counts - num_draws * p) ** 2).sum() / scale
    assert SIGNIFICANCE / 2 < stats.chi2.sf(statistic, degree - 1) < 1 - SIGNIFICANCE / 2


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"epoch": 1}, {"iteration": 1}, {"rank": 1}], ids=str
)
def test_draws_under_other_names_are_independent(other):
    first, second = draws(6, 1, 20_000), draws(6, 1, 20_000, **other)
    assert_uniform(first[:, 0] * 6 + second[:, 0], 36)


def test_draws_of_neighboring_ids_are_independent():
    drawn = draws(6, 1, 40_000)[:, 0]
    assert_uniform(drawn[::2] * 6 + drawn[1::2], 36)


def test_draws_of_hops_are_independent():
    # Node `middle` has neighbours 0 .. 5 and is the only neighbour of `top`: as a seed it draws at
    # hop 0, below `top` at hop 1.
    degree, num_draws = 6, 20_000
    middle = degree + np.arange(num_draws)
    top = middle + num_draws
    sources = np.concatenate([np.tile(np.arange(degree), num_draws), middle])
    destinations = np.concatenate([np.repeat(middle, degree), top])
    sampler = NeighborSampler(from_edges(sources, destinations, degree + 2 * num_draws), [1, 1])

    def drawn(seeds, edges):
        sampled = sampler.sample(torch.from_numpy(seeds), BatchName())
        source, destination = sampled.n_id[sampled.edge_index[:, edges]].numpy()
        np.testing.assert_array_equal(destination, middle)
        return source

    at_hop_0 = drawn(middle, slice(num_draws))
    at_hop_1 = drawn(top, slice(num_draws, None))
    assert_uniform(at_hop_0 * degree + at_hop_1, degree * degree)
