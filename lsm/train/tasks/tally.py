"""The metrics of an evaluation, from the batches of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.loader.batch import Batch
from lsm.run.totals import Totals
from lsm.train.tasks.metrics import ScoreMetric, SumMetric
from lsm.train.tasks.task import Counts, Model


class CountTally:
    """Sums of counts, each of one number.

    counts: of a batch. metrics: from sums of counts over a number of seeds.
    """

    def __init__(
        self,
        counts: Callable[[Model, Batch], Counts],
        metrics: Callable[[Mapping[str, float], float], dict[str, float | None]],
    ) -> None:
        self._counts, self._metrics = counts, metrics
        self._totals = CountTotals()

    def add(self, model: Model, batch: Batch) -> None:
        """Counts the seeds of a batch."""
        totals = self._totals
        totals.num_seeds += batch.batch_size
        for name, value in self._counts(model, batch).items():
            totals.counts[name] = totals.counts.get(name, 0) + value.item()

    def metrics(self, world: World) -> dict[str, float | None]:
        """The metrics of the seeds of all ranks. A collective. Precondition: every rank has counted
        as many batches."""
        totals = self._totals.over_ranks(world)
        return self._metrics(totals.counts, totals.num_seeds)


@dataclass
class CountTotals(Totals):
    """The counts of an evaluation."""

    num_seeds: int = 0
    counts: dict[str, float] = field(default_factory=dict)


class MetricTally:
    """Sums and, if a metric takes them, outputs and labels of the seeds, on the host."""

    def __init__(self, metrics: Sequence[SumMetric | ScoreMetric]) -> None:
        self._metrics = metrics
        self._num_seeds = 0
        self._sums: dict[str, Tensor] = {}
        self._rows: list[tuple[Tensor, Tensor]] = []

    def add(self, model: Model, batch: Batch) -> None:
        """Counts the seeds of a batch."""
        assert batch.y is not None, "the task has checked the store"
        self.add_rows(model(batch), batch.y)

    def add_rows(self, outputs: Tensor, labels: Tensor) -> None:
        """Counts seeds by their outputs [n, out_dim] and labels [n] or [n, out_dim]."""
        sums: dict[str, Tensor] = {}
        for each in self._metrics:
            if isinstance(each, SumMetric):
                sums |= each.sums(outputs, labels)
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0) + value.double().cpu()
        if any(isinstance(each, ScoreMetric) for each in self._metrics):
            self._rows.append((outputs.cpu(), labels.cpu()))
        self._num_seeds += len(outputs)

    def metrics(self, world: World) -> dict[str, float | None]:
        """The metrics of the seeds of all ranks, by name; None without seeds. A collective.
        Precondition: every rank has counted as many batches."""
        if not self._sums and not self._rows:
            return {each.name: None for each in self._metrics}
        values = [torch.tensor([self._num_seeds], dtype=torch.float64), *self._sums.values()]
        flat = collectives.all_reduce_sum(torch.cat([each.reshape(-1) for each in values]), world)
        num_seeds, *parts = flat.split([each.numel() for each in values])
        shapes = zip(parts, self._sums.values(), strict=True)
        sums = dict(zip(self._sums, [part.view(own.shape) for part, own in shapes], strict=True))
        outputs, labels = self._all_rows(world)
        found: dict[str, float | None] = {}
        for each in self._metrics:
            if isinstance(each, SumMetric):
                found[each.name] = each.value(sums, num_seeds.item())
            else:
                found[each.name] = each.value(outputs, labels)
        return found

    def _all_rows(self, world: World) -> tuple[Tensor, Tensor]:
        if not self._rows:
            return torch.empty(0), torch.empty(0)
        parts = (torch.cat(each) for each in zip(*self._rows, strict=True))
        outputs, labels = (torch.cat(collectives.gather_rows(each, world)) for each in parts)
        return outputs, labels
