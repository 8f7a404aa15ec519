"""The metrics of an evaluation, from the batches of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.loader.batch import Batch
from lsm.run.totals import Totals, read
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
        self._num_seeds = 0
        self._sums: dict[str, Tensor] = {}

    def add(self, model: Model, batch: Batch) -> None:
        """Counts the seeds of a batch."""
        self._num_seeds += batch.batch_size
        for name, value in self._counts(model, batch).items():
            self._sums[name] = self._sums.get(name, 0) + value.double()

    def metrics(self, world: World) -> dict[str, float | None]:
        """The metrics of the seeds of all ranks. A collective. Precondition: every rank has counted
        as many batches."""
        (totals,) = read([Totals(loss_count=self._num_seeds, unread=self._sums)], world)
        return self._metrics(totals.counts, totals.loss_count)


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
            self._sums[name] = self._sums.get(name, 0) + value.double()
        if any(isinstance(each, ScoreMetric) for each in self._metrics):
            self._rows.append((outputs.cpu(), labels.cpu()))
        self._num_seeds += len(outputs)

    def metrics(self, world: World) -> dict[str, float | None]:
        """The metrics of the seeds of all ranks, by name; None without seeds. A collective.
        Precondition: every rank has counted as many batches."""
        if not self._sums and not self._rows:
            return {each.name: None for each in self._metrics}
        own = [each.cpu() for each in self._sums.values()]
        values = [torch.tensor([self._num_seeds], dtype=torch.float64), *own]
        flat = collectives.all_reduce_sum(torch.cat([each.reshape(-1) for each in values]), world)
        num_seeds, *parts = flat.split([each.numel() for each in values])
        parts = [part.view(each.shape) for part, each in zip(parts, own, strict=True)]
        sums = dict(zip(self._sums, parts, strict=True))
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
