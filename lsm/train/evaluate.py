"""Metrics by sampled inference, with the seeds of a split divided among the ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from lsm.core.counters import COUNTERS
from lsm.loader.batch import to_device
from lsm.loader.loader import Loader
from lsm.run.totals import Totals
from lsm.train.job import Job


@dataclass(frozen=True)
class Evaluation:
    """The metrics of a split, and the tiers that its rows came from."""

    metrics: dict[str, float | None]
    """By name; None for a split without seeds."""
    rows: dict[str, int]
    """COUNTERS of lsm.core.counters, over all ranks."""
    bytes_read: int = 0
    """Bytes read from storage, but for those of the job's features."""


@dataclass
class _Counted(Totals):
    rows: dict[str, float] = field(default_factory=dict)


def evaluate(job: Job, loader: Loader, advance: Callable[[], None]) -> Evaluation:
    """Evaluates ``loader``'s seeds, each rank its own. Returns the result of all ranks.

    Neighbours are the same at every call (epoch 0 of the loader). Calls ``advance`` after each
    batch. Leaves the model in evaluation mode.
    """
    tally, model = job.task.tally(), job.network.model
    model.eval()
    found = _Counted(rows=dict.fromkeys(COUNTERS, 0))
    for batch in loader.iterate(epoch=0):
        batch = to_device(batch, job.device)
        # Around the model alone: a cache creates tensors in this thread that it changes later.
        with torch.inference_mode():
            tally.add(model, batch)
        found.rows = {name: found.rows[name] + batch.stats[name] for name in COUNTERS}
        advance()
        del batch  # not kept while the next is awaited
    found = found.over_ranks(job.world)
    return Evaluation(
        tally.metrics(job.world),
        {name: int(count) for name, count in found.rows.items()},
    )
