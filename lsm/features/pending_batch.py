"""A batch whose rows come through a cache, until it is delivered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from lsm.cache.planner import Plan
from lsm.comm.request import NO_PLACES, Request
from lsm.core.counters import BY_SOURCE, COUNTERS, EXCHANGED, SPANS
from lsm.core.device import used_here
from lsm.features.memory import TakeRows
from lsm.storage.engine import Storage, Ticket
from lsm.storage.read_scheduler import ReadScheduler


class PendingBatch:
    """The PendingRows of a CachedFeatureLoader: a plan, its reads, and the memory of its rows. The
    loader, its tiers and its exchange fill it in.

    complete: replays all plans up to this one; result() calls it with this record and a time-out.
    request: of the exchange, if ranks share the cache. inverse: [N] int64, row i of the result is
    row inverse[i] of the batch; None: row i. final_bytes: memory of the complete batch.
    """

    def __init__(
        self,
        complete: Callable[[PendingBatch, float | None], None],
        plan: Plan,
        request: Request | None,
        inverse: torch.Tensor | None,
        final_bytes: int,
    ) -> None:
        self._complete = complete
        self._inverse = inverse
        self._final_bytes = final_bytes
        self.plan = plan  # until done
        self.request = request
        self.ticket: Ticket | None = None
        self.staged: torch.Tensor | None = None  # rows from storage, if they have memory of their
        # own
        self.rows: torch.Tensor | None = None  # of the plan's ids, in their order
        self.delivered: torch.Tensor  # the batch, complete; set by the replay
        self.is_open = False
        self.is_dropped = False
        self.done = False  # once the plan was replayed
        self.stats: dict[str, float] = dict.fromkeys((*EXCHANGED, *SPANS), 0)
        self.stats |= {name: plan.counters[name] for name in COUNTERS}

    @property
    def num_bytes(self) -> int:
        """Memory that the rows take now; at first only rows from storage take some."""
        if self.staged is None:
            return self._final_bytes
        return self.staged.nbytes + (0 if self.rows is None else self._final_bytes)

    @property
    def arrived(self) -> bool:
        """As PendingRows.arrived."""
        return self.ticket is None or self.ticket.done

    def result(self, timeout_secs: float | None = None) -> torch.Tensor:
        """As PendingRows.result(). Completes earlier batches first, each within ``timeout_secs``
        (default: the engine's).

        After an error the cache is unusable: every later result() and prefetch() raises
        RuntimeError.
        """
        self._complete(self, timeout_secs)
        rows = used_here(self.delivered)
        return rows if self._inverse is None else rows[self._inverse]

    def count_by_range(self, ends: Sequence[int]) -> list[list[int]]:
        """Requests and their sources (BY_SOURCE) by range of ids: range k ends before ends[k].
        Precondition: the batch is not done. Requests include those of other ranks."""
        row_of = NO_PLACES if self.request is None else self.request.row_of
        return [each[: len(BY_SOURCE)] for each in self.plan.native.count_by_range(ends, row_of)]

    def read_to(self, rows: torch.Tensor, storage: Storage, reads: ReadScheduler) -> None:
        """Starts reading the rows that no tier holds to their places in ``rows`` ([n, dim])."""
        self.rows = rows
        if self.plan.counters["misses"]:
            plan = self.plan
            self.ticket = reads.submit(storage, plan.miss_id, rows, plan.miss_position)

    def read_staged(self, take_rows: TakeRows, storage: Storage, reads: ReadScheduler) -> None:
        """Starts reading the rows that no tier holds into memory of their own, in their order."""
        num_misses = self.plan.counters["misses"]
        self.staged = take_rows(num_misses)
        if num_misses:
            self.ticket = reads.submit(storage, self.plan.miss_id, self.staged)

    def finish(self) -> None:
        """Ends the batch: releases all memory but that of the delivered rows."""
        self.done = True
        del self.plan
        self.request = self.ticket = None
        self.staged = self.rows = None

    def drop(self) -> None:
        """Abandons the reads in flight; result() will fail."""
        self.is_dropped = True
        self.ticket = None
