"""Batches of embeddings on a GPU wait for it only where losses are read, every few of them. The
twin stands for the GPU."""

import json
from functools import partial

import pytest

from lsm.embed import job, trainer
from lsm.embed.edge_trainer import EdgeTrainer
from lsm.embed.trainer import EmbedTrainer
from support.triples import config, make_triples
from support.waits import watch

EVERY = 3
CASES = {
    "dot": ("embed.model=dot",),
    "complex": ("embed.model=complex", "embed.regularizer=n3", "embed.regularizer_weight=0.01"),
    "distance": ("embed.model=transe_l2", "embed.loss=logistic", "embed.reciprocal=false"),
    "margin": ("embed.model=rotate", "embed.loss=margin", "embed.optimizer=adagrad"),
    "all": ("embed.model=distmult", "embed.num_negatives=all", "embed.dropout=0.1"),
    "by degree": ("embed.model=distmult", "embed.degree_fraction=0.5"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_triples(tmp_path_factory.mktemp("triples") / "store")


def steps(run_dir):
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [
        {name: line[name] for name in ("epoch", "iteration", "loss", "step", "num_edges")}
        for line in lines
        if line["kind"] == "step"
    ]


@pytest.mark.parametrize("case", CASES)
def test_batches_do_not_wait(store, tmp_path, monkeypatch, case):
    monkeypatch.setattr(job, "EdgeTrainer", partial(EdgeTrainer, is_twin=True))
    trainer.train(config(store, tmp_path / "each", *CASES[case]))
    waits = watch(monkeypatch, EmbedTrainer)
    monkeypatch.setattr(trainer, "read_every", lambda config, device: EVERY)
    trainer.train(config(store, tmp_path / "few", *CASES[case]))
    assert set(waits.in_iterations) == set()
    found = steps(tmp_path / "few")
    assert found == steps(tmp_path / "each")
    epochs = max(each["epoch"] for each in found)
    per_epoch = max(each["iteration"] for each in found) + 1
    assert waits.num_reads == epochs * -(-per_epoch // EVERY)


def test_a_loss_that_is_not_finite_is_seen_before_a_checkpoint(store, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "EdgeTrainer", partial(EdgeTrainer, is_twin=True))
    monkeypatch.setattr(trainer, "read_every", lambda config, device: 1 << 20)
    saves = []
    monkeypatch.setattr(EmbedTrainer, "save", lambda self, best: saves.append(best))
    settings = config(store, tmp_path / "run", "embed.model=dot", "embed.lr=1e38")
    with pytest.raises(RuntimeError, match=r"^epoch 1, iteration \d+: the loss is .*embed\.lr"):
        trainer.train(settings)
    assert saves == []
