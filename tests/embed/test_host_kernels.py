"""Native kernels in float32 against torch in float64, of sizes around whole vectors."""

import pytest
import torch
from torch.nn import functional

from lsm import native
from lsm.embed.models.comparators import Manhattan, Modulus
from lsm.embed.models.kernels import ScoredRows

THREADS = [1, 3]


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("num_threads", THREADS)
@pytest.mark.parametrize("num_negatives", [1, 15, 16, 17, 1000])
@pytest.mark.parametrize("scale", [0.01, 3.0, 300.0])
def test_softmax_is_cross_entropy(scale, num_negatives, num_threads):
    positives, negatives = scale * randn(70), scale * randn(70, num_negatives, seed=1)
    negatives[::3, -1] = -torch.inf  # left out
    scores = torch.cat((positives[:, None], negatives), 1).double().requires_grad_()
    expected = functional.cross_entropy(scores, torch.zeros(70, dtype=torch.int64), reduction="sum")
    expected.backward()
    loss = native.softmax_loss(positives, negatives, native.ThreadPool(num_threads))
    assert loss == pytest.approx(expected.item(), rel=1e-5, abs=1e-5)
    # The spacing of floats at the largest score is an absolute error of exponents.
    rtol = 1e-5 + scale * 1e-6
    torch.testing.assert_close(positives.double(), scores.grad[:, 0], rtol=rtol, atol=1e-6)
    torch.testing.assert_close(negatives.double(), scores.grad[:, 1:], rtol=rtol, atol=1e-6)
    assert not negatives[::3, -1].any()


def test_a_nan_among_the_scores_makes_the_loss_nan():
    for place in (0, 20, 32):
        negatives = randn(1, 33)
        negatives[0, place] = torch.nan
        loss = native.softmax_loss(torch.zeros(1), negatives, native.ThreadPool(1))
        assert loss != loss


@pytest.mark.parametrize("conjugate", [False, True])
@pytest.mark.parametrize("dim", [2, 32, 34, 100])
def test_products_are_those_of_complex_numbers(dim, conjugate):
    pool = native.ThreadPool(2)
    a, b, grad = (randn(200, dim, seed=seed) for seed in range(3))
    leaves = [t.double().requires_grad_() for t in (a, b)]
    first, second = (torch.complex(*t.chunk(2, 1)) for t in leaves)
    product = first * (second.conj() if conjugate else second)
    expected = torch.cat((product.real, product.imag), 1)
    expected.backward(grad.double())
    out, of_a, of_b = (torch.empty_like(a) for _ in range(3))
    native.complex_product(a, b, out, conjugate, pool)
    native.complex_product_backward(grad, a, b, of_a, of_b, conjugate, pool)
    torch.testing.assert_close(out.double(), expected.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(of_a.double(), leaves[0].grad, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(of_b.double(), leaves[1].grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("num_threads", THREADS)
@pytest.mark.parametrize(
    ("num_queries", "num_entities", "dim"), [(1, 1, 2), (9, 130, 38), (20, 300, 64)]
)
@pytest.mark.parametrize("comparator", [Manhattan(), Modulus()])
def test_distances_and_gradients_of_all_pairs(
    comparator, num_queries, num_entities, dim, num_threads
):
    pool = native.ThreadPool(num_threads)
    queries, entities = randn(num_queries, dim), randn(num_entities, dim, seed=1)
    entities[0] = queries[0]  # a distance of 0
    grad = randn(num_queries, num_entities, seed=2)
    out, of_queries, of_entities = (
        torch.empty(shape) for shape in (grad.shape, queries.shape, entities.shape)
    )
    native.distance_scores(comparator.functor, queries, entities, out, pool)
    native.distance_scores_backward(
        comparator.functor, grad, queries, entities, of_queries, of_entities, pool
    )
    wide = queries.double(), entities.double()
    expected = torch.empty(entities.shape, dtype=torch.float64)
    expected_of_queries = torch.empty(queries.shape, dtype=torch.float64)
    rows = ScoredRows(*wide, expected_of_queries, expected)
    comparator.of_all_backward(grad.double(), None, rows, add=False)
    distances = grad.double()
    comparator.of_all(*wide, distances)
    torch.testing.assert_close(out.double(), distances, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(of_queries.double(), expected_of_queries, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(of_entities.double(), expected, rtol=1e-4, atol=1e-4)


def test_wrong_shapes_are_named():
    pool = native.ThreadPool(1)
    with pytest.raises(ValueError, match=r"negatives: expected \[3, 4\]"):
        native.softmax_loss(torch.zeros(3), torch.zeros(2, 4), pool)
    with pytest.raises(ValueError, match=r"positives: expected \[3\]"):
        native.softmax_loss(torch.zeros(3, 50), torch.zeros(3, 4), pool)
    with pytest.raises(ValueError, match="rows: expected 8 or 5 floats a row, got 7"):
        native.update_rows(
            torch.zeros(2, 7),
            torch.zeros(1, dtype=torch.int64),
            torch.zeros(1, 4),
            0.1,
            1e-10,
            pool,
        )
    with pytest.raises(ValueError, match=r"b: expected \[3, 4\]"):
        native.complex_product(torch.zeros(3, 4), torch.zeros(3, 2), torch.zeros(3, 4), False, pool)
    with pytest.raises(ValueError, match=r"entities: expected \[5, 4\]"):
        native.distance_scores(
            native.Comparator.MANHATTAN,
            torch.zeros(3, 4),
            torch.zeros(5, 3),
            torch.zeros(3, 5),
            pool,
        )


@pytest.mark.parametrize("num_threads", THREADS)
@pytest.mark.parametrize("width", [7, 14])
def test_rows_that_lie_apart_are_taken(width, num_threads):
    table, ids = randn(90, width), torch.randint(90, (300,))
    out = torch.empty(300, 7)
    native.gather_embeddings(table[:, :7], ids, out, native.ThreadPool(num_threads))
    assert torch.equal(out, table[ids, :7])
    with pytest.raises(ValueError, match=r"ids: expected ids in \[0, 90\), got 90"):
        native.gather_embeddings(table[:, :7], ids.fill_(90), out, native.ThreadPool(num_threads))


OPERATORS = [
    native.Operator.IDENTITY,
    native.Operator.ELEMENT_PRODUCT,
    native.Operator.COMPLEX_PRODUCT,
]


@pytest.mark.parametrize("num_threads", THREADS)
@pytest.mark.parametrize("conjugate", [False, True])
@pytest.mark.parametrize("dim", [2, 16, 34, 100])
@pytest.mark.parametrize("operator", OPERATORS)
def test_queries_and_their_gradients_are_those_of_autograd(operator, dim, conjugate, num_threads):
    pool = native.ThreadPool(num_threads)
    entities, relations, targets, of_queries = (randn(150, dim, seed=seed) for seed in range(4))
    of_scores = randn(150, seed=4)
    leaves = [rows.double().requires_grad_() for rows in (entities, relations, targets)]
    if operator == native.Operator.COMPLEX_PRODUCT:
        first, second = (torch.complex(*rows.chunk(2, 1)) for rows in leaves[:2])
        product = first * (second.conj() if conjugate else second)
        expected = torch.cat((product.real, product.imag), 1)
    else:
        expected = leaves[0] * (leaves[1] if operator == native.Operator.ELEMENT_PRODUCT else 1)
    expected_scores = (expected * leaves[2]).sum(1)
    (expected * of_queries.double()).sum().backward(retain_graph=True)
    expected_scores.backward(of_scores.double())

    edges = (operator, conjugate, entities, relations, targets)
    queries, scores = torch.empty_like(entities), torch.empty(150)
    native.make_queries(*edges, queries, scores, pool)
    torch.testing.assert_close(queries.double(), expected.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(scores.double(), expected_scores.detach(), rtol=1e-5, atol=1e-5)
    close = {"rtol": 1e-5, "atol": 1e-5}
    for add, before, kept in ((False, torch.nan, 0.0), (True, 1.0, 1.0)):
        of_entities, of_targets = (torch.full_like(rows, before) for rows in (entities, targets))
        of_relations = of_queries.clone()
        native.query_gradients(
            *edges, queries, of_scores, of_relations, of_entities, of_targets, add, pool
        )
        torch.testing.assert_close(of_entities.double() - kept, leaves[0].grad, **close)
        torch.testing.assert_close(of_targets.double() - kept, leaves[2].grad, **close)
        if operator != native.Operator.IDENTITY:
            torch.testing.assert_close(of_relations.double(), leaves[1].grad, **close)
