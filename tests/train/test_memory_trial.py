"""The batches that are tried to plan memory: within the budget, and interrupted between two."""

import os
import signal
import textwrap
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import lsm
from lsm.core import host_memory
from lsm.distributed.signals import Stopped
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.typed_neighbor import TypedNeighborSampler
from lsm.train.trainer import train
from support.training import config, losses, make_store, overrides, run_job

MIB = 1 << 20


@pytest.fixture
def timed_links(tmp_path):
    """A store whose edges have times, and their splits."""
    draw = torch.Generator().manual_seed(0)
    num_nodes, num_edges = 3000, 60_000
    data = Data(
        x=torch.randn(num_nodes, 16, generator=draw),
        edge_index=torch.randint(num_nodes, (2, num_edges), generator=draw),
        edge_time=torch.randint(1000, (num_edges,), generator=draw),
    )
    store = lsm.GraphStore.from_pyg(data, tmp_path / "timed")
    lsm.LinkSplits.make(store, valid=0.05, test=0.05)
    return store.path


@pytest.mark.parametrize("batch_size", [8, 2000])
def test_no_batch_is_tried_that_its_parts_show_to_exceed_memory_bytes(
    timed_links, tmp_path, monkeypatch, batch_size
):
    """With times each link has a subgraph for each of 500 candidates: 1,000,000 of 2,000 links, of
    about 30 nodes with 64 bytes of features each. Those of 8 links fit."""
    sampled, sample = [], TypedNeighborSampler.sample

    def recorded(self, *arguments):
        graph = sample(self, *arguments)
        sampled.append(len(graph.n_id))
        return graph

    monkeypatch.setattr(TypedNeighborSampler, "sample", recorded)
    resident = host_memory.resident_bytes()
    room = 300 * MIB
    budget = resident["anonymous"] + resident["file"] + room
    settings = config(
        *(timed_links, tmp_path / "run", "train.task=link", "train.epochs=1"),
        *("sampler.time_attr=time", "sampler.num_neighbors=[6, 4]", "links.negatives=uniform"),
        *("links.num_negatives=1", "links.eval_candidates=500", "train.batch_size=2000"),
        *(f"train.eval.batch_size={batch_size}", f"memory.bytes={budget}"),
    )
    if batch_size == 8:
        monkeypatch.setattr("lsm.train.trainer.Loop.run", lambda self: {"is_trained": True})
        assert train(settings) == {"is_trained": True}
        return
    with pytest.raises(ValueError, match=r"memory\.bytes: expected room for one batch .* got "):
        train(settings)
    # A node takes 64 bytes, and with its edge and the growth of its output twice 70 of sampling.
    assert 200 * max(sampled) < 2 * room


def test_a_trial_ends_at_a_signal(tmp_path, monkeypatch, kept_handlers):
    store = make_store(tmp_path / "store")
    plain, stopped = tmp_path / "plain", tmp_path / "stopped"
    train(config(store, plain))
    num_samples, sample = 0, NeighborSampler.sample

    def signalled(self, *arguments):
        nonlocal num_samples
        num_samples += 1
        os.kill(os.getpid(), signal.SIGTERM)
        return sample(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(NeighborSampler, "sample", signalled)
        with pytest.raises(Stopped, match=r"while memory was planned.*the same command"):
            train(config(store, stopped))
    assert num_samples == 1
    assert not stopped.exists()
    train(config(store, stopped))
    assert losses(stopped) == losses(plain)


@pytest.mark.slow
def test_all_ranks_end_where_one_is_told_to_stop_in_its_trial(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import os, signal, sys
            from lsm import cli
            from lsm.sampler.neighbor import NeighborSampler

            sample = NeighborSampler.sample

            def signalled(self, *arguments):
                if os.environ["RANK"] == "1":
                    os.kill(os.getpid(), signal.SIGTERM)
                return sample(self, *arguments)

            NeighborSampler.sample = signalled
            sys.argv = ["lsm", "train", *sys.argv[1:]]
            cli.main()
            """
        )
    )
    store = make_store(tmp_path / "store")
    job = run_job(2, program, "base", *overrides(store, tmp_path / "run"))
    assert job.returncode != 0
    assert "lsm: stopped by a signal while memory was planned" in job.stderr
    assert "error:" not in job.stderr
    assert not Path(tmp_path / "run" / "checkpoints").exists()
