"""The batches of a step: its buckets, shuffled, as rows of the buffer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from lsm import native
from lsm.core.device import moved
from lsm.data.triples.store import Buckets
from lsm.embed.orders.bucket_plan import Bucket
from lsm.embed.orders.itinerary import Step
from lsm.embed.table.layout import PartitionLayout


class StepBatches:
    """Cuts the edges of steps into batches."""

    def __init__(
        self,
        buckets: Buckets,
        layout: PartitionLayout,
        columns: int,
        batch_size: int,
        seed: int,
        device: torch.device,
    ) -> None:
        """``buckets``: of the training edges, by the partitions of ``layout``. ``columns``: 3 per
        edge, or 2 without relations. ``device``: shuffles the edges and holds the batches."""
        self._buckets, self._layout, self._columns = buckets, layout, columns
        self._batch_size, self._seed, self._device = batch_size, seed, device

    def count(self, step: Step) -> int:
        """The number of batches of ``step``. It is the same on every rank: that of the rank with
        the most edges."""
        most = max(sum(self._size(step, b) for b in buckets) for buckets in step.trained)
        return -(-most // self._batch_size)

    def of(self, step: Step, first: int = 0) -> Iterator[Tensor]:
        """Batches ``first``, ``first + 1``, ... of this rank: [b, columns] int64, with head and
        tail as rows of the buffer. Batches are empty where only other ranks have edges left.

        The edges of all buckets of the step are shuffled together, by the seed, the epoch and the
        step. Bucket after bucket, a batch would hold edges of only two partitions, so each entity
        would get fewer and larger updates.
        """
        edges, size = self._shuffled(step), self._batch_size
        for number in range(first, self.count(step)):
            yield edges[number * size : (number + 1) * size]

    def _size(self, step: Step, bucket: Bucket) -> int:
        share = self._share(step, bucket)
        return share.stop - share.start

    def _share(self, step: Step, bucket: Bucket) -> slice:
        """The edges of ``bucket`` that ``step`` trains, as a slice of the bucket's order in the
        epoch."""
        starts, k = self._buckets.starts, self._number(bucket)
        size = int(starts[k + 1] - starts[k])
        return slice(size * step.round // step.rounds, size * (step.round + 1) // step.rounds)

    def _number(self, bucket: Bucket) -> int:
        return bucket[0] * self._layout.partitions + bucket[1]

    def _shuffled(self, step: Step) -> Tensor:
        edges = torch.cat([self._rows(step, bucket) for bucket in step.buckets] or [self._none()])
        key = native.batch_key(self._seed, step.epoch, step.number, 0)
        generator = torch.Generator(self._device).manual_seed(key)
        return edges[torch.randperm(len(edges), generator=generator, device=self._device)]

    def _rows(self, step: Step, bucket: Bucket) -> Tensor:
        """The edges of ``bucket`` that ``step`` trains, as rows of the buffer."""
        edges = torch.from_numpy(self._buckets.edges(*bucket).astype(np.int64))
        if step.rounds > 1:
            key = native.batch_key(self._seed, step.epoch, self._number(bucket), 0)
            generator = torch.Generator().manual_seed(key)
            edges = edges[
                torch.randperm(len(edges), generator=generator)[self._share(step, bucket)]
            ]
        for column, partition in ((0, bucket[0]), (-1, bucket[1])):
            first = step.frames[partition] * self._layout.frame_rows
            edges[:, column] += first - self._layout.starts[partition]
        return moved(edges, self._device)

    def _none(self) -> Tensor:
        return torch.empty((0, self._columns), dtype=torch.int64, device=self._device)
