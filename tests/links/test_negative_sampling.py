"""Nodes are drawn from those that are given, in proportion to weights, and none too late."""

import pytest
import torch
from torch_geometric.sampler import NegativeSampling as PygNegativeSampling

from lsm.links.negative_sampling import NegativeSampling, NodeDraws


def test_weighted_negatives_are_of_the_pool():
    weight = torch.zeros(10)
    weight[[1, 2, 5, 7]] = torch.tensor([100.0, 1.0, 3.0, 0.0])
    mask = torch.zeros(10, dtype=torch.bool)
    mask[[2, 5, 7]] = True
    for nodes in (mask, mask.nonzero().view(-1), torch.tensor([2, 5, 7], dtype=torch.int32)):
        drawn = NodeDraws(10, weight=weight, nodes=nodes).draw(4000, torch.Generator())
        counts = torch.bincount(drawn, minlength=10)
        assert counts.nonzero().view(-1).tolist() == [2, 5]
        assert counts[5] / 4000 == pytest.approx(0.75, abs=0.03)
    assert NodeDraws(10, nodes=mask).draw(200, torch.Generator()).unique().tolist() == [2, 5, 7]


def test_a_link_before_all_nodes_gets_the_earliest_of_the_pool():
    draws = NodeDraws(10, nodes=torch.tensor([8, 6, 9])).with_times(torch.arange(10))
    drawn = draws.draw(20, torch.Generator(), torch.full((20,), -1))
    assert drawn.tolist() == [6] * 20


def test_the_earliest_has_a_weight_too():
    weight = torch.tensor([0.0, 1, 0, 3, 6])
    times = torch.tensor([0, 7, 5, 6, 9])
    for nodes, expected in ((None, 3), (torch.tensor([0, 1, 4]), 1)):
        draws = NodeDraws(5, weight=weight, nodes=nodes).with_times(times)
        drawn = draws.draw(50, torch.Generator(), torch.full((50,), 2))
        assert drawn.tolist() == [expected] * 50


def test_draws_of_links_in_turn_are_not_later_and_as_likely():
    """Half of the nodes are too late for the third link. Another draw replaces them, so that the
    earliest is hardly more likely than the others."""
    latest = [0, 9, 4]
    draws = NodeDraws(10).with_times(torch.arange(10))
    drawn = draws.draw(6001, torch.Generator(), torch.tensor(latest))
    assert len(drawn) == 6001
    for link, last in enumerate(latest):
        counts = torch.bincount(drawn[link::3], minlength=10)
        assert counts.nonzero().view(-1).tolist() == list(range(last + 1))
        shares = counts[: last + 1] / counts.sum()
        assert shares.tolist() == pytest.approx([1 / (last + 1)] * (last + 1), abs=0.04)


@pytest.mark.parametrize(("mode", "amount"), [("binary", 0.5), ("triplet", 3)])
def test_the_object_of_pyg_is_taken(mode, amount):
    weight = torch.rand(4)
    taken = NegativeSampling.cast(PygNegativeSampling(mode, amount, dst_weight=weight))
    assert (taken.mode, taken.amount, taken.kind) == (mode, amount, "uniform")
    assert taken.dst_weight is weight
    assert taken.src_weight is None
