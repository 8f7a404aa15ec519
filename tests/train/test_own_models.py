"""Training of classes that the user names: it resumes, it runs over ranks, its run opens again."""

import json
import sys

import pytest
import torch

import lsm
from lsm.data.typed.synth import synthesize_typed
from lsm.train.trainer import train
from support.training import config, losses, make_store, overrides, run_job

NORMALISED = (
    "model.name=torch_geometric.nn:GIN",
    "model.args={norm: batch_norm, dropout: 0.2}",
    "storage.engine=memory",
)
NETWORK = """
from torch import nn
from torch_geometric.nn import HeteroConv, SAGEConv


class Network(nn.Module):
    def __init__(self, in_channels, hidden_channels, out_channels, metadata):
        super().__init__()
        dims = in_channels.items()
        self.inputs = nn.ModuleDict({of: nn.Linear(dim, hidden_channels) for of, dim in dims})
        width = hidden_channels
        self.convs = nn.ModuleList(
            HeteroConv({each: SAGEConv((width, width), width) for each in metadata[1]})
            for _ in range(2)
        )
        self.output = nn.Linear(width, out_channels)

    def forward(self, x_dict, edge_index_dict):
        x = {of: self.inputs[of](rows).relu() for of, rows in x_dict.items()}
        for conv in self.convs:
            sums = conv(x, edge_index_dict)
            x = {of: (x[of] + sums[of]).relu() if of in sums else x[of] for of in x}
        return {of: self.output(rows) for of, rows in x.items()}
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("own") / "store")


def resume_from_the_first(run_dir):
    """Leaves of a run's end only its first checkpoint. Returns the setting that continues it."""
    (run_dir / "result.json").unlink()
    kept, *others = sorted((run_dir / "checkpoints").iterdir())
    for other in others:
        other.unlink()
    return f"checkpoint.resume={kept}"


def accuracy(store, run_dir, seeds, num_neighbors):
    """That of the model of a run, in a loop of its own."""
    model = lsm.load_model(run_dir)
    with torch.inference_mode(), lsm.NeighborLoader(store, num_neighbors, seeds, 64) as loader:
        right = [(model(batch).argmax(dim=1) == batch.y) for batch in loader]
    return torch.cat(right).double().mean().item()


def test_a_killed_run_continues_with_the_same_losses(store, tmp_path):
    settings = (*NORMALISED, "checkpoint.every_steps=3")
    whole = train(config(store, tmp_path / "whole", *settings))
    train(config(store, tmp_path / "cut", *settings))
    kept = resume_from_the_first(tmp_path / "cut")
    resumed = train(config(store, tmp_path / "cut", *settings, kept))
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert resumed["test_accuracy"] == whole["test_accuracy"] > 0.5
    resume_from_the_first(tmp_path / "cut")
    other = (*settings, kept, "model.args.dropout=0.3")
    with pytest.raises(ValueError, match=r"model\.args .*0\.2.* there, .*0\.3.* now"):
        train(config(store, tmp_path / "cut", *other))


@pytest.mark.slow
def test_ranks_resume_with_the_buffers_of_one(store, tmp_path):
    """Means of a normalisation differ from rank to rank until they are shared."""
    settings = (*NORMALISED, "checkpoint.every_steps=2", "checkpoint.keep=9", "train.lr=1e-4")
    settings += ("model.args.norm_kwargs={momentum: 1}", "train.eval.num_neighbors=[-1, -1]")
    found = {}
    for name, more in (("whole", ()), ("cut", ()), ("cut", None)):
        more = (resume_from_the_first(tmp_path / name),) if more is None else more
        arguments = overrides(store, tmp_path / name, *settings, *more)
        job = run_job(2, "-m", "lsm", "train", "base", *arguments)
        assert job.returncode == 0, job.stderr
        result = json.loads((tmp_path / name / "result.json").read_text())
        found[name] = (losses(tmp_path / name), result["valid_accuracy"], result["test_accuracy"])
    assert found["cut"] == found["whole"]
    assert accuracy(store, tmp_path / "whole", "test", [-1, -1]) == found["whole"][2]


def test_a_class_of_the_working_directory_learns_a_graph_with_types(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "typed_networks.py").write_text(NETWORK)
    store = tmp_path / "store"
    synthesize_typed(store, 3, nodes=400, dim=20, classes=3, avg_degree=4.0, signal=2.0, seed=2)
    settings = (
        "model.name=typed_networks:Network",
        "sampler.num_neighbors=[4, 3]",
        "train.lr=0.02",
        "train.epochs=5",
        "storage.engine=memory",
    )
    summary = train(config(store, tmp_path / "run", *settings))
    assert summary["test_accuracy"] > 0.75  # three classes: chance is 0.33
    assert type(lsm.load_model(tmp_path / "run").network).__name__ == "Network"
    found = accuracy(store, tmp_path / "run", ("target", "test"), [4, 3])
    assert found == summary["test_accuracy"]


def test_faults_end_before_anything_is_written(store, tmp_path):
    settings = ("model.name=torch_geometric.nn:GIN", "model.args.jk=cat", "model.args.depth=3")
    with pytest.raises(ValueError, match=r"^model\.args: .*depth") as caught:
        train(config(store, tmp_path / "run", *settings))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
