"""Metrics by exact inference: the seeds of a split aggregate over all their neighbours."""

from __future__ import annotations

import copy
import shutil

import numpy as np
from torch import nn

from lsm.core import host_memory
from lsm.core.counters import COUNTERS
from lsm.distributed import collectives
from lsm.inference.driver import infer
from lsm.train.evaluate import Evaluation
from lsm.train.exact_options import exact_options
from lsm.train.job import Job
from lsm.train.memory_plan import EXACT

_FOLDER = ".exact"


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
    found = job.task.exact_metrics(job.store, split, values, job.world)
    _remove(job)
    return Evaluation(found, rows, summary["bytes_read"])


def _on_host(model: nn.Module) -> nn.Module:
    on_host = all(each.device.type == "cpu" for each in model.parameters())
    return model if on_host else copy.deepcopy(model).cpu()


def _remove(job: Job) -> None:
    """Removes the rows of an evaluation, also of one that was killed. A collective."""
    collectives.barrier(job.world)
    if job.world.is_main:
        shutil.rmtree(job.run_dir / _FOLDER, ignore_errors=True)
    collectives.barrier(job.world)
