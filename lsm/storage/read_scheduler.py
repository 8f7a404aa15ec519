"""Reads of several iterations, handed to the storage engine together (DESIGN section 6).

The misses of the iterations that are in flight are known together. Sorted by offset over all of
them they make fewer and longer reads than iteration by iteration: blocks that two of them need are
read once, and rows near each other share a read.
"""

from __future__ import annotations

import threading
from typing import Literal

import torch

from lsm.storage.engine import Storage, Ticket
from lsm.storage.read_ahead import company


class ReadScheduler:
    """Collects requests and submits them together: when ``merge_iterations`` of them wait, or when
    one of them is waited for. Thread-safe.

    merge_iterations: 1 collects nothing; "half" collects half of the iterations that in_flight()
    was last told.
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
        """As Storage.submit(), but not necessarily at once. If the request had to wait, the
        ticket's wait() raises what submit() would have raised."""
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
        """Reads that the drive still has to do or is doing."""
        return self._storage.outstanding_reads

    def in_flight(self, iterations: int) -> None:
        """Takes how many iterations, the next one included, are read ahead: with "auto", half of
        them are collected."""
        if self._takes_half:
            with self._lock:
                self._merge_iterations = company(iterations)

    def keep_busy(self, accesses: float) -> bool:
        """Submits all collected requests if the drive has fewer than ``accesses`` reads left to do.
        Returns True if some are still collected."""
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
