"""Ranks of targets are those of brute force over a matrix of scores, made by any model."""

import numpy as np
import pytest
import torch

from lsm.links import ranking
from lsm.links.known_edges import KnownEdges, joined_pairs, query_keys
from lsm.links.ranking import Protocol, RankCounter, Ranking

QUERIES, NODES = 37, 50
RNG = np.random.default_rng(5)
SCORES = RNG.integers(0, 20, (QUERIES, NODES)).astype(np.float32) / 8  # exact, with many ties
SOURCES = RNG.integers(0, 12, QUERIES)
TARGETS = RNG.integers(0, NODES, QUERIES)
KNOWN = np.stack((RNG.integers(0, 12, 200), RNG.integers(0, NODES, 200)), 1)


def rank(scores, block, known, candidates=None):
    """As link prediction of a GNN does: ids of the candidates and their scores, in blocks."""
    sources, targets = torch.from_numpy(SOURCES), torch.from_numpy(TARGETS)
    left_out = (torch.arange(QUERIES), targets)
    if known is not None:
        found = KnownEdges(*torch.from_numpy(known).unbind(1)).pairs(query_keys(sources, None, 0))
        left_out = joined_pairs(left_out, found)
    own = torch.from_numpy(scores[np.arange(QUERIES), TARGETS])
    counter = RankCounter(own, torch.full((QUERIES,), 1e-6), left_out)
    candidates = np.arange(NODES) if candidates is None else candidates
    for first in range(0, len(candidates), block):
        ids = torch.from_numpy(candidates[first : first + block])
        for chunk in counter.chunks(len(ids)):
            counter.add(chunk, ids, torch.from_numpy(scores[chunk])[:, ids])
    return counter.ranks().numpy()


def brute_force(scores, known, candidates=range(NODES)):
    edges = set(map(tuple, known.tolist()))
    ranks = []
    for query, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        above = ties = 0
        for node in candidates:
            if node != target and (source, node) not in edges:
                above += scores[query, node] > scores[query, target]
                ties += not abs(scores[query, node] - scores[query, target]) > 1e-6
        ranks.append(1 + above + ties / 2)
    return np.array(ranks)


@pytest.mark.parametrize("block", [1, 9, NODES])
@pytest.mark.parametrize("chunk", [4, 1000])
def test_filtered_ranks(block, chunk, monkeypatch):
    monkeypatch.setattr(ranking, "SCORE_BYTES", 4 * chunk * block)
    expected = brute_force(SCORES, KNOWN)
    assert (rank(SCORES, block, KNOWN) == expected).all()
    assert (expected < brute_force(SCORES, KNOWN[:0])).any()


def test_raw_ranks():
    assert (rank(SCORES, 9, None) == brute_force(SCORES, KNOWN[:0])).all()


def test_candidates_may_repeat():
    candidates = RNG.integers(0, NODES, 80)
    expected = brute_force(SCORES, KNOWN, candidates.tolist())
    assert (rank(SCORES, 7, KNOWN, candidates) == expected).all()


def test_a_score_of_nan_ties():
    scores = SCORES.copy()
    unused = next(node for node in range(NODES) if node not in TARGETS)
    scores[:, unused] = np.nan
    assert (rank(scores, 9, KNOWN) == brute_force(scores, KNOWN)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_target_without_a_finite_score_is_an_error(value):
    scores = SCORES.copy()
    scores[3, TARGETS[3]] = value
    with pytest.raises(FloatingPointError, match="an edge's score is not finite"):
        rank(scores, 9, KNOWN)


def test_means_of_ranks():
    ranks = torch.tensor([1, 2.5, 3, 3.5, 10, 400], dtype=torch.float64)
    found = Ranking.of(ranks, "raw")
    assert found.mrr == pytest.approx((1 + 0.4 + 1 / 3 + 2 / 7 + 0.1 + 0.0025) / 6)
    assert (found.hits_at_1, found.hits_at_3, found.hits_at_10) == (1 / 6, 3 / 6, 5 / 6)
    assert (found.num_edges, found.protocol) == (3, "raw")
    with pytest.raises(ValueError, match="expected at least one to rank"):
        Ranking.of(ranks[:0], "raw")


def test_samples_follow_their_protocol():
    uniform = Protocol("uniform", 30).draw(NODES, None)
    assert len(uniform.unique()) == 30
    degrees = torch.tensor([0, 5, 0, 1, 2])
    counts = torch.bincount(Protocol("degree", 8000).draw(5, degrees), minlength=5)
    assert (counts / 1000).tolist() == pytest.approx([0, 5, 0, 1, 2], abs=0.2)
    assert not len(Protocol().draw(NODES, None))


def test_bad_protocols_are_named():
    with pytest.raises(ValueError, match="sample: expected at least 1"):
        Protocol("uniform")
    with pytest.raises(ValueError, match="degrees: expected one of each of the 50 entities"):
        Protocol("degree", 5).draw(NODES, None)


def test_known_edges_of_relations():
    """Queries of another relation find nothing, repeated edges are found as often."""
    edges = torch.tensor([[0, 0, 3], [0, 1, 4], [2, 0, 5], [0, 1, 4], [1, 1, 6]])
    known = KnownEdges(query_keys(edges[:, 0], edges[:, 1], 2), edges[:, 2])
    asked = query_keys(torch.tensor([1, 0, 9, 0]), torch.tensor([0, 1, 0, 0]), 2)
    queries, targets = known.pairs(asked)
    assert queries.tolist() == [1, 1, 3]
    assert targets.tolist() == [4, 4, 3]
