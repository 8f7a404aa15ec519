"""Coalesces the reads of several iterations.

The misses of all iterations in flight are known together. Sorted by offset over all of them they
make fewer and longer reads: a block that two iterations need is read once, and rows near each other
share a read.
"""

from __future__ import annotations

import threading
from typing import Literal

import torch

from lsm.storage.engine import Storage, Ticket
from lsm.storage.read_ahead import company


class ReadScheduler:
    """Collects requests and submits them together. Thread-safe.

    Submits as soon as it has collected ``merge_iterations`` requests, or a caller waits for one of
    them.

    merge_iterations: 1 collects nothing; "half" collects half of the iterations last passed to
    in_flight().
    """

    def __init__(self, storage: Storage, merge_iterations: int | Literal["half"]) -> None:
        if merge_iterations != "half" and merge_iterations < 1:
            raise ValueError(f"merge_iterations: expected at least 1, got {merge_iterations}")
        self._storage = storage
        self._takes_half = merge_iterations == "half"
        self._merge_iterations = 1 if merge_iterations == "half" else merge_iterations
        self._lock = threading.Lock()
        self._waiting: list[
            tuple[Ticket, tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]
        ] = []

    def submit(
        self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor | None = None
    ) -> Ticket:
        """As Storage.submit(), but possibly later. The ticket of a request that was collected
        raises the errors of its submission from wait()."""
        ticket = Ticket(out, self._storage.timeout_secs, self.flush)
        with self._lock:
            self._waiting.append((ticket, (ids, out, positions)))
            alone = len(self._waiting) == 1
            if len(self._waiting) >= self._merge_iterations:
                self._hand_on()
        if alone and ticket.error is not None:
            raise ticket.error
        return ticket

    @property
    def outstanding_reads(self) -> int:
        """Reads that are queued or in flight."""
        return self._storage.outstanding_reads

    def in_flight(self, iterations: int) -> None:
        """Takes the number of iterations in flight, the next one included. With "half", half of
        them are collected."""
        if self._takes_half:
            with self._lock:
                self._merge_iterations = company(iterations)

    def keep_busy(self, accesses: float) -> bool:
        """Submits all collected requests if fewer than ``accesses`` reads are outstanding. Returns
        True if some are still collected."""
        if self._waiting and self._storage.outstanding_reads < accesses:
            self.flush()
        return bool(self._waiting)

    def flush(self) -> None:
        """Submits all collected requests."""
        with self._lock:
            self._hand_on()

    def _hand_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            started = self._storage.start([request for _, request in waiting])
        except Exception as error:
            for ticket, _ in waiting:
                ticket.error = error
            return
        for (ticket, _), reads in zip(waiting, started, strict=True):
            ticket.submitted(reads)
