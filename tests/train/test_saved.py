"""The model of a run opens again, of its store alone."""

import json
import re
import shutil

import pytest
import torch

import lsm
from lsm.data.graph_store import GraphStore
from lsm.train.trainer import train
from support.training import config, make_store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("saved") / "store")


@pytest.fixture(scope="module")
def run(store, tmp_path_factory):
    settings = config(store, tmp_path_factory.mktemp("run"), "model.name=gat", "model.heads=2")
    train(settings)
    return settings.run_dir


def test_the_model_gives_the_accuracy_of_the_run(run, store):
    """With the batches of the test, in which a node has its own neighbours."""
    summary = json.loads((run / "result.json").read_text())
    settings = lsm.load_config(run / "config.yaml")
    state = torch.get_rng_state()
    model = lsm.load_model(run)
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    opened, correct = GraphStore.open(store), 0
    options = {"batch_size": settings.eval_batch_size, "seed": settings.train.seed}
    with (
        lsm.NeighborLoader(opened, settings.eval_num_neighbors, "test", **options) as loader,
        torch.inference_mode(),
    ):
        for batch in loader:
            correct += int((model(batch).argmax(dim=1) == batch.y).sum())
    assert correct / len(opened.split("test")) == pytest.approx(summary["test_accuracy"])


def test_a_run_that_has_not_ended_gives_its_best_weights(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "model.pt").unlink()
    expected = lsm.load_model(run).state_dict()
    found = lsm.load_model(tmp_path / "run").state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        lsm.load_model(tmp_path / "run")


def test_another_store_is_refused(run, store, tmp_path):
    other = make_store(tmp_path / "other", num_train=200)
    with pytest.raises(ValueError, match=re.escape(f"{other} is not the store")):
        lsm.load_model(run, other)
    shutil.copytree(store, tmp_path / "moved")
    moved = lsm.load_model(run, tmp_path / "moved").state_dict()
    assert all(torch.equal(moved[k], v) for k, v in lsm.load_model(run).state_dict().items())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: (run / "config.yaml").unlink(), "no run of `lsm train`"),
        (
            lambda run: (run / "state.json").write_text("{}"),
            "a run of `lsm embed train`, which has embeddings .* `lsm embed export`",
        ),
        (lambda run: (run / "model.pt").write_bytes(b"PK"), "cannot be read"),
        (lambda run: torch.save({}, run / "model.pt"), "are not those of the model"),
    ],
)
def test_a_damaged_run_is_named(run, tmp_path, damage, message):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    damage(copy)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        lsm.load_model(copy)
    assert str(copy) in str(error.value)
