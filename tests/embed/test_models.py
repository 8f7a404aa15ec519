"""A new model is an entry of MODELS: it trains, ranks and predicts by torch alone."""

from typing import Literal

import numpy as np
import pytest
import torch

from lsm import native
from lsm.embed.adagrad import initial_rows
from lsm.embed.edge_ranking import rank_edges
from lsm.embed.edge_trainer import EdgeTrainer
from lsm.embed.gradients.edge_gradients import Tables, Workspace, gradients_of
from lsm.embed.models.comparators import Comparator, Dot, Euclidean, Manhattan, Modulus
from lsm.embed.models.kernels import ScoredRows
from lsm.embed.models.models import MODELS, EdgeModel, summaries
from lsm.embed.models.operators import (
    ComplexProduct,
    ElementProduct,
    Identity,
    Operator,
    Rotation,
    Translation,
)
from lsm.embed.options import EmbedOptions
from lsm.embed.use.prediction import best_targets

NODES, RELATIONS, DIM, WEIGHT = 30, 3, 6, 0.2
GENERATOR = torch.Generator().manual_seed(8)
HEADS, KINDS = (torch.randint(n, (90,), generator=GENERATOR) for n in (NODES, RELATIONS))
EDGES = torch.stack((HEADS, KINDS, (HEADS + 7 * KINDS + 1) % NODES), 1)
CLOSE = {"rtol": 2e-4, "atol": 2e-6}


class Bent(Operator):
    """A formula that none of the others has; without a backward pass of its own."""

    def compose(self, entity, relation, inverse):
        return entity - torch.tanh(relation) if inverse else entity + torch.tanh(relation)


class Squares(Comparator):
    """Negative squares of distances; without a backward pass of its own."""

    def of_pairs(self, queries, entities):
        return -(queries - entities).square().sum(-1)


@pytest.fixture
def options_of(monkeypatch):
    """Options with one more model, as they are with an entry in models.py."""
    monkeypatch.setitem(MODELS, "seventh", EdgeModel(Bent(), Squares(), "bent"))

    class Options(EmbedOptions):
        model: Literal[("auto", *MODELS)]

    base = {"model": "seventh", "dim": DIM, "chunk": 32, "regularizer_weight": WEIGHT}
    return lambda **values: Options(**(base | {"num_negatives": "all"} | values))


def tables_of(options, spread=1.0):
    rows = initial_rows(options, NODES, seed=1)
    relations = initial_rows(options, options.relation_rows(RELATIONS), seed=2)
    for table in (rows, relations):
        table[:, :DIM] = spread * torch.randn(table.shape[0], DIM, generator=GENERATOR)
    return rows, relations


def reference_scores(entities, relations, reciprocal):
    """Scores [edges, nodes] of all tails and of all heads, by the formulas of the model."""
    heads, kinds, tails = EDGES.unbind(1)

    def scores(queries):
        return -((queries[:, None] - entities) ** 2).sum(-1)

    turns = torch.tanh(relations[kinds + RELATIONS if reciprocal else kinds])
    forward = scores(entities[heads] + torch.tanh(relations[kinds]))
    return forward, scores(entities[tails] + turns if reciprocal else entities[tails] - turns)


def reference_loss(entities, relations, options):
    """The loss of all edges against all entities, by torch's own functions."""
    total = 0
    shift = options.margin if options.loss == "logistic" else 0
    scores = reference_scores(entities, relations, options.reciprocal)
    for side, target in zip(scores, (EDGES[:, 2], EDGES[:, 0]), strict=True):
        of_all = side + shift
        own = of_all.gather(1, target[:, None])
        if options.loss == "softmax":
            total = total + torch.nn.functional.cross_entropy(of_all, target, reduction="sum")
            continue
        others = torch.ones_like(of_all).scatter_(1, target[:, None], 0)
        if options.loss == "logistic":
            losses = torch.nn.functional.softplus(of_all)
            total = total + torch.nn.functional.softplus(-own).sum()
        else:
            losses = (options.margin + of_all - own).clamp(min=0)
        total = total + (losses * others).sum() / NODES
    return total


@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("loss", ["softmax", "logistic", "margin"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_of_a_new_model(options_of, loss, reciprocal, dtype):
    options = options_of(loss=loss, reciprocal=reciprocal)
    assert options.penalised == "none"  # as of every distance
    tables = [table[:, :DIM].to(dtype) for table in tables_of(options)]
    leaves = [table.double().clone().requires_grad_() for table in tables]
    expected = reference_loss(*leaves, options)
    expected.backward()
    found = gradients_of(
        options, Tables(*tables), EDGES, [(0, NODES)], torch.Generator(), Workspace()
    )
    assert float(found.loss) == pytest.approx(expected.item(), rel=1e-5)
    sums = torch.zeros(NODES, DIM, dtype=torch.float64)
    sums.index_add_(0, found.ids, found.grads.double())
    torch.testing.assert_close(sums, leaves[0].grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.relations.double(), leaves[1].grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_twin", [False, True])
def test_a_new_model_trains_as_adagrad_in_float64_does(options_of, is_twin):
    """Five steps, on the host, and on a GPU without a kernel for it."""
    options = options_of(lr=0.05, init_scale=0.1)
    rows, relations = tables_of(options, spread=0.3)
    parameters = [table[:, :DIM].double().requires_grad_() for table in (rows, relations)]
    adagrad = torch.optim.Adagrad(parameters, lr=options.lr, eps=options.eps)
    trainer = EdgeTrainer(rows, relations, options, is_twin=is_twin)
    for step in range(5):
        found = trainer.train(EDGES, [(0, NODES)], seed=3, step=step)
        adagrad.zero_grad()
        loss = reference_loss(*parameters, options)
        loss.backward()
        adagrad.step()
        assert found.sum == pytest.approx(loss.item(), rel=1e-4)
    for table, expected in zip((rows, relations), parameters, strict=True):
        torch.testing.assert_close(table[:, :DIM].double(), expected.detach(), **CLOSE)


def test_a_new_model_ranks_and_predicts(options_of):
    options = options_of()
    rows, relations = (table[:, :DIM].contiguous() for table in tables_of(options))
    wide = [table.double() for table in (rows, relations)]
    expected = []
    scores = reference_scores(*wide, options.reciprocal)
    for side, target in zip(scores, (EDGES[:, 2], EDGES[:, 0]), strict=True):
        expected.append(1 + (side > side.gather(1, target[:, None])).sum(1))
    blocks = [(first, rows[first : first + 11]) for first in range(0, NODES, 11)]
    found = rank_edges(options, lambda: iter(blocks), relations, EDGES)
    assert found.mrr == pytest.approx(float((1 / torch.cat(expected).double()).mean()))

    queries = wide[0][HEADS] + torch.tanh(wide[1][KINDS])
    ids, _ = best_targets(options, blocks, queries, 4)
    best = reference_scores(*wide, options.reciprocal)[0].float().argsort(1, descending=True)
    assert np.array_equal(ids, best[:, :4])


def test_a_new_model_is_an_option(options_of):
    options = options_of(gpu_scores="stored")
    assert (options.has_relations, options.is_complex, options.is_distance) == (True, False, True)
    assert not any(options.edge_model.takes(kernels) for kernels in ("host", "gpu", "fused"))
    with pytest.raises(ValueError, match=r"one of dot, distmult, complex, transe_l2, got"):
        options_of(gpu_scores="fused")
    with pytest.raises(ValueError, match=r"embed\.model: expected one of 'auto', .*'seventh'"):
        options_of(model="eighth")
    assert summaries().endswith("; seventh: bent")


@pytest.mark.parametrize("model", list(MODELS))
def test_kernels_of_the_models(model):
    takes = {kernels: MODELS[model].takes(kernels) for kernels in ("host", "gpu", "fused")}
    is_product = model in ("dot", "distmult", "complex")
    is_fused = is_product or model == "transe_l2"
    assert takes == {"host": is_product, "gpu": True, "fused": is_fused}


def test_every_functor_is_a_class():
    operators = (Identity, ElementProduct, ComplexProduct, Translation, Rotation)
    comparators = (Dot, Manhattan, Euclidean, Modulus)
    assert {each.functor for each in operators} == set(native.Operator.__members__.values())
    assert {each.functor for each in comparators} == set(native.Comparator.__members__.values())


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=GENERATOR)


def as_complex(rows):
    return torch.complex(*rows.chunk(2, -1))


def times(entity, relation, inverse):
    product = as_complex(entity) * (relation.conj() if inverse else relation)
    return torch.cat((product.real, product.imag), -1)


FORMULAS = {
    ElementProduct: lambda entity, relation, inverse: entity * relation,
    Translation: lambda entity, relation, inverse: entity + (-relation if inverse else relation),
    ComplexProduct: lambda entity, relation, inverse: times(entity, as_complex(relation), inverse),
    Rotation: lambda entity, relation, inverse: times(
        entity, as_complex(relation) / as_complex(relation).abs(), inverse
    ),
}


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("operator", FORMULAS)
def test_backward_passes_of_operators_are_those_of_autograd(operator, inverse):
    grad, entity, relation = (randn(9, 8) for _ in range(3))
    found = operator().backward(grad, entity, relation, inverse)
    leaves = entity.clone().requires_grad_(), relation.clone().requires_grad_()
    queries = FORMULAS[operator](*leaves, inverse)
    torch.testing.assert_close(operator().compose(entity, relation, inverse), queries.detach())
    torch.testing.assert_close(found, torch.autograd.grad(queries, leaves, grad))


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(
    "comparator", [Dot(), Euclidean(), Manhattan(), Modulus()], ids=lambda each: type(each).__name__
)
def test_backward_passes_of_comparators_are_those_of_autograd(comparator, add, monkeypatch):
    monkeypatch.setattr("lsm.embed.models.comparators.BLOCK_BYTES", 3 * 8 * 13 * 8)  # 3 queries
    queries, entities, grad = map(randn, (7, 13, 7), (8, 8, 13))
    scores = torch.empty_like(grad)
    comparator.of_all(queries, entities, scores)
    leaves = [rows.clone().requires_grad_() for rows in (queries, entities)]
    expected = comparator.of_pairs(leaves[0].repeat_interleave(13, 0), leaves[1].repeat(7, 1))
    torch.testing.assert_close(scores, expected.detach().view(7, 13))
    expected.backward(grad.flatten())
    of_queries, of_entities = torch.ones_like(queries), torch.ones_like(entities)
    rows = ScoredRows(queries, entities, of_queries, of_entities)
    comparator.of_all_backward(grad, comparator.save(scores), rows, add)
    torch.testing.assert_close(of_queries, leaves[0].grad)
    torch.testing.assert_close(of_entities, leaves[1].grad + int(add))
