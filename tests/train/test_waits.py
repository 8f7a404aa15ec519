"""The thread that trains waits for a GPU only where it reads losses, every few iterations."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import lsm
from lsm.data.typed.synth import synthesize_typed
from lsm.run.loop import read_every
from lsm.train import trainer
from support.link_runs import link_store, typed_link_store
from support.training import config, losses, make_store
from support.typed_graphs import typed_graph
from support.waits import finding_waits, watch

EVERY = 3


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    path = tmp_path_factory.mktemp("stores")
    make_store(path / "classes")
    synthesize_typed(path / "typed", 2, nodes=400, dim=20, classes=3, signal=2.0, seed=2)
    without = typed_graph()
    del without["author"].x
    without["author"].num_nodes = 25
    without["paper"].y = without["paper"].y.clamp(min=0)
    lsm.GraphStore.from_pyg(without, path / "embeddings")
    for name, make in (("links", link_store), ("typed_links", typed_link_store)):
        (path / name).mkdir()
        make(path / name)
    draw = torch.Generator().manual_seed(0)
    values = Data(
        x=torch.randn(400, 8, generator=draw),
        y=torch.randn(400, 2, generator=draw),
        edge_index=torch.randint(400, (2, 1600), generator=draw),
        train_mask=torch.arange(400) < 300,
        val_mask=torch.arange(400) // 50 == 6,
        test_mask=torch.arange(400) // 50 == 7,
    )
    values.y[::5, 1] = torch.nan
    lsm.GraphStore.from_pyg(values, path / "values")
    return path


LINK = ("train.task=link", "links.eval_candidates=20")
CASES = {
    "classes": ("classes", "train.metrics=[accuracy, f1_micro, f1_macro]", "train.clip_norm=0.5"),
    "accumulate": ("classes", "train.accumulate=2", "train.class_weights=balanced"),
    "gat": ("classes", "model.name=gat"),
    "step": ("classes", "train.label_smoothing=0.1", "train.schedule=cosine"),
    "gcn": ("classes", "model.name=gcn", "train.optimizer=sgd", "train.precision=bf16"),
    "rsage": ("typed", "model.name=rsage"),
    "rgcn": ("typed", "model.name=rgcn"),
    "rgat": ("typed", "model.name=rgat"),
    "hgt": ("typed", "model.name=hgt"),
    "embeddings": ("embeddings", "data.input_type=paper", "model.name=rsage", "train.accumulate=2"),
    "values": ("values", "train.loss=mse", "train.metrics=[rmse, mae]"),
    "mae": ("values", "train.loss=mae"),
    "joint": ("links/g", *LINK),
    "inbatch": ("links/g", *LINK, "links.negatives=inbatch"),
    "resident": ("links/g", *LINK, "links.negatives=resident"),
    "uniform": ("links/g", *LINK, "links.negatives=uniform", "links.loss=bpr"),
    "typed links": ("typed_links/g", *LINK, "model.name=rsage", "links.loss=bce"),
}
KNOWN = {
    # PyG's layer slices rows by numbers that it keeps on the host, where this finds no difference.
    "hgt": ("aten._local_scalar_dense",),
}
"""What still waits, once a layer or a table."""


@pytest.mark.parametrize("case", CASES)
def test_iterations_do_not_wait(stores, tmp_path, monkeypatch, case):
    name, *settings = CASES[case]
    settings = (*settings, "storage.engine=memory", "train.num_threads=1")
    trainer.train(config(stores / name, tmp_path / "each", *settings))
    waits = watch(monkeypatch, trainer.Trainer)
    monkeypatch.setattr(trainer, "read_every", lambda config, device: EVERY)
    trainer.train(config(stores / name, tmp_path / "few", *settings))
    assert {
        each for each in waits.in_iterations if not each.startswith(KNOWN.get(case, ()))
    } == set()
    found = losses(tmp_path / "few")
    assert found == losses(tmp_path / "each")
    last = max(iteration for _, iteration, _ in found) + 1
    assert waits.num_reads == 2 * -(
        -last // EVERY
    )  # epochs; a read for every few iterations and the end


def test_a_watch_sees_what_waits():
    found = []
    row = torch.tensor([3.0, -1.0])
    waits = (
        lambda: row.sum().item(),
        lambda: bool(row[0] > 0),
        lambda: row[row > 0],
        lambda: torch.bincount(row.abs().long()),
        lambda: torch.repeat_interleave(row, torch.tensor([1, 2])),
        lambda: row.cpu(),
        lambda: row.to("cpu"),
        lambda: float(row[0]),
        lambda: np.asarray(row.numpy()),
    )
    for each in waits:
        with finding_waits(found):
            each()
        assert found, each
        found.clear()
    with finding_waits(found):
        torch.where(row > 0, row, 0).sum()
    assert not found


def test_a_gpu_is_read_as_often_as_records_are_flushed():
    chosen = config("store", "run", "metrics.log_every=7")
    assert read_every(chosen, torch.device("cpu")) == 1
    assert read_every(chosen, torch.device("cuda", 0)) == 7
