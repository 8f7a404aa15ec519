"""Losses and metrics of classes, of several labels and of numbers, against torch and counting."""

import decimal
import itertools
import json
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch_geometric.data import Data

import lsm
from lsm.distributed.environment import World
from lsm.nn.models import build_model
from lsm.nn.options import ModelOptions
from lsm.train.tasks.losses import open_loss
from lsm.train.tasks.metrics import METRICS
from lsm.train.tasks.tally import MetricTally
from lsm.train.trainer import train
from support.training import config, losses, make_store, overrides, run_job

QUIET = ("storage.engine=memory",)
NUM_NODES, LABELS = 400, 3


def data_with(labels):
    """A graph whose features tell three labels of 0 or 1, or their sum."""
    rng = np.random.default_rng(0)
    flags = rng.random((NUM_NODES, LABELS)) < [0.5, 0.3, 0.1]
    x = rng.standard_normal((NUM_NODES, 8)) + 2 * flags @ rng.standard_normal((LABELS, 8))
    data = Data(
        x=torch.from_numpy(x).float(),
        edge_index=torch.from_numpy(rng.integers(NUM_NODES, size=(2, 1600))),
    )
    data.y = torch.from_numpy(flags).long()
    if labels == "values":
        data.y = torch.from_numpy(flags @ [1.0, -2.0, 4.0] + 0.5).float()
    if labels == "unknown":
        data.y[rng.random((NUM_NODES, LABELS)) < 0.2] = -1
        data.y[:, 0] = torch.from_numpy(flags[:, 0]).long()
    part = torch.from_numpy(rng.integers(4, size=NUM_NODES))
    data.train_mask, data.val_mask, data.test_mask = part < 2, part == 2, part == 3
    return data


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    path = tmp_path_factory.mktemp("labelled")
    for kind in ("flags", "values", "unknown"):
        lsm.GraphStore.from_pyg(data_with(kind), path / kind)
    make_store(path / "classes")
    return path


def draw(kind, count=50, width=4, seed=0):
    """Outputs with ties, and labels of a kind."""
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randint(-4, 5, (count, width), generator=generator) / 2
    if kind == "classes":
        return outputs, torch.randint(
            width - 1, (count,), generator=generator
        )  # the last is absent
    labels = torch.randint(-1, 2, (count, width), generator=generator)
    labels[:, 0] = labels[:, 0].clamp(min=0)
    labels[:, 2] = 0
    return outputs, labels


def tallied(name, outputs, labels, sizes):
    tally = MetricTally([METRICS[name]])
    for own, of in zip(outputs.split(sizes), labels.split(sizes), strict=True):
        batch = type("Batch", (), {"y": of, "batch_size": len(of)})
        tally.add(lambda _batch, own=own: own, batch)
    return tally.metrics(World())[name]


def columns_of(outputs, labels):
    """Scores and flags of each class or label, as plain lists."""
    if labels.dim() == 1:
        shares = outputs.softmax(1)
        return [(shares[:, c].tolist(), (labels == c).tolist()) for c in range(outputs.size(1))]
    known = labels >= 0
    return [
        (outputs[known[:, c], c].tolist(), (labels[known[:, c], c] == 1).tolist())
        for c in range(outputs.size(1))
    ]


def pairs_in_order(scores, flags):
    ones = [s for s, flag in zip(scores, flags, strict=True) if flag]
    zeros = [s for s, flag in zip(scores, flags, strict=True) if not flag]
    won = [1.0 * (a > b) + 0.5 * (a == b) for a, b in itertools.product(ones, zeros)]
    return sum(won) / len(won)


def area_of_steps(scores, flags):
    """Precision times the growth of recall, over thresholds from the highest."""
    total, area, before = sum(flags), 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        chosen = [flag for s, flag in zip(scores, flags, strict=True) if s >= threshold]
        recall = sum(chosen) / total
        area += (recall - before) * sum(chosen) / len(chosen)
        before = recall
    return area


@pytest.mark.parametrize("kind", ["classes", "labels"])
@pytest.mark.parametrize(
    ("name", "of_column"), [("auroc", pairs_in_order), ("average_precision", area_of_steps)]
)
def test_curves_are_those_of_pairs_and_thresholds(name, of_column, kind):
    outputs, labels = draw(kind)
    found = [of_column(*each) for each in columns_of(outputs, labels) if sum(each[1]) > 0]
    assert len(found) == 3  # the class that is absent and the label that all lack do not count
    assert METRICS[name].value(outputs, labels) == pytest.approx(np.mean(found), abs=1e-12)


@pytest.mark.parametrize(
    ("name", "of_column"), [("auroc", pairs_in_order), ("average_precision", area_of_steps)]
)
def test_shares_that_round_to_one_are_no_ties(name, of_column):
    """The reference has shares of 400 digits."""
    labels = draw("classes")[1]
    outputs = 25 * torch.randn(50, 4, generator=torch.Generator().manual_seed(1))
    flags = functional.one_hot(labels, outputs.size(1)).bool()
    found = []
    with decimal.localcontext(decimal.Context(prec=400)):
        powers = [[decimal.Decimal(each).exp() for each in row] for row in outputs.tolist()]
        for column in range(outputs.size(1)):
            shares = [row[column] / sum(row) for row in powers]
            if flags[:, column].any():
                found.append(of_column(shares, flags[:, column].tolist()))
    rounded = outputs.softmax(1)
    assert (rounded == 1).sum() > 5
    assert METRICS[name].value(outputs, labels) == pytest.approx(np.mean(found), abs=1e-12)


def test_a_curve_of_two_classes_is_that_of_the_second():
    outputs, labels = draw("classes", width=2)
    labels = torch.arange(50) % 2
    scores = (outputs[:, 1] - outputs[:, 0]).tolist()
    expected = pairs_in_order(scores, (labels == 1).tolist())
    assert METRICS["auroc"].value(outputs, labels) == pytest.approx(expected, abs=1e-12)
    assert METRICS["auroc"].value(outputs, torch.zeros(50, dtype=torch.int64)) is None


@pytest.mark.parametrize("kind", ["classes", "labels"])
@pytest.mark.parametrize("name", ["f1_micro", "f1_macro"])
def test_f1_is_that_of_counting(name, kind):
    outputs, labels = draw(kind)
    counts = []
    for column in range(outputs.size(1)):
        if kind == "classes":
            found, wanted = outputs.argmax(1) == column, labels == column
        else:
            rows = labels[:, column] >= 0
            found, wanted = outputs[rows, column] > 0, labels[rows, column] == 1
        pairs = list(zip(found.tolist(), wanted.tolist(), strict=True))
        counts.append([pairs.count(each) for each in ((1, 1), (1, 0), (0, 1))])
    f1 = [2 * right / (2 * right + wrong + missed) for right, wrong, missed in counts]
    right, wrong, missed = np.sum(counts, axis=0)
    expected = np.mean(f1) if name == "f1_macro" else 2 * right / (2 * right + wrong + missed)
    assert tallied(name, outputs, labels, [20, 0, 30]) == pytest.approx(expected)
    if (name, kind) == ("f1_micro", "classes"):
        assert expected == tallied("accuracy", outputs, labels, [50])


@pytest.mark.parametrize("name", ["rmse", "mae"])
def test_errors_skip_unknown_numbers(name):
    outputs, _ = draw("labels")
    labels = torch.randn(50, 4, generator=torch.Generator().manual_seed(1))
    labels[3], labels[5, 1] = torch.nan, torch.nan
    known = ~labels.isnan()
    errors = (outputs - labels)[known].double().numpy()
    expected = np.sqrt(np.mean(errors**2)) if name == "rmse" else np.abs(errors).mean()
    assert tallied(name, outputs, labels, [20, 30]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "of_torch", "kind"),
    [
        ("bce", functional.binary_cross_entropy_with_logits, "labels"),
        ("mse", functional.mse_loss, "values"),
        ("mae", functional.l1_loss, "values"),
    ],
)
def test_losses_are_those_of_torch(name, of_torch, kind):
    outputs, labels = draw("labels")
    labels = labels.clamp(min=0)
    if kind == "values":
        labels = labels + torch.rand(labels.shape, generator=torch.Generator().manual_seed(3))
    loss = open_loss(name, None, 0.0)
    torch.testing.assert_close(loss.sum(outputs, labels) / 50, of_torch(outputs, labels.float()))
    flat = labels[:, 0] if kind == "values" else labels[:, :1]
    torch.testing.assert_close(
        loss.sum(outputs[:, :1], flat) / 50, of_torch(outputs[:, 0], labels[:, 0].float())
    )
    outputs.requires_grad_()
    assert loss.sum(outputs[:0], labels[:0]).requires_grad
    if kind == "labels":
        labels[7, 1:] = -1
        alone = of_torch(outputs[7:8, :1], labels[7:8, :1].float())
        torch.testing.assert_close(loss.sum(outputs[7:8], labels[7:8]), alone)


RUNS = {
    "flags": ("train.loss=bce", "train.metrics=[auroc, f1_micro, f1_macro, average_precision]"),
    "unknown": ("train.loss=bce", "train.metrics=[average_precision]"),
    "values": ("train.loss=mse", "train.metrics=[mae, rmse]"),
    "classes": ("train.metrics=[f1_macro, accuracy, auroc]",),
}


def epochs_of(run_dir):
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == "epoch"]


def test_a_run_whose_validations_have_no_metric_tests_its_last_model(tmp_path, caplog):
    nodes, y = torch.arange(60), torch.arange(60) % 2
    graph = Data(x=torch.randn(60, 8), edge_index=torch.randint(60, (2, 300)), y=y)
    graph.train_mask, graph.test_mask = nodes < 30, nodes >= 50
    graph.val_mask = (nodes >= 30) & (nodes < 50) & (y == 1)
    lsm.GraphStore.from_pyg(graph, tmp_path / "store")
    settings = (*QUIET, "train.epochs=2", "train.metrics=auroc")
    summary = train(config(tmp_path / "store", tmp_path / "run", *settings))
    assert summary["valid_auroc"] is None
    assert summary["test_auroc"] is not None
    assert (
        "no validation had a value of auroc, so the model of the last epoch is tested"
        in caplog.text
    )


@pytest.mark.parametrize("kind", RUNS)
def test_the_first_metric_selects_the_model(stores, tmp_path, kind):
    settings = (*QUIET, "train.epochs=8", *RUNS[kind], "train.eval.num_neighbors=[-1, -1]")
    summary = train(config(stores / kind, tmp_path, *settings))
    first = {"flags": "auroc", "unknown": "average_precision", "values": "mae"}.get(
        kind, "f1_macro"
    )
    assert next(iter(summary)) == f"test_{first}"
    best = (min if kind == "values" else max)(
        epochs_of(tmp_path), key=lambda record: record[f"valid_{first}"]
    )
    assert (summary["best_epoch"], summary[f"valid_{first}"]) == (
        best["epoch"],
        best[f"valid_{first}"],
    )
    store, model = lsm.GraphStore.open(stores / kind), lsm.load_model(tmp_path)
    with torch.inference_mode(), lsm.NeighborLoader(store, [-1, -1], "test", 999) as loader:
        (batch,) = loader
        outputs = model(batch)
    for name in ("f1_macro", "auroc", "mae", "rmse"):
        if f"test_{name}" in summary:
            expected = tallied(name, outputs, batch.y, [len(batch.y)])
            assert summary[f"test_{name}"] == pytest.approx(expected, rel=1e-5)
    good = {"mae": summary[f"test_{first}"] < 1.5}
    assert good.get(first, summary[f"test_{first}"] > 0.7)


def test_a_run_resumes_with_the_same_losses_and_scores(stores, tmp_path):
    settings = (*QUIET, "train.epochs=4", "train.loss=mae", "checkpoint.every_steps=2")
    store = stores / "values"
    whole = train(config(store, tmp_path / "whole", *settings))
    train(config(store, tmp_path / "cut", *settings))
    (tmp_path / "cut/result.json").unlink()
    kept, *others = sorted((tmp_path / "cut/checkpoints").iterdir())
    for other in others:
        other.unlink()
    again = train(config(store, tmp_path / "cut", *settings, f"checkpoint.resume={kept}"))
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    for name in ("test_mae", "valid_mae", "best_epoch"):
        assert again[name] == whole[name]


@pytest.mark.slow
def test_ranks_have_the_metrics_of_one(stores, tmp_path):
    """Of a run without training, whose model has the same first weights."""
    settings = (
        *QUIET,
        *RUNS["unknown"][:1],
        "train.metrics=[auroc, f1_micro, f1_macro, average_precision]",
        "train.epochs=1",
        "train.lr=1e-30",
        "train.eval.num_neighbors=[-1, -1]",
    )
    summary = train(config(stores / "unknown", tmp_path / "one", *settings))
    arguments = overrides(stores / "unknown", tmp_path / "two", *settings)
    job = run_job(2, "-m", "lsm", "train", "base", *arguments)
    assert job.returncode == 0, job.stderr
    result = json.loads((tmp_path / "two/result.json").read_text())
    for name in ("auroc", "f1_micro", "f1_macro", "average_precision"):
        assert result[f"test_{name}"] == pytest.approx(summary[f"test_{name}"], rel=1e-9)


OWN = """
import torch
from torch.nn import functional


def of_each(outputs, labels):
    return functional.cross_entropy(outputs, labels, reduction="none")


def of_batch(outputs, labels):
    return functional.cross_entropy(outputs, labels)


class Smooth(torch.nn.SmoothL1Loss):
    pass


def wrong(outputs, labels):
    return outputs
"""


@pytest.fixture
def own_losses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_losses", raising=False)
    (tmp_path / "own_losses.py").write_text(OWN)


@pytest.mark.parametrize("name", ["of_each", "of_batch"])
def test_an_own_loss_that_is_cross_entropy_trains_the_same(stores, tmp_path, own_losses, name):
    train(config(stores / "classes", tmp_path / "known", *QUIET))
    summary = train(
        config(stores / "classes", tmp_path / "own", *QUIET, f"train.loss=own_losses:{name}")
    )
    found, expected = (losses(tmp_path / each) for each in ("own", "known"))
    np.testing.assert_allclose(
        [loss for *_, loss in found], [loss for *_, loss in expected], rtol=1e-4
    )
    assert "test_accuracy" in summary


def test_an_own_loss_of_numbers_gets_them_flat(stores, tmp_path, own_losses):
    settings = (*QUIET, "train.loss=own_losses:Smooth", "train.epochs=1", "model.dropout=0")
    summary = train(config(stores / "values", tmp_path / "run", *settings))
    assert "test_rmse" in summary
    store = lsm.GraphStore.open(stores / "values")
    torch.manual_seed(0)
    model = build_model(ModelOptions(hidden_dim=16, dropout=0.0), 8, 1, 2)
    with lsm.NeighborLoader(store, [5, 3], "train", 64, shuffle=True) as loader:
        batch = next(iter(loader))
    expected = functional.smooth_l1_loss(model(batch)[:, 0], batch.y).item()
    assert losses(tmp_path / "run")[0][2] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
    [
        ("flags", (), "train.loss: cross_entropy takes a class of each node, and the labels of"),
        ("values", ("train.loss=bce",), "are numbers; set train.loss=mse"),
        ("classes", ("train.loss=mse",), "are a class of each node; set train.loss=cross_entropy"),
        ("classes", ("train.metrics=[rmse]",), "train.metrics: rmse does not fit .*accuracy"),
        ("values", ("train.loss=mse", "train.metrics=[auroc]"), "expected among rmse, mae"),
        ("values", ("train.loss=hinge",), "train.loss: expected cross_entropy, bce, mse, mae, or"),
        ("values", ("train.loss=nowhere:loss",), "train.loss: cannot import nowhere:loss"),
        ("classes", ("train.loss=own_losses:wrong",), r"own_losses:wrong: expected the mean over"),
        ("flags", ("train.loss=bce", "train.label_smoothing=0.1"), "it is for cross_entropy"),
        ("flags", ("train.loss=bce", "train.class_weights=balanced"), "train.class_weights"),
        ("flags", ("train.metrics=[]",), "train.metrics"),
    ],
)
def test_what_does_not_fit_is_named(stores, tmp_path, own_losses, kind, setting, message):
    with pytest.raises(ValueError, match=message) as caught:
        train(config(stores / kind, tmp_path / "run", *QUIET, *setting))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
