"""Ranks are those of brute force in NumPy, edge by edge, ties included."""

import numpy as np
import pytest
import torch

from lsm.embed.edge_ranking import rank_edges
from lsm.embed.models.models import MODELS
from lsm.embed.options import EmbedOptions
from lsm.embed.sides import known_edges, sides_of
from lsm.links import ranking
from lsm.links.ranking import Protocol
from support.edge_scores import edge_scores

ENTITIES, RELATIONS, DIM = 40, 3, 4
RNG = np.random.default_rng(11)
EDGES = np.unique(
    np.stack([RNG.integers(n, size=300) for n in (ENTITIES, RELATIONS, ENTITIES)], 1), axis=0
)
TEST = EDGES[RNG.permutation(len(EDGES))[:60]]


def tables(options, integers):
    """``integers``: every score is exact, and many are equal."""
    shapes = (ENTITIES, options.width), (options.relation_rows(RELATIONS), options.width)
    draw = (lambda s: RNG.integers(-1, 2, s)) if integers else RNG.standard_normal
    return [draw(shape).astype(np.float32) for shape in shapes]


def brute_force(options, entities, relations, known, among=None):
    """Ranks of heads and tails. ``among``: entities in an edge's place, which may repeat."""
    entities = entities[:, :DIM].astype(np.float64)
    relations = relations[:, :DIM].astype(np.float64)
    among = np.arange(ENTITIES) if among is None else among
    kinds = range(RELATIONS) if options.model == "dot" else [None]  # dot ignores relations
    true = {(h, r if k is None else k, t) for h, r, t in known.tolist() for k in kinds}
    ranks = []
    for head, relation, tail in TEST.tolist():
        for side in (0, 1):
            row = relations[relation + (RELATIONS if side and options.reciprocal else 0)]
            turned = options.reciprocal and side and options.has_relations

            def of(entity, row=row, side=side, head=head, tail=tail, turned=turned):
                ends = [head, tail]
                ends[1 - side] = entity
                if turned:
                    ends.reverse()
                return edge_scores(options.model, entities[ends[0]], row, entities[ends[1]])

            own = head if side else tail
            others = []
            for entity in among.tolist():
                edge = (entity, relation, tail) if side else (head, relation, entity)
                if entity != own and edge not in true:
                    others.append(of(entity) - of(own))
            others = np.array(others)
            equal = np.abs(others) < 1e-9
            ranks.append(1 + (others > 0)[~equal].sum() + equal.sum() / 2)
    return np.array(ranks)


def check(found, ranks):
    assert found.num_edges == len(TEST)
    assert found.mrr == pytest.approx((1 / ranks).mean(), rel=1e-12)
    for k in (1, 3, 10):
        assert getattr(found, f"hits_at_{k}") == pytest.approx((ranks <= k).mean(), rel=1e-12)


class Blocks:
    """Rows as they come from disk: block by block, anew in every pass."""

    def __init__(self, rows, size):
        self.rows, self.size, self.passes = torch.from_numpy(rows), size, 0

    def __call__(self):
        self.passes += 1
        for first in range(0, len(self.rows), self.size):
            yield first, self.rows[first : first + self.size].clone()


def rank(options, entities, relations, known, size=ENTITIES, **protocol):
    edges = torch.from_numpy(TEST)
    rows = torch.from_numpy(relations)
    if known is not None:
        tails, heads = (side.keys(len(rows)) for side in sides_of(options, edges, len(rows)))
        chunks = torch.from_numpy(known).split(100)
        known = known_edges(options, chunks, len(rows), (tails, heads))
    return rank_edges(options, Blocks(entities, size), rows, edges, known, **protocol)


@pytest.mark.parametrize("size", [1, 7, ENTITIES])
@pytest.mark.parametrize("integers", [True, False])
@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("model", MODELS)
def test_filtered_ranks_among_all_entities(model, reciprocal, integers, size, monkeypatch):
    monkeypatch.setattr(ranking, "SCORE_BYTES", 4 * 16 * size)  # chunks of 16 edges
    options = EmbedOptions(model=model, dim=DIM, reciprocal=reciprocal)
    entities, relations = tables(options, integers and model != "rotate")
    if model == "rotate" and integers:
        entities[5:15] = entities[20:30]  # ties
    found = rank(options, entities, relations, EDGES, size)
    check(found, brute_force(options, entities, relations, EDGES))
    assert found.protocol == "filtered, both sides, all 40 entities, mean rank on ties"


@pytest.mark.parametrize("size", [7, 1000])
@pytest.mark.parametrize(
    "given", [{"model": "complex"}, {"model": "complex", "reciprocal": True}, {"model": "dot"}]
)
def test_known_edges_complete_the_queries_and_no_others(given, size):
    options = EmbedOptions(dim=DIM, **given)
    rows = options.relation_rows(RELATIONS) if options.has_relations else 0
    some = torch.from_numpy(TEST[:9])
    keys = tuple(side.keys(rows) for side in sides_of(options, some, rows))
    known = known_edges(options, torch.from_numpy(EDGES).split(size), rows, keys)
    for side, (entity, target) in enumerate([(0, -1), (-1, 0)]):
        queries, targets = known[side].pairs(keys[side])
        found = sorted(zip(queries.tolist(), targets.tolist(), strict=True))
        expected = [
            (number, edge[target])
            for number, query in enumerate(TEST[:9].tolist())
            for edge in EDGES.tolist()
            if edge[entity] == query[entity] and (edge[1] == query[1] or not options.has_relations)
        ]
        assert found == sorted(expected)
        asked = len(known[side].pairs(keys[side].unique())[0])
        of_all_queries = known[side].pairs(torch.arange(ENTITIES * max(1, rows)))[0]
        assert len(of_all_queries) == asked < len(EDGES)


def test_raw_ranks_count_known_edges():
    options = EmbedOptions(model="complex", dim=DIM)
    entities, relations = tables(options, True)
    found = rank(options, entities, relations, None, size=9)
    raw = brute_force(options, entities, relations, TEST[:0])
    check(found, raw)
    assert (raw > brute_force(options, entities, relations, EDGES)).any()
    assert found.protocol == "raw, both sides, all 40 entities, mean rank on ties"


@pytest.mark.parametrize("candidates", ["uniform", "degree"])
def test_ranks_among_a_sample(candidates, monkeypatch):
    options = EmbedOptions(model="complex", dim=DIM)
    entities, relations = tables(options, True)
    degrees = torch.bincount(torch.from_numpy(EDGES[:, [0, 2]].flatten()), minlength=ENTITIES)
    drawn = []
    draw = Protocol.draw
    monkeypatch.setattr(Protocol, "draw", lambda *args: drawn.append(draw(*args)) or drawn[0])
    protocol = Protocol(candidates, 25, seed=3)
    found = rank(options, entities, relations, EDGES, 9, protocol=protocol, degrees=degrees)
    assert len(drawn[0]) == 25
    check(found, brute_force(options, entities, relations, EDGES, drawn[0].numpy()))
    words = {"uniform": "25 uniform entities", "degree": "25 by degree"}[candidates]
    assert found.protocol == f"filtered, both sides, {words}, mean rank on ties"


def test_equal_rows_are_ties_in_spite_of_rounding():
    """A constant model has the mean rank: the other orders of its entities are as likely."""
    options = EmbedOptions(model="complex", dim=64)
    entities = np.tile(RNG.standard_normal(options.width).astype(np.float32), (ENTITIES, 1))
    relations = RNG.standard_normal((2 * RELATIONS, options.width)).astype(np.float32)
    found = rank(options, entities, relations, None, size=7)
    assert found.mrr == pytest.approx(1 / (1 + (ENTITIES - 1) / 2))


def test_bad_input_is_named():
    options = EmbedOptions(model="complex", dim=DIM)
    entities, relations = tables(options, False)
    with pytest.raises(ValueError, match="entities have no embedding"):
        rank(options, entities[:20], relations, None)
    with pytest.raises(ValueError, match="degrees: expected one of each of the 40 entities"):
        rank(options, entities, relations, None, protocol=Protocol("degree", 5))
    entities[TEST[0, 0]] = np.nan
    with pytest.raises(FloatingPointError, match="embeddings hold NaN"):
        rank(options, entities, relations, None)


def test_a_row_of_nan_does_not_raise_ranks():
    options = EmbedOptions(model="complex", dim=DIM)
    entities, relations = tables(options, False)
    unused = sorted(set(range(ENTITIES)) - set(TEST[:, [0, 2]].flatten().tolist()))
    assert unused
    before = rank(options, entities, relations, None).mrr
    entities[unused] = np.nan
    assert rank(options, entities, relations, None).mrr <= before
