"""Collects the reads of several iterations, and submits them in one wave.

The misses of all iterations in flight are known together. Sorted by offset over all of them they
make fewer and longer reads: a block that two iterations need is read once, and rows near each other
share a read. Native: kernels/io/read_scheduler.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from lsm import native
from lsm.storage.engine import Storage, Ticket
from lsm.storage.read_ahead import company

_NO_WAVE = 2**62  # more requests than are ever collected


class ReadScheduler:
    """Collects requests to several storages and submits them together. Thread-safe.

    Submits as soon as it has collected ``merge_iterations`` requests, or a caller waits for one of
    them. Requests to an engine that plans them one by one are submitted at once. With
    several storages an iteration makes several requests, and end_iteration() is counted instead.

    storages: those whose outstanding reads count. merge_iterations: 1 collects nothing; "half"
    collects half of the iterations last passed to in_flight().
    """

    def __init__(
        self, storages: Sequence[Storage], merge_iterations: int | Literal["half"]
    ) -> None:
        self._storages: list[Storage] = []
        self._takes_half = merge_iterations == "half"
        self._merged = 1 if merge_iterations == "half" else merge_iterations
        self._ended = 0
        self._native = native.ReadScheduler(self._merged)
        for storage in storages:
            self.add(storage)

    def add(self, storage: Storage) -> None:
        """Adds a storage, to which each iteration makes a request of its own."""
        self._storages.append(storage)
        if len(self._storages) > 1:
            self._native.set_wave(_NO_WAVE)

    def end_iteration(self) -> None:
        """Ends the requests of an iteration to several storages."""
        self._ended += 1
        if self._ended >= self._merged:
            self._ended = 0
            self.flush()

    def submit(
        self,
        storage: Storage,
        ids: torch.Tensor,
        out: torch.Tensor,
        positions: torch.Tensor | None = None,
    ) -> Ticket:
        """As ``storage.submit()``, but possibly later. The ticket of a request that was collected
        raises the errors of its submission from wait()."""
        if not storage.plans_together:
            return storage.submit(ids, out, positions)
        rows = storage.row_map.rows(ids)
        reads = self._native.submit(storage.handle(), rows, out, positions)
        return Ticket(reads, out, storage.timeout_secs)

    @property
    def outstanding_reads(self) -> int:
        """Reads that are queued or in flight."""
        return sum(storage.outstanding_reads for storage in self._storages)

    def in_flight(self, iterations: int) -> None:
        """Takes the number of iterations in flight, the next one included. With "half", half of
        them are collected."""
        if self._takes_half:
            self._merged = company(iterations)
            if len(self._storages) == 1:
                self._native.set_wave(self._merged)

    def keep_busy(self, accesses: float) -> bool:
        """Submits all collected requests if fewer than ``accesses`` reads are outstanding. Returns
        True if some are still collected."""
        if self._native.has_collected and self.outstanding_reads < accesses:
            self.flush()
        return self._native.has_collected

    def flush(self) -> None:
        """Submits all collected requests."""
        self._native.flush()
