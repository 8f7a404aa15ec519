"""Kernels of embeddings on a GPU: against float64 there, and the same bits when called again."""

from typing import get_args

import pytest
import torch

from lsm.embed.adagrad import initial_rows
from lsm.embed.gradients import gpu_kernels
from lsm.embed.gradients.edge_gradients import Tables, Workspace, gradients_of
from lsm.embed.gradients.gpu_gradients import gradients_on_gpu
from lsm.embed.models.models import MODELS, models_for
from lsm.embed.options import EmbedOptions, LossName
from support.adagrad import update_rows_by_torch
from support.gpus import ON_A_GPU

pytestmark = ON_A_GPU

GPU = "cuda:0"
NODES, RELATIONS, EDGES = 500, 7, 3000


def random_edges():
    generator = torch.Generator().manual_seed(1)
    columns = [torch.randint(n, (EDGES,), generator=generator) for n in (NODES, RELATIONS, NODES)]
    return torch.stack(columns, 1).to(GPU)


@pytest.fixture
def tf32():
    """Tensor cores multiply. float32 is what other tests of this process expect."""
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("loss", get_args(LossName))
@pytest.mark.parametrize("model", MODELS)
def test_gradients(model, loss):
    # Gradients jump where float64 has another sign: of a difference in transe_l1, of the distance
    # to the margin in that loss.
    jumps = model == "transe_l1" or loss == "margin"
    compare(model=model, loss=loss, atol=1e-2 if jumps else 1e-3)


@pytest.mark.parametrize("dim", [100, 200, 512])
@pytest.mark.parametrize("model", models_for("fused"))
def test_gradients_of_the_fused_softmax(model, dim):
    compare(model=model, dim=dim, gpu_scores="fused")


@pytest.mark.usefixtures("tf32")
@pytest.mark.parametrize("gpu_scores", ["stored", "fused"])
@pytest.mark.parametrize("model", models_for("fused"))
def test_gradients_by_tf32(model, gpu_scores):
    """With ten bits of mantissa."""
    compare(model=model, gpu_scores=gpu_scores, rtol=2e-2, atol=2e-2)


def compare(rtol=1e-3, atol=1e-3, dim=100, **values):
    options = EmbedOptions(
        dim=dim,
        num_negatives="all",
        regularizer="n3",
        regularizer_weight=0.01,
        init_scale=0.3 * (100 / dim) ** 0.5,
        **values,
    )
    rows = initial_rows(options, NODES, 1)[:, :dim].to(GPU)
    relations = initial_rows(options, options.relation_rows(RELATIONS), 2)[:, :dim].to(GPU)
    tables = Tables(rows, relations if options.has_relations else None)
    wide = Tables(*(None if table is None else table.double() for table in tables))
    found, again, expected = (
        method(options, each, random_edges(), [(0, 400)], torch.Generator(GPU), Workspace())
        for method, each in (
            (gradients_on_gpu, tables),
            (gradients_on_gpu, tables),
            (gradients_of, wide),
        )
    )
    assert float(found.loss) == float(again.loss)
    assert torch.equal(found.grads, again.grads)
    assert float(found.loss) == pytest.approx(float(expected.loss), rel=rtol / 10)
    sums = [
        torch.zeros(NODES, dim, dtype=torch.float64, device=GPU).index_add_(
            0, g.ids, g.grads.double()
        )
        for g in (found, expected)
    ]
    torch.testing.assert_close(*sums, rtol=rtol, atol=atol)
    if options.has_relations:
        assert torch.equal(found.relations, again.relations)
        pair = found.relations.double(), expected.relations
        torch.testing.assert_close(*pair, rtol=rtol, atol=atol)


@pytest.mark.parametrize("optimizer", ["adagrad", "row_adagrad"])
@pytest.mark.parametrize("dim", [1, 100, 300])
@pytest.mark.parametrize("most", [1, 5, 400_000])
def test_updates(most, dim, optimizer):
    """One row with all gradients, a few with many each, and many with few."""
    options = EmbedOptions(model="distmult", dim=dim, optimizer=optimizer)
    generator = torch.Generator(GPU).manual_seed(3)
    ids = torch.randint(most, (50_000,), generator=generator, device=GPU)
    grads = torch.randn(len(ids), dim, generator=generator, device=GPU)
    start = torch.rand(most, options.width, generator=generator, device=GPU)
    rows, again, expected = start.clone(), start.clone(), start.double()
    gpu_kernels.update_rows(options, rows, ids, grads)
    gpu_kernels.update_rows(options, again, ids, grads)
    update_rows_by_torch(options, expected, ids, grads.double())
    assert torch.equal(rows, again)
    torch.testing.assert_close(rows.double(), expected, rtol=1e-3, atol=1e-3)
