"""Protocols between features and a pipeline: rows by id that arrive later."""

from __future__ import annotations

from typing import Protocol

import torch

from lsm.storage.read_scheduler import ReadScheduler


class PendingRows(Protocol):
    """Requested rows, which may still be on their way."""

    stats: dict[str, float]
    """COUNTERS, EXCHANGED and SPANS of these rows; final once result() has returned."""

    @property
    def num_bytes(self) -> int:
        """Memory that the rows take now."""

    @property
    def arrived(self) -> bool:
        """True once all reads of these rows have ended; copies may remain."""

    def result(self, timeout_secs: float | None = None) -> torch.Tensor:
        """Returns the rows. Blocks until they have arrived.

        Args:
            timeout_secs: Longest wait, in seconds; None: the engine's.

        Returns:
            Rows, [N, dim].

        Raises:
            OSError: A read failed.
            TimeoutError: The rows have not arrived in time.
        """


class RowSource(Protocol):
    """Rows by id, planned in the order of requests.

    Batches between claim() and release() belong to one iterator, which announces them and then
    requests them by prefetch(), both in order.
    """

    window: int
    """Batches, including the next one, that are worth announcing."""

    peer_timeout_secs: float
    """Longest wait of announce() and result() for other ranks, beside storage."""

    completed_ahead: int
    """Batches that are worth completing before they are taken; 0 if result() only waits."""

    row_bytes: int
    reads: ReadScheduler

    @property
    def is_forked(self) -> bool:
        """True in a process forked from the one that opened the source."""

    def check_process(self) -> None:
        """Raises RuntimeError in a forked process."""

    def claim(self) -> None:
        """Begins the batches of one iterator. Raises RuntimeError while another has not ended."""

    def release(self) -> None:
        """Ends the batches of an iterator."""

    def announce(self, ids: torch.Tensor) -> None:
        """Adds a batch ([N] int64, no repeats) to the window."""

    def leave(self) -> None:
        """Ends announcements until forget_announced(), so that no other rank waits for one."""

    def forget_announced(self) -> None:
        """Drops announced batches that were not requested."""

    def prefetch(self, ids: torch.Tensor) -> PendingRows:
        """Starts fetching rows ``ids``. Does not block."""
