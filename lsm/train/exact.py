"""Metrics by exact inference: the seeds of a split aggregate over all their neighbours."""

from __future__ import annotations

import copy
import shutil

import numpy as np
import torch
from torch import nn

from lsm.core import host_memory
from lsm.core.counters import COUNTERS
from lsm.distributed import collectives
from lsm.inference.driver import infer
from lsm.train.evaluate import Evaluation
from lsm.train.exact_options import exact_options
from lsm.train.job import Job
from lsm.train.memory_plan import EXACT
from lsm.train.tasks.link_prediction import LinkPrediction
from lsm.train.tasks.node_prediction import NodePrediction

_FOLDER = ".exact"
_SCORES_AT_ONCE = 1 << 20  # numbers


def evaluate_exactly(job: Job, split: str) -> Evaluation:
    """The metrics of a split, each seed with all its neighbours. A collective. Leaves the model in
    evaluation mode. The rows of layers lie in the run's directory meanwhile."""
    model, rows = job.network.model.eval(), dict.fromkeys(COUNTERS, 0)
    if len(job.task.seeds(job.store, split)) == 0:
        return Evaluation(job.task.tally().metrics(job.world), rows)
    out = job.run_dir / _FOLDER
    _remove(job)
    room = job.memory.terms[EXACT] + max(0, job.memory.budget - job.memory.total)
    own = host_memory.resident_bytes()["anonymous"]
    model = _on_host(model)
    options = exact_options(job, model, split, own + room)
    summary = infer(model, job.store, out, options, world=job.world)
    (written,) = summary["outputs"].values()
    values = np.load(written["file"], mmap_mode="r")
    if isinstance(job.task, LinkPrediction):
        found = job.task.metrics_of(torch.from_numpy(np.array(values)))
    else:
        assert options.nodes is not None, "those of the split"
        found = _metrics(job, options.nodes, values)
    _remove(job)
    return Evaluation(found, rows, summary["bytes_read"])


def _metrics(job: Job, ids: torch.Tensor, scores: np.ndarray) -> dict[str, float | None]:
    """The metrics of nodes ``ids`` [n] with ``scores`` [n, classes]. A collective."""
    tally = _task(job).tally()
    labels = job.store.nodes(job.task.input_type(job.store)).labels()
    for part in _parts(len(ids), scores.shape[1], job):
        outputs = torch.from_numpy(np.array(scores[part]))
        tally.add_rows(outputs, labels.index_select(0, ids[part]))
    return tally.metrics(job.world)


def _task(job: Job) -> NodePrediction:
    assert isinstance(job.task, NodePrediction), "there is no other task"
    return job.task


def _on_host(model: nn.Module) -> nn.Module:
    on_host = all(each.device.type == "cpu" for each in model.parameters())
    return model if on_host else copy.deepcopy(model).cpu()


def _parts(num_rows: int, width: int, job: Job) -> list[slice]:
    """This rank's part of the rows in pieces, as many on every rank."""
    world = job.world
    pieces = -(-num_rows * width // (_SCORES_AT_ONCE * world.size)) or 1
    bounds = np.linspace(0, num_rows, world.size * pieces + 1).astype(int).tolist()
    first = world.rank * pieces
    return [slice(bounds[first + i], bounds[first + i + 1]) for i in range(pieces)]


def _remove(job: Job) -> None:
    """Removes the rows of an evaluation, also of one that was killed. A collective."""
    collectives.barrier(job.world)
    if job.world.is_main:
        shutil.rmtree(job.run_dir / _FOLDER, ignore_errors=True)
    collectives.barrier(job.world)
