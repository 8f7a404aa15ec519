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


class ScheduledTicket:
    """Rows that are being read, or will be as soon as the scheduler hands them on."""

    def __init__(self, scheduler: ReadScheduler, out: torch.Tensor) -> None:
        self._scheduler = scheduler
        self._out = out
        self.ticket: Ticket | None = None  # set by the scheduler
        self.error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether every read has ended, well or badly; not while they wait for company."""
        return self.error is not None or (self.ticket is not None and self.ticket.done)

    def wait(self, timeout_secs: float | None = None) -> torch.Tensor:
        """As Ticket.wait(). Rows that still wait for company are handed on now, so that nothing
        is late for the sake of a longer read."""
        if self.ticket is None and self.error is None:
            self._scheduler.flush()
        if self.error is not None:
            raise self.error
        return self.ticket.wait(timeout_secs)


class ReadScheduler:
    """Collects requests and submits them together: when ``merge_iterations`` of them wait, or when
    one of them is waited for. Thread-safe. With 1 nothing is collected; "auto" goes by what
    ``in_flight`` was last told."""

    def __init__(self, storage: Storage, merge_iterations: int | Literal["auto"]) -> None:
        if merge_iterations != "auto" and merge_iterations < 1:
            raise ValueError(f"merge_iterations: expected at least 1, got {merge_iterations}")
        self._storage = storage
        self._is_automatic = merge_iterations == "auto"
        self._merge_iterations = 1 if self._is_automatic else merge_iterations
        self._lock = threading.Lock()
        self._waiting: list[tuple[ScheduledTicket, tuple]] = []

    def submit(
        self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor | None = None
    ) -> ScheduledTicket:
        """As Storage.submit(), but not necessarily at once. Errors of the arguments are raised by
        the ticket's wait() if the request had to wait."""
        ticket = ScheduledTicket(self, out)
        with self._lock:
            self._waiting.append((ticket, (ids, out, positions)))
            alone = len(self._waiting) == 1
            if len(self._waiting) >= self._merge_iterations:
                self._hand_on()
        if alone and ticket.error is not None:
            raise ticket.error
        return ticket

    def in_flight(self, iterations: int) -> None:
        """Says how many iterations, the next one included, are read ahead: with "auto", half of
        them are collected."""
        if self._is_automatic:
            with self._lock:
                self._merge_iterations = company(iterations)

    def keep_busy(self, accesses: float) -> bool:
        """Submits whatever waits if the device has fewer than ``accesses`` reads left to do; says
        whether anything waits still."""
        if self._waiting and self._storage.outstanding_reads < accesses:
            self.flush()
        return bool(self._waiting)

    def flush(self) -> None:
        """Submits whatever waits."""
        with self._lock:
            self._hand_on()

    def _hand_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            tickets = self._storage.submit_together([read for _, read in waiting])
        except Exception as error:
            for scheduled, _ in waiting:
                scheduled.error = error
            return
        for (scheduled, _), ticket in zip(waiting, tickets, strict=True):
            scheduled.ticket = ticket
