"""A task of the tests trains, validates, continues and is tested like node classification."""

import json

import pytest
import torch

import lsm
from lsm.train import saved
from lsm.train.tasks.task import Task
from lsm.train.trainer import train
from support.training import config, losses, make_store


class Sums:
    """The counts of a task over an evaluation on one rank."""

    def __init__(self, task):
        self.task, self.sums, self.num_seeds = task, {}, 0

    def add(self, model, batch):
        _, counts = self.task.loss_sum(model, batch)
        self.num_seeds += batch.batch_size
        for name, value in counts.items():
            self.sums[name] = self.sums.get(name, 0) + value.item()

    def metrics(self, world):
        assert world.size == 1
        return self.task.metrics(self.sums, self.num_seeds)


class Regression(Task):
    """Predicts the label of a node as a number."""

    metric = "fit"
    lower_is_better = False

    def __init__(self):
        self.num_losses = 0

    def check(self, config, store, world_size):
        if not len(store.split("train")):
            raise ValueError("data.path: no training nodes")

    def input_type(self, store):
        return store.node_types[0]

    def out_dim(self, store):
        return 1

    def seeds(self, store, split):
        return store.split(split)[::2]

    def loss_sum(self, model, batch):
        self.num_losses += 1
        squares = (model(batch)[:, 0] - batch.y).square().sum()
        return squares, {"squares": squares.detach(), "labels": batch.y.sum()}

    def tally(self):
        return Sums(self)

    def metrics(self, counts, num_seeds):
        return {
            "fit": -counts["squares"] / num_seeds,
            "mean": counts["labels"] / num_seeds,
        }


def epochs(run_dir):
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == "epoch"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("tasks") / "store")


def test_another_task_needs_no_change_of_the_loop(store, tmp_path, capsys):
    """Losses and counts are two ways to the same number."""
    task = Regression()
    summary = train(config(store, tmp_path, "train.epochs=5"), task)
    records = epochs(tmp_path)
    assert len(records) == 5
    for record in records:
        assert record["train_fit"] == pytest.approx(-record["loss"], rel=1e-5)
    weights = torch.load(tmp_path / "model.pt", weights_only=True)
    assert weights["convs.1.lin_l.weight"].shape[0] == 1
    assert records[-1]["loss"] < records[0]["loss"]
    best = max(records, key=lambda record: record["valid_fit"])
    assert (summary["best_epoch"], summary["valid_fit"]) == (best["epoch"], best["valid_fit"])
    assert next(iter(summary)) == "test_fit"
    assert 0 < summary["test_mean"] < 2
    told = f"train {best['train_fit']:.4f}  valid {best['valid_fit']:.4f}"
    assert told in capsys.readouterr().err
    # 150 seeds are three iterations; each validation and the test take another loss per batch.
    assert len(losses(tmp_path)) == 15
    assert task.num_losses > 15 + 2 * 5 + 2, "memory is planned for a step of this task"


def test_it_continues_to_the_same_losses(store, tmp_path):
    train(config(store, tmp_path / "whole"), Regression())
    train(config(store, tmp_path / "run", "train.epochs=1"), Regression())
    train(config(store, tmp_path / "run"), Regression())
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_the_check_of_the_task_is_asked(store, tmp_path, monkeypatch):
    def refuse(*_):
        raise ValueError("data.path: no numbers to predict")

    monkeypatch.setattr(Regression, "check", refuse)
    with pytest.raises(ValueError, match="no numbers to predict"):
        train(config(store, tmp_path), Regression())


def test_an_exact_evaluation_needs_the_outputs_of_the_task(store, tmp_path):
    with pytest.raises(ValueError, match="give this task exact_outputs"):
        train(config(store, tmp_path, "train.eval.exact=true"), Regression())


def test_scores_of_a_task_are_numbers_unless_it_says_otherwise(store, tmp_path, monkeypatch):
    """The store has classes, of which these scores are none."""
    train(config(store, tmp_path / "run", "train.epochs=1"), Regression())
    monkeypatch.setattr(saved, "task_of", lambda _config: Regression())
    summary = lsm.predict(tmp_path / "run", None, tmp_path / "out", progress=False)
    assert sorted(summary["outputs"]) == ["embeddings", "scores"]
