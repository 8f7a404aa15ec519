"""Tiers of a cache in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from lsm import native
from lsm.cache.tier_sizes import TierSizes
from lsm.comm.request import RowTarget
from lsm.features.memory import TakeRows
from lsm.features.pending_batch import PendingBatch
from lsm.storage.engine import Storage
from lsm.storage.read_scheduler import ReadScheduler


class Tiers(Protocol):
    """The memory of a cache, on which plans are replayed in order."""

    storage: Storage
    take_rows: TakeRows
    open_ahead: int
    """Batches, including the next one, that need open_batch()."""

    @property
    def device_bytes(self) -> int:
        """GPU memory of the tiers."""

    @property
    def prefetched_rows(self) -> int:
        """Rows of the victim buffer that were copied before their batch was due."""

    def start_reads(self, batch: PendingBatch, reads: ReadScheduler) -> None:
        """Starts reading the rows that no tier holds."""

    def open_batch(self, batch: PendingBatch) -> None:
        """Starts prefetching rows of the victim buffer for a batch that is due soon."""

    def replay(self, batch: PendingBatch, targets: Sequence[RowTarget] | None = None) -> None:
        """Replays the plan of ``batch``: moves rows between the tiers, and delivers those of the
        batch to ``targets``, or without any to ``batch.delivered``. Precondition: the batch's reads
        have ended."""

    def start_over(self) -> None:
        """Forgets the opened batches, because the planner starts over."""

    def close(self) -> None:
        """Frees the memory of the tiers; no other method may be called after this."""


class HostTiers:
    """Tiers in host memory (see Tiers).

    rows: lines and slots of each tier. static_ids, constant_ids: [n] int64, the rows to read now
    and keep. take_rows: memory for batches. take_staged: memory for rows from storage until their
    batch is due, so that a batch read ahead takes no memory for cached rows; None: rows are read to
    their places in the batch.
    """

    device_bytes = 0

    def __init__(
        self,
        storage: Storage,
        rows: TierSizes,
        static_ids: torch.Tensor,
        constant_ids: torch.Tensor,
        *,
        take_rows: TakeRows,
        take_staged: TakeRows | None,
        prefetch_iterations: int,
        num_threads: int,
    ) -> None:
        self.storage = storage
        self.take_rows = take_rows
        self.open_ahead = 1 + (prefetch_iterations if rows.victim_slots else 0)
        self._take_staged = take_staged
        self._executor = native.CacheExecutor(
            storage.handle(),
            num_lines=rows.planner.num_lines,
            victim_slots=rows.victim_slots,
            static_rows=storage.row_map.rows(static_ids),
            constant_rows=storage.row_map.rows(constant_ids),
            timeout_secs=storage.timeout_secs,
            prefetch_iterations=prefetch_iterations,
        )
        self._threads = native.ThreadPool(num_threads)

    @property
    def num_lines(self) -> int:
        """Lines of the cache."""
        return self._executor.num_lines

    @property
    def prefetched_rows(self) -> int:
        """As Tiers.prefetched_rows."""
        return self._executor.prefetched_rows

    def start_reads(self, batch: PendingBatch, reads: ReadScheduler) -> None:
        """As Tiers.start_reads()."""
        if self._take_staged is None:
            batch.read_to(self.take_rows(batch.plan.num_rows), self.storage, reads)
            return
        batch.read_staged(self._take_staged, self.storage, reads)

    def open_batch(self, batch: PendingBatch) -> None:
        """As Tiers.open_batch(). Allocates the batch, into which rows are prefetched."""
        plan = batch.plan
        if batch.rows is None:
            batch.rows = self.take_rows(plan.num_rows)
        self._executor.open_batch(plan.native, batch.rows)

    def replay(self, batch: PendingBatch, targets: Sequence[RowTarget] | None = None) -> None:
        """As Tiers.replay()."""
        assert batch.rows is not None, "the oldest batch is open"
        self._executor.replay(
            batch.plan.native,
            staged=batch.staged,
            out=batch.rows,
            pool=self._threads,
            targets=targets,
        )
        batch.delivered = batch.rows

    def start_over(self) -> None:
        """As Tiers.start_over()."""
        self._executor.start_over()

    def close(self) -> None:
        """As Tiers.close()."""
        del self._executor
