"""The batches of a step: its buckets, shuffled, as rows of the buffer."""

from __future__ import annotations

from collections.abc import Iterator

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
        self._starts = buckets.starts.tolist()
        self._generator = torch.Generator()

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
        starts, k = self._starts, self._number(bucket)
        size = starts[k + 1] - starts[k]
        return slice(size * step.round // step.rounds, size * (step.round + 1) // step.rounds)

    def _number(self, bucket: Bucket) -> int:
        return bucket[0] * self._layout.partitions + bucket[1]

    def _shuffled(self, step: Step) -> Tensor:
        edges = moved(self._rows(step), self._device)
        key = native.batch_key(self._seed, step.epoch, step.number, 0)
        generator = torch.Generator(self._device).manual_seed(key)
        return edges.index_select(0, _shuffle(len(edges), generator))

    def _rows(self, step: Step) -> Tensor:
        """The edges of ``step``, bucket by bucket, as rows of the buffer: [n, columns] int64."""
        sizes = [self._size(step, bucket) for bucket in step.buckets]
        rows = torch.empty(sum(sizes), self._columns, dtype=torch.int64)
        for own, bucket in zip(rows.split(sizes), step.buckets, strict=True):
            shifts = [0] * self._columns
            for column, partition in ((0, bucket[0]), (-1, bucket[1])):
                first = step.frames[partition] * self._layout.frame_rows
                shifts[column] = first - self._layout.starts[partition]
            torch.add(self._edges(step, bucket), torch.tensor(shifts), out=own)
        return rows

    def _edges(self, step: Step, bucket: Bucket) -> Tensor:
        """The edges of ``bucket`` that ``step`` trains, with the dtype of the store."""
        edges = torch.from_numpy(self._buckets.edges(*bucket))
        if step.rounds == 1:
            return edges
        key = native.batch_key(self._seed, step.epoch, self._number(bucket), 0)
        order = _shuffle(len(edges), self._generator.manual_seed(key))
        return edges.index_select(0, order[self._share(step, bucket)])


def _shuffle(count: int, generator: torch.Generator) -> Tensor:
    """A permutation of ``count`` on the device of ``generator``. On the host its dtype does not
    change it, and half the bytes shuffle a million twice as fast."""
    is_short = generator.device.type == "cpu" and count < 2**31
    dtype = torch.int32 if is_short else torch.int64
    return torch.randperm(count, generator=generator, dtype=dtype, device=generator.device)
