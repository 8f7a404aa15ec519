"""What a GPU does with a batch of edges, by its twins on the host: against float64 on the host."""

import math
from typing import get_args

import pytest
import torch

from lsm.embed.adagrad import initial_rows
from lsm.embed.edge_trainer import EdgeTrainer
from lsm.embed.gradients import gpu_gradients, gpu_kernels
from lsm.embed.gradients.edge_gradients import Tables, Workspace, gradients_of
from lsm.embed.gradients.gpu_gradients import gradients_on_gpu
from lsm.embed.gradients.own_partition import OwnPartition
from lsm.embed.models.models import MODELS
from lsm.embed.options import EmbedOptions, LossName, RegularizerName
from support.adagrad import update_rows_by_torch

NODES, RELATIONS, EDGES = 40, 3, 23
CANDIDATES = [(30, 40), (0, 25)]


def randint(end, *shape, seed):
    return torch.randint(end, shape, generator=torch.Generator().manual_seed(seed))


def random_edges(seed=1):
    columns = [randint(n, EDGES, seed=seed + k) for k, n in enumerate((NODES, RELATIONS, NODES))]
    return torch.stack(columns, 1)


def random_rows(options, count, seed):
    rows = initial_rows(options.model_copy(update={"init_scale": 1.0}), count, seed)
    return rows[:, : options.dim]


def gradients(options, edges=None, own=None):
    """By the twins in float32, and by torch in float64, of the same negatives."""
    edges = random_edges() if edges is None else edges
    tables = Tables(
        random_rows(options, NODES, 3),
        random_rows(options, options.relation_rows(RELATIONS), 4)
        if options.has_relations
        else None,
    )
    wide = Tables(*(None if table is None else table.double() for table in tables))
    return [
        method(options, each, edges, CANDIDATES, torch.Generator().manual_seed(5), Workspace(), own)
        for method, each in ((gradients_on_gpu, tables), (gradients_of, wide))
    ]


def compare(options, edges=None, own=None):
    found, expected = gradients(options, edges, own)
    assert float(found.loss) == pytest.approx(float(expected.loss), rel=1e-4)
    of_rows = [
        torch.zeros(NODES, options.dim, dtype=torch.float64).index_add_(0, g.ids, g.grads.double())
        for g in (found, expected)
    ]
    torch.testing.assert_close(*of_rows, rtol=1e-4, atol=1e-4)
    if options.has_relations:
        pair = found.relations.double(), expected.relations
        torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-4)
    else:
        assert found.relations is None


def options_of(**values):
    base = {"model": "complex", "dim": 6, "chunk": 5, "num_negatives": 30, "margin": 1.5}
    return EmbedOptions(**(base | {"regularizer_weight": 0.3} | values))


@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("regularizer", get_args(RegularizerName))
@pytest.mark.parametrize("loss", get_args(LossName))
@pytest.mark.parametrize("model", MODELS)
def test_gradients(model, loss, regularizer, reciprocal):
    """Five chunks, the last of three edges. Negatives repeat, and some are an edge's own entity."""
    compare(options_of(model=model, loss=loss, regularizer=regularizer, reciprocal=reciprocal))


@pytest.mark.parametrize("edges_at_once", [1, 2, 5, 7, 11, 1000])
@pytest.mark.parametrize("model", ["complex", "transe_l1", "transe_l2"])
def test_blocks_of_any_size_have_the_same_gradients(model, edges_at_once, monkeypatch):
    monkeypatch.setattr(gpu_gradients, "SCORE_BYTES", 4 * 30 * edges_at_once)
    compare(options_of(model=model))


@pytest.mark.parametrize(("chunks", "count"), [(0, 10), (1, 10), (2, 6), (4, 4)])
@pytest.mark.parametrize("model", ["complex", "transe_l1", "transe_l2"])
def test_blocks_of_several_chunks_have_the_same_gradients(model, chunks, count, monkeypatch):
    """Of each side four whole chunks, and a rest. Distances by L1 are native: equal to the bit.
    Torch's product of two matrices may sum in another order than its product of many."""
    expected, _ = gradients(options_of(model=model))
    calls, losses = [], gpu_kernels.losses
    monkeypatch.setattr(gpu_kernels, "losses", lambda *each: calls.append(losses(*each)))
    monkeypatch.setattr(gpu_gradients, "_cached_bytes", lambda _device: 4 * 30 * 5 * chunks)
    found, _ = gradients(options_of(model=model))
    assert len(calls) == count
    tolerance = 0 if model == "transe_l1" else 1e-5
    torch.testing.assert_close(found.loss, expected.loss, rtol=tolerance, atol=0)
    torch.testing.assert_close(found.grads, expected.grads, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("num_negatives", [30, "all"])
@pytest.mark.parametrize("model", MODELS)
def test_scores_in_the_partition_of_the_other_node_are_shifted(model, num_negatives):
    own = OwnPartition(rows=10, shift=-1.25)
    compare(options_of(model=model, num_negatives=num_negatives), own=own)


@pytest.mark.parametrize("model", MODELS)
def test_all_candidates_are_negatives_of_both_sides(model, monkeypatch):
    monkeypatch.setattr(gpu_gradients, "SCORE_BYTES", 4 * 35 * 4)
    compare(options_of(model=model, num_negatives="all"))


@pytest.mark.parametrize("dim", [1, 33, 100, 258])
def test_rows_of_any_length(dim):
    model = "distmult" if dim % 2 else "complex"
    compare(options_of(model=model, dim=dim, regularizer="n3", init_scale=0.1))


@pytest.mark.parametrize("num_negatives", [4, "all"])
def test_a_batch_without_edges_has_no_gradients(num_negatives):
    found, _ = gradients(options_of(num_negatives=num_negatives), random_edges()[:0])
    assert found.loss == 0
    assert not found.grads.any()
    assert not found.relations.any()


def test_equal_rows_have_finite_gradients():
    for model in ("transe_l1", "transe_l2", "rotate"):
        options = options_of(model=model, loss="margin")
        tables = Tables(torch.ones(NODES, 6), torch.zeros(2 * RELATIONS, 6))
        found = gradients_on_gpu(
            options, tables, random_edges(), CANDIDATES, torch.Generator(), Workspace()
        )
        assert torch.isfinite(found.grads).all()
        assert torch.isfinite(found.relations).all()


def test_dropout_is_that_of_the_queries(monkeypatch):
    """A query with dropped floats has the gradients of one whose entity and relation lack them."""
    options = options_of(model="distmult", dropout=0.4, regularizer="none")
    drawn = []
    form = gpu_kernels.form_queries

    def recorded(rows, queries, positives):
        form(rows, queries, positives)
        drawn.append((rows, queries.clone(), positives.clone()))

    monkeypatch.setattr(gpu_kernels, "form_queries", recorded)
    found, _ = gradients(options)
    ((rows, queries, positives),) = drawn
    share = (rows.dropout == 0).double().mean().item()
    assert share == pytest.approx(0.4, abs=0.15)
    assert set(rows.dropout.unique().tolist()) <= {0.0, torch.tensor(1 / 0.6).item()}
    leaves = [table.double().requires_grad_() for table in (rows.entities, rows.relations)]
    expected = leaves[0][rows.ends] * leaves[1][rows.relation_rows] * rows.dropout.double()
    torch.testing.assert_close(queries.double(), expected.detach(), rtol=1e-5, atol=1e-6)
    targets = leaves[0][rows.ends.flip(0)]
    scores = (expected * targets).sum(2)
    torch.testing.assert_close(positives.double(), scores.detach(), rtol=1e-4, atol=1e-5)
    negatives = found.ids[2 * EDGES :].view(2, 5, 30)
    total = 0
    for side in range(2):
        for edge in range(EDGES):
            ids = negatives[side, edge // 5]
            ids = ids[ids != rows.ends[1 - side, edge]]
            others = leaves[0][ids] @ expected[side, edge]
            total = total + torch.cat((scores[side, edge, None], others)).logsumexp(0)
            total = total - scores[side, edge]
    total.backward()
    assert float(found.loss) == pytest.approx(total.item(), rel=1e-4)
    of_rows = torch.zeros(NODES, 6, dtype=torch.float64)
    of_rows.index_add_(0, found.ids, found.grads.double())
    torch.testing.assert_close(of_rows, leaves[0].grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.relations.double(), leaves[1].grad, rtol=1e-4, atol=1e-4)


IDS = {
    "distinct": torch.randperm(700, generator=torch.Generator().manual_seed(1)),
    "few": randint(3, 700, seed=2),
    "one": torch.full((700,), 5),
    "one window": torch.full((128,), 5),
    "skewed": (randint(700, 900, seed=3).double() ** 3 / 700**2).long(),
    "none": torch.empty(0, dtype=torch.int64),
}


@pytest.mark.parametrize("optimizer", ["adagrad", "row_adagrad"])
@pytest.mark.parametrize("dim", [1, 31, 100, 300])
@pytest.mark.parametrize("case", IDS)
def test_updates(case, dim, optimizer):
    options = EmbedOptions(model="distmult", dim=dim, optimizer=optimizer, lr=0.3)
    ids, generator = IDS[case], torch.Generator().manual_seed(6)
    grads = torch.randn(len(ids), dim, generator=generator)
    rows = torch.rand(700, options.width, generator=generator)
    expected = rows.double()
    update_rows_by_torch(options, expected, ids, grads.double())
    gpu_kernels.update_rows(options, rows, ids, grads)
    torch.testing.assert_close(rows.double(), expected, rtol=1e-5, atol=1e-5)
    sums = torch.zeros(700, dim, dtype=torch.float64).index_add_(0, ids, grads.double())
    torch.testing.assert_close(
        gpu_kernels.sum_rows(ids, grads, 700).double(), sums, rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize("scale", [0.01, 30.0, 300.0])
@pytest.mark.parametrize("num_negatives", [1, 31, 1000])
@pytest.mark.parametrize("loss", get_args(LossName))
def test_losses(loss, num_negatives, scale):  # of edges whose scores are not shifted
    count, chunks, margin, shift = 30, 3, 2.0, 0.5
    generator = torch.Generator().manual_seed(7)
    scores = scale * torch.randn(count, num_negatives, generator=generator)
    positives = scale * torch.randn(count, generator=generator)
    ids = torch.randint(9, (chunks, num_negatives), generator=generator).int()
    missing = torch.randint(9, (count,), generator=generator).int()
    leaves = [tensor.double().requires_grad_() for tensor in (positives, scores)]
    own = ids.repeat_interleave(count // chunks, 0) == missing[:, None]
    of_edges, of_negatives = leaves[0][:, None] + shift, leaves[1] + shift
    if loss == "softmax":
        both = torch.cat((of_edges, of_negatives.masked_fill(own, -torch.inf)), 1)
        expected = both.logsumexp(1) - of_edges[:, 0]
    else:
        softplus = torch.nn.functional.softplus
        each = (
            softplus(of_negatives)
            if loss == "logistic"
            else (margin - of_edges + of_negatives).clamp(min=0)
        )
        expected = each.masked_fill(own, 0).sum(1) / num_negatives
        if loss == "logistic":
            expected = expected + softplus(-of_edges[:, 0])
    expected.sum().backward()
    out = torch.empty(count)
    gpu_kernels.losses(loss, margin, shift, ids, missing, None, None, scores, positives, out)
    rtol = 1e-5 + scale * 1e-6  # the spacing of floats at the largest score
    torch.testing.assert_close(out.double(), expected.detach(), rtol=rtol, atol=1e-5)
    torch.testing.assert_close(scores.double(), leaves[1].grad, rtol=rtol, atol=1e-6)
    torch.testing.assert_close(positives.double(), leaves[0].grad, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adagrad", "row_adagrad"])
@pytest.mark.parametrize("model", MODELS)
def test_steps_of_a_gpu_are_those_of_the_host(model, optimizer):
    options = options_of(model=model, optimizer=optimizer, regularizer="n3", init_scale=0.5)
    tables = []
    for is_twin in (True, False):
        rows = initial_rows(options, NODES, 1)
        relations = initial_rows(options, options.relation_rows(RELATIONS), 2)
        trainer = EdgeTrainer(rows, relations, options, is_twin=is_twin)
        for step in range(3):
            trainer.train(random_edges(step), CANDIDATES, seed=4, step=step)
        tables.append((rows, relations))
    for found, expected in zip(*tables, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("num_negatives", [8, "all"])
@pytest.mark.parametrize("degree_fraction", [0.0, 0.5])
def test_a_batch_without_edges_changes_nothing(num_negatives, degree_fraction):
    """Only other ranks have edges left."""
    options = options_of(num_negatives=num_negatives, degree_fraction=degree_fraction)
    rows = initial_rows(options, NODES, 1)
    relations = initial_rows(options, options.relation_rows(RELATIONS), 2)
    before = rows.clone()
    trainer = EdgeTrainer(rows, relations, options, is_twin=True)
    loss = trainer.train(random_edges()[:0], CANDIDATES, 1, 3)
    assert (loss.sum, loss.count) == (0, 0)
    assert torch.equal(rows, before)


def test_the_caller_looks_at_a_loss_that_is_not_finite():
    """The trainer would have to wait for it."""
    options = options_of()
    rows = initial_rows(options, NODES, 1)
    relations = initial_rows(options, options.relation_rows(RELATIONS), 2)
    edges = random_edges()
    rows[int(edges[0, 0]), 0] = torch.nan
    trainer = EdgeTrainer(rows, relations, options, is_twin=True)
    loss = trainer.train(edges, CANDIDATES, 1, 3)
    assert math.isnan(loss.sum)
    assert loss.count == 2 * len(edges)


def test_bad_input_is_named():
    options = options_of()
    rows = initial_rows(options, NODES, 1)
    ids = torch.tensor([1, 2])
    with pytest.raises(ValueError, match=r"gradients: expected dtype float32, got float64"):
        gpu_kernels.update_rows(options, rows, ids, torch.zeros(2, 6, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"rows: expected 10 or 6 floats a row, got 12"):
        gpu_kernels.update_rows(options, rows, ids, torch.zeros(2, 5))
