"""Links are scored by a class of the user, in training and in predictions."""

import logging

import numpy as np
import pytest
import torch

import lsm
from lsm.nn.link_scorers import build_scorer
from lsm.train.trainer import train
from support.link_runs import learn, link_store, rows_of
from support.training import config, losses

SCORERS = """
import torch

class Bilinear(torch.nn.Module):
    def __init__(self, in_channels, scale=1.0):
        super().__init__()
        self.weight = torch.nn.Parameter(scale * torch.eye(in_channels))

    def forward(self, source, destination):
        assert source.shape == destination.shape and source.dim() == 2
        return (source @ self.weight * destination).sum(-1)

class Product(torch.nn.Module):
    def forward(self, source, destination):
        return (source * destination).sum(-1)

class Constant(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.value = torch.nn.Parameter(torch.zeros(()))

    def forward(self, source, destination):
        return self.value.expand(len(source))

class Nothing(torch.nn.Module):
    def forward(self, source, destination):
        return torch.zeros(len(source))

class Matrix(torch.nn.Module):
    def forward(self, source, destination):
        return source @ destination.t()

class Broken(torch.nn.Module):
    def forward(self, source, destination):
        return source + torch.ones(999)

def no_class():
    pass
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return link_store(tmp_path_factory.mktemp("links"))


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "own_scorers.py").write_text(SCORERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_an_own_product_trains_as_dot(store, tmp_path):
    options = ("links.negatives=uniform", "links.num_negatives=4")
    learn(store, tmp_path / "dot", *options)
    learn(store, tmp_path / "own", "links.scorer=own_scorers:Product", *options)
    assert losses(tmp_path / "own") == losses(tmp_path / "dot")


@pytest.mark.parametrize("negatives", ["joint", "uniform", "inbatch"])
def test_arguments_and_weights(store, tmp_path, negatives):
    own = ("links.scorer=own_scorers:Bilinear", "links.scorer_args.scale=0.5")
    run = learn(store, tmp_path / "run", *own, f"links.negatives={negatives}")
    scorer, rows = lsm.load_model(run).scorer, rows_of(run, tmp_path / "rows")
    weight = scorer.module.weight.detach()
    assert 0 < (weight - 0.5 * torch.eye(12)).abs().max() < 0.2
    given = torch.tensor([[0, 5, 9, 200], [3, 3, 7, 1]])
    lsm.predict(run, None, tmp_path / "out", links=given, progress=False)
    expected = (rows[given[0]] @ weight * rows[given[1]]).sum(1).numpy()
    assert np.allclose(np.load(tmp_path / "out" / "scores.npy"), expected, rtol=1e-4, atol=1e-5)
    lsm.predict(run, None, tmp_path / "top", top_k=300, exclude_known=False, progress=False)
    best = np.load(tmp_path / "top" / "scores.npy")
    all_scores = np.sort((rows @ weight @ rows.t()).numpy())[:, ::-1]
    assert np.allclose(best, all_scores, rtol=1e-4, atol=1e-5)


def test_a_constant_scorer_ranks_as_chance(store, tmp_path, caplog):
    settings = config(
        store.path,
        tmp_path / "run",
        "train.task=link",
        "train.epochs=1",
        "links.eval_candidates=50",
        "links.filtered=false",
        "links.scorer=own_scorers:Constant",
    )
    # A link among 50 others that tie with it, of which one may be its own destination.
    with caplog.at_level(logging.INFO):
        assert train(settings)["test_mrr"] == pytest.approx(1 / 26, rel=0.03)
    assert "own_scorers:Constant: each link has the score of all of its candidates" in caplog.text


def test_a_matrix_has_the_scores_of_pairs():
    score = build_scorer("own_scorers:Bilinear", 6)
    source, destination = torch.randn(5, 6), torch.randn(7, 6)
    pairs = torch.stack([score(source, each.expand(5, 6)) for each in destination], 1)
    assert torch.allclose(score.matrix(source, destination), pairs, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("own_scorers:Missing", {}, "links.scorer: cannot import own_scorers:Missing"),
        ("no_such_module:A", {}, "links.scorer: cannot import no_such_module:A"),
        ("own_scorers:no_class", {}, "links.scorer: expected a class of torch.nn.Module"),
        ("own_scorers:Bilinear", {"slope": 2}, r"links.scorer_args: own_scorers:Bilinear\(.*slope"),
        ("own_scorers:Matrix", {}, r"expected scores \[2\] of rows \[2, 6\], got \[2, 2\]"),
        ("own_scorers:Broken", {}, r"own_scorers:Broken: RuntimeError: .*own_scorers.py:"),
        ("own_scorers:Nothing", {}, "depend neither on the rows nor on a parameter"),
    ],
)
def test_bad_classes_are_told_in_a_line(name, args, message):
    with pytest.raises(ValueError, match=message) as caught:
        build_scorer(name, 6, args)
    assert "\n" not in str(caught.value)


def test_bad_keys(store, tmp_path):
    for bad, message in (
        ("links.scorer=dott", "expected dot, distmult, mlp, or package.module:Class, got 'dott'"),
        ("links.scorer_args.a=1", "links.scorer_args: expected none with links.scorer=dot"),
    ):
        with pytest.raises(ValueError, match=message):
            config(store.path, tmp_path / "run", "train.task=link", bad)
