"""Optimizers, learning rates and losses, against torch's own in a loop of its own."""

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.optim import lr_scheduler

import lsm
from lsm.config.train import TrainConfig
from lsm.nn.models import build_model
from lsm.nn.options import ModelOptions
from lsm.run.loop import Validation
from lsm.train.model import Network
from lsm.train.schedule import Schedule
from lsm.train.trainer import Trainer, train
from support.training import config, losses, make_store

PER_EPOCH = 5  # iterations of an epoch
PLAIN = ("model.dropout=0", "train.eval_every=0", "train.epochs=3", "storage.engine=memory")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("optimized") / "store")


def shares(scheduler_of, count):
    """Learning rates of ``count`` steps by a scheduler of torch, from a rate of 1."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler, found = scheduler_of(optimizer), []
    for _ in range(count):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(
    ("options", "scheduler_of"),
    [
        ({}, lambda o: lr_scheduler.ConstantLR(o, factor=1.0)),
        (
            {"schedule": "cosine", "epochs": 4},
            lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=4 * PER_EPOCH),
        ),
        (
            {"schedule": "step", "step_epochs": 2, "step_factor": 0.5},
            lambda o: lr_scheduler.StepLR(o, step_size=2 * PER_EPOCH, gamma=0.5),
        ),
        (
            {"warmup_iterations": 8},
            lambda o: lr_scheduler.LinearLR(o, start_factor=1 / 8, total_iters=7),
        ),
    ],
)
def test_rates_are_those_of_torch(options, scheduler_of):
    schedule = Schedule(TrainConfig(**options), PER_EPOCH)
    count = 4 * PER_EPOCH
    found = [schedule.share(iteration) for iteration in range(count)]
    np.testing.assert_allclose(found, shares(scheduler_of, count), rtol=1e-6, atol=1e-9)
    assert schedule.is_constant == (not options)


def test_a_cosine_starts_after_the_warmup_and_ends_at_0():
    options = TrainConfig(schedule="cosine", epochs=2, warmup_iterations=4)
    schedule = Schedule(options, PER_EPOCH)
    assert [schedule.share(i) for i in (0, 3, 4)] == [0.25, 1.0, 1.0]
    assert schedule.share(10) == pytest.approx(0, abs=1e-12)
    assert schedule.share(7) == pytest.approx(0.5)


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.1),
    "torch.optim:RAdam": lambda p: torch.optim.RAdam(
        p, lr=0.01, betas=(0.8, 0.9), weight_decay=0.1
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_that_of_a_loop_with_torch(store, tmp_path, name):
    settings = (
        *PLAIN,
        f"train.optimizer={name}",
        "train.weight_decay=0.1",
        "train.schedule=cosine",
        "train.clip_norm=0.5",
        "train.label_smoothing=0.1",
        "train.class_weights=balanced",
        *(["train.momentum=0.9"] if name == "sgd" else []),
        *(["train.optimizer_args.betas=[0.8, 0.9]"] if "RAdam" in name else []),
    )
    train(config(store, tmp_path, *settings))
    opened = lsm.GraphStore.open(store)
    torch.manual_seed(0)
    model = build_model(ModelOptions(hidden_dim=16, dropout=0.0), 12, 3, 2)
    optimizer = OPTIMIZERS[name](model.parameters())
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, T_max=3 * PER_EPOCH)
    counts = np.bincount(opened.labels()[opened.split("train")].numpy())
    weights = torch.tensor(counts.sum() / (len(counts) * counts), dtype=torch.float32)
    expected = []
    with lsm.NeighborLoader(opened, [5, 3], "train", 64, shuffle=True) as loader:
        for _ in range(3):
            for batch in loader:
                each = functional.cross_entropy(
                    model(batch), batch.y, weights, reduction="none", label_smoothing=0.1
                )
                loss = each.sum() / len(batch.y)
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                scheduler.step()
                expected.append(loss.item())
    found = [loss for _, _, loss in losses(tmp_path)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_resumed_run_keeps_its_schedule(store, tmp_path):
    settings = (*PLAIN, "train.schedule=step", "train.step_epochs=1", "train.warmup_iterations=3")
    train(config(store, tmp_path / "whole", *settings))
    settings += ("checkpoint.every_steps=7",)
    train(config(store, tmp_path / "cut", *settings))
    (tmp_path / "cut/result.json").unlink()
    kept, *others = sorted((tmp_path / "cut/checkpoints").iterdir())
    for other in others:
        other.unlink()
    train(config(store, tmp_path / "cut", *settings, f"checkpoint.resume={kept}"))
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    (tmp_path / "cut/result.json").unlink()
    other = (*settings, f"checkpoint.resume={kept}", "train.warmup_iterations=0")
    with pytest.raises(ValueError, match=r"train.warmup_iterations \(3 there, 0 now\)"):
        train(config(store, tmp_path / "cut", *other))


def rates_on_plateaus(scores, patience):
    """The shares of torch's schedule after each of ``scores``."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    # torch reduces after more than its patience, and compares with a threshold.
    options = {"mode": "max", "factor": 0.5, "patience": patience - 1, "threshold": 0.0}
    scheduler, found = lr_scheduler.ReduceLROnPlateau(optimizer, **options), []
    for score in scores:
        scheduler.step(score)
        found.append(optimizer.param_groups[0]["lr"])
    return found


@pytest.mark.parametrize("patience", [1, 2, 3])
def test_rates_fall_on_plateaus_as_those_of_torch(store, tmp_path, monkeypatch, patience):
    scores = [0.5, 0.4, 0.6, 0.6, 0.5, 0.3, 0.2, 0.7, 0.6, 0.5]
    given, rates = iter(scores), []
    measured, step = Trainer.validate, Network.step

    def validate(self):
        found = measured(self)
        return Validation(next(given), found.record)

    def stepped(self, *arguments):
        step(self, *arguments)
        rates.append(self.optimizer.param_groups[0]["lr"])

    monkeypatch.setattr(Trainer, "validate", validate)
    monkeypatch.setattr(Network, "step", stepped)
    settings = ("train.schedule=plateau", f"train.plateau_patience={patience}")
    settings += ("train.step_factor=0.5", "train.epochs=10", "train.select=last", "train.lr=1")
    train(config(store, tmp_path, *settings, "train.eval.num_neighbors=[1, 1]", "train.lr=1"))
    expected = [1.0, *rates_on_plateaus(scores, patience)[:-1]]
    assert rates[::PER_EPOCH] == pytest.approx(expected)


def test_a_resumed_run_remembers_its_plateaus(store, tmp_path):
    settings = ("train.schedule=plateau", "train.plateau_patience=1", "train.epochs=6")
    settings += ("storage.engine=memory", "train.lr=0.5", "train.step_factor=0.2")
    train(config(store, tmp_path / "whole", *settings))
    settings += ("checkpoint.every_steps=13", "checkpoint.keep=9")
    train(config(store, tmp_path / "cut", *settings))
    (tmp_path / "cut/result.json").unlink()
    kept = sorted((tmp_path / "cut/checkpoints").glob("step-000004*"))[0]
    position = torch.load(kept, weights_only=True)["position"]
    assert position["num_plateaus"] > 0
    train(config(store, tmp_path / "cut", *settings, f"checkpoint.resume={kept}"))
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    settings = (*settings, "train.select=last", "train.epochs=7")
    train(config(store, tmp_path / "last", *settings, "train.epochs=1"))
    for more in ("train.eval_every=2", "train.eval.num_neighbors=[1, 1]"):  # other plateaus
        with pytest.raises(ValueError, match=rf"other settings: {more.split('=')[0]} \("):
            train(config(store, tmp_path / "last", *settings, more))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("train.optimizer=torch.optim:Nope",), "train.optimizer: cannot import torch.optim:Nope"),
        (("train.optimizer=torch.nn:Linear",), "expected a class of torch.optim.Optimizer, got"),
        (("train.optimizer_args.beta=1",), "train.optimizer_args: adam: .*beta"),
        (
            ("train.optimizer=torch.optim:Rprop", "train.weight_decay=0.1"),
            "train.weight_decay: torch.optim:Rprop does not take it",
        ),
    ],
)
def test_optimizers_that_do_not_fit_are_named(store, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        train(config(store, tmp_path / "run", "storage.engine=memory", *settings))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.optimizer=lion", "train.optimizer"),
        ("train.clip_norm=0", "train.clip_norm"),
        ("train.label_smoothing=1", "train.label_smoothing"),
        ("train.schedule=linear", "train.schedule"),
    ],
)
def test_settings_out_of_range_are_named(store, tmp_path, setting, message):
    with pytest.raises(ValueError, match=message):
        config(store, tmp_path, setting)
