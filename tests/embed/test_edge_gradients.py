"""Gradients by hand are those of autograd on the formulas of the papers, one edge at a time."""

import itertools
from typing import get_args

import pytest
import torch
from torch.nn import functional

from lsm.embed.gradients import edge_gradients
from lsm.embed.gradients.edge_gradients import Tables, Workspace, gradients_of
from lsm.embed.gradients.own_partition import OwnPartition
from lsm.embed.models.models import MODELS
from lsm.embed.options import EmbedOptions, LossName, RegularizerName
from lsm.links import negatives
from support.edge_scores import as_complex, edge_scores

DIM, ENTITIES, RELATIONS = 6, 9, 3
WEIGHT = 0.3
# Repeated edges, a self-loop, two relations between the same nodes; chunks of 3, 3 and 1.
EDGES = torch.tensor(
    [[0, 1, 4], [8, 2, 1], [0, 1, 4], [3, 0, 3], [1, 1, 4], [1, 2, 4], [7, 0, 2]], dtype=torch.int64
)
CANDIDATES = [(6, 9), (0, 5)]
OWN = OwnPartition(rows=3, shift=-1.25)


def own_shift(given, entity):
    """Of a partition's three rows."""
    return OWN.shift if given // OWN.rows == entity // OWN.rows else 0.0


def edge_loss(options, positive, negatives):
    if options.loss == "softmax":
        scores = torch.stack([positive, *negatives])
        return functional.cross_entropy(scores[None], torch.tensor([0]))
    if options.loss == "margin":
        return torch.stack([(options.margin - positive + n).clamp(min=0) for n in negatives]).sum()
    shift = options.margin if options.model in ("transe_l1", "transe_l2", "rotate") else 0
    of_negatives = sum(-functional.logsigmoid(-(n + shift)) for n in negatives)
    return of_negatives, -functional.logsigmoid(positive + shift)


def penalty(options, row):
    kind = options.regularizer
    if kind == "auto":
        kind = "none" if options.model in ("transe_l1", "transe_l2", "rotate") else "n3"
    if kind == "none":
        return 0
    is_complex = options.model in ("complex", "rotate") and kind == "n3"
    return WEIGHT * ((as_complex(row) if is_complex else row).abs() ** 3).sum()


def reference_loss(options, tables, drawn, shift_of=lambda given, entity: 0.0):
    """The sum over edges and sides. ``drawn``: for each side, the negatives of each edge."""
    total = 0
    for side, edge in itertools.product((0, 1), range(len(EDGES))):
        head, relation_id, tail = EDGES[edge].tolist()
        shift = RELATIONS if side and options.reciprocal else 0
        relation = tables.relations[relation_id + shift] if options.has_relations else None
        given, target = (tail, head) if side else (head, tail)

        def scored(entity, is_head=bool(side), given=given, relation=relation):
            given_row, row = tables.entities[given], tables.entities[entity]
            turned = is_head and not (options.reciprocal and options.has_relations)
            ends = (row, given_row) if turned else (given_row, row)
            return edge_scores(options.model, ends[0], relation, ends[1]) + shift_of(given, entity)

        ids = drawn[side][edge]
        loss = edge_loss(options, scored(target), [scored(n) for n in ids if n != target])
        if options.loss == "logistic":
            loss = loss[1] + loss[0] / len(ids)
        elif options.loss == "margin":
            loss = loss / len(ids)
        total = total + loss
        rows = [tables.entities[given], tables.entities[target]]
        total = total + sum(
            penalty(options, row) for row in rows + [relation] * (relation is not None)
        )
    return total


def random_tables(options, dtype=torch.float64):
    generator = torch.Generator().manual_seed(5)

    def table(rows):
        return torch.randn(rows, DIM, dtype=torch.float64, generator=generator).to(dtype)

    entities = table(ENTITIES)
    return Tables(
        entities, table(options.relation_rows(RELATIONS)) if options.has_relations else None
    )


def compare(options, drawn, dtype=torch.float64, own=None):
    """With float32 by native kernels, against a reference in float64."""
    tables = random_tables(options, dtype)
    found = gradients_of(
        options, tables, EDGES, CANDIDATES, torch.Generator().manual_seed(1), Workspace(), own
    )
    copies = [
        None if table is None else table.to(torch.float64, copy=True).requires_grad_()
        for table in tables
    ]
    drawn = drawn() if callable(drawn) else drawn
    shift_of = [own_shift] if own else []
    loss = reference_loss(options, Tables(*copies), drawn, *shift_of)
    loss.backward()
    # Of float64, the matrix form of Euclidean distances loses up to half of the digits.
    rtol, atol = (1e-8, 1e-10) if dtype == torch.float64 else (1e-4, 1e-4)
    assert float(found.loss) == pytest.approx(loss.item(), rel=rtol)
    dense = torch.zeros_like(tables.entities).index_add_(0, found.ids, found.grads)
    torch.testing.assert_close(dense.double(), copies[0].grad, rtol=rtol, atol=atol)
    if options.has_relations:
        torch.testing.assert_close(found.relations.double(), copies[1].grad, rtol=rtol, atol=atol)
    else:
        assert found.relations is None


def options_of(**values):
    base = {"model": "complex", "dim": DIM, "chunk": 3, "margin": 1.5}
    return EmbedOptions(**(base | {"regularizer_weight": WEIGHT} | values))


ALL = [6, 7, 8, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("regularizer", get_args(RegularizerName))
@pytest.mark.parametrize("loss", get_args(LossName))
@pytest.mark.parametrize("model", MODELS)
def test_against_all_candidates(model, loss, regularizer, reciprocal, dtype):
    options = options_of(
        model=model, loss=loss, regularizer=regularizer, reciprocal=reciprocal, num_negatives="all"
    )
    compare(options, [[ALL] * len(EDGES)] * 2, dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("model", MODELS)
def test_scores_in_the_partition_of_the_other_node_are_shifted(model, dtype):
    """Of negatives and of edges, one of which has both nodes in one partition."""
    compare(options_of(model=model, num_negatives="all"), [[ALL] * len(EDGES)] * 2, dtype, OWN)


@pytest.mark.parametrize("model", MODELS)
def test_against_drawn_negatives(model, monkeypatch):
    """Drawn with replacement, so that negatives repeat, and some are the edge's own entity. Scores
    are made for two edges at once, of the three that share negatives."""
    monkeypatch.setattr(edge_gradients, "SCORE_BYTES", 1)
    monkeypatch.setattr(edge_gradients, "LEAST_BLOCK", 2)
    draws = []
    draw = negatives.NegativeDraws.draw

    def recorded(self, ends, generator):
        draws.append(draw(self, ends, generator))
        return draws[-1]

    monkeypatch.setattr(negatives.NegativeDraws, "draw", recorded)

    def drawn():
        assert len(draws) == 6
        chunks = [ids.tolist() for ids in draws]
        return [[chunks[3 * side + edge // 3] for edge in range(len(EDGES))] for side in (0, 1)]

    compare(options_of(model=model, num_negatives=20, degree_fraction=0.5), drawn)


def test_dropout_drops_a_share_of_the_query_and_scales_the_rest(monkeypatch):
    dim, share = 4000, 0.3
    options = EmbedOptions(
        model="dot", dim=dim, dropout=share, num_negatives="all", regularizer="none"
    )
    entities = torch.randn(4, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    entities /= dim**0.5
    factors = []
    dropout = edge_gradients._Batch._dropout

    def recorded(self, query):
        factors.append(dropout(self, query))
        return factors[-1]

    monkeypatch.setattr(edge_gradients._Batch, "_dropout", recorded)
    edge, generator = torch.tensor([[0, 1]]), torch.Generator().manual_seed(3)
    found = gradients_of(options, Tables(entities, None), edge, [(2, 4)], generator, Workspace())
    copy = entities.clone().requires_grad_()
    total = 0
    for (entity, target), dropout in zip(((0, 1), (1, 0)), factors, strict=True):
        assert set(dropout.unique().tolist()) == {0, 1 / (1 - share)}
        assert (dropout != 0).double().mean().item() == pytest.approx(1 - share, abs=0.03)
        scores = copy[[target, 2, 3]] @ (copy[entity] * dropout[0])
        total = total + functional.cross_entropy(scores[None], torch.tensor([0]))
    assert not torch.equal(*factors)
    total.backward()
    dense = torch.zeros_like(entities).index_add_(0, found.ids, found.grads)
    torch.testing.assert_close(dense, copy.grad)


def test_equal_rows_have_a_distance_of_zero_and_finite_gradients():
    for model in ("transe_l1", "transe_l2", "rotate"):
        options = options_of(model=model, num_negatives="all", loss="margin")
        tables = Tables(torch.ones(ENTITIES, DIM), torch.zeros(2 * RELATIONS, DIM))
        found = gradients_of(options, tables, EDGES, CANDIDATES, torch.Generator(), Workspace())
        assert torch.isfinite(found.grads).all()
        assert torch.isfinite(found.relations).all()


def test_a_batch_without_edges_has_no_gradients():
    options = options_of(num_negatives=4)
    tables = random_tables(options)
    found = gradients_of(options, tables, EDGES[:0], CANDIDATES, torch.Generator(), Workspace())
    assert (found.loss, len(found.ids)) == (0, 0)
    assert not found.relations.any()


@pytest.mark.parametrize("shape", [(4, 2), (4, 4), (3,)])
def test_edges_of_another_shape_are_named(shape):
    options = options_of()
    with pytest.raises(ValueError, match=r"edges: expected \[b, 3\]: head, relation, tail, got"):
        gradients_of(
            options,
            random_tables(options),
            torch.zeros(shape).long(),
            CANDIDATES,
            torch.Generator(),
            Workspace(),
        )
