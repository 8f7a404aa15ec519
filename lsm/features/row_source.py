"""A source of rows by id: batches are announced, started and awaited, in one order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, TypeVar

import torch

from lsm.graph.types import TypedMap
from lsm.storage.read_scheduler import ReadScheduler

Rows = torch.Tensor | TypedMap[str, torch.Tensor]
"""Rows of a batch, [N, dim]; of a graph of several types, those of each node type that has rows."""

R = TypeVar("R", bound=Rows, covariant=True)


class PendingRows(Protocol[R]):
    """Requested rows, which may still be on their way."""

    @property
    def stats(self) -> dict[str, float]:
        """COUNTERS, EXCHANGED and SPANS of these rows; final once result() has returned."""

    @property
    def num_bytes(self) -> int:
        """Memory that the rows take now."""

    @property
    def arrived(self) -> bool:
        """True once all reads of these rows have ended; copies may remain."""

    def result(self, timeout_secs: float | None = None) -> R:
        """Returns the rows. Blocks until they have arrived.

        Args:
            timeout_secs: Longest wait, in seconds; None: the engine's.

        Returns:
            The rows, in the order of the batch's ids.

        Raises:
            OSError: A read failed.
            TimeoutError: The rows have not arrived in time.
        """


class Announced(Protocol[R]):
    """A batch that was announced, and whose rows are not requested yet."""

    @property
    def num_bytes(self) -> int:
        """Memory that its rows will take."""

    def start(self) -> PendingRows[R]:
        """Starts fetching the rows. Does not block.

        Raises:
            RuntimeError: The batch was started or forgotten, or is not the oldest one announced.
        """


class RowSource(ABC):
    """Rows by id, planned in the order of requests.

    Batches between claim() and release() belong to one iterator, which announces them and then
    starts them, both in order.
    """

    window: int
    """Batches, including the next one, that are worth announcing."""

    peer_timeout_secs: float
    """Longest wait of announce() and result() for other ranks, in addition to storage."""

    completed_ahead: int
    """Batches that are worth completing before they are taken; 0 if result() only waits."""

    reads: ReadScheduler
    """Collects the reads of all batches."""

    @property
    @abstractmethod
    def is_forked(self) -> bool:
        """True in a process forked from the one that opened the source."""

    @abstractmethod
    def check_process(self) -> None:
        """Raises RuntimeError in a forked process."""

    @abstractmethod
    def claim(self) -> None:
        """Begins the batches of one iterator. Raises RuntimeError while another has not ended."""

    @abstractmethod
    def release(self) -> None:
        """Ends the batches of an iterator."""

    @abstractmethod
    def announce(self, ids: torch.Tensor, *, repeats: bool = False) -> Announced[Rows]:
        """Adds a batch ([N] int64) to the window. ``repeats``: an id may be there several times."""

    @abstractmethod
    def leave(self) -> None:
        """Ends announcements until forget_announced(), so that no other rank waits for one."""

    @abstractmethod
    def leave_rows(self) -> None:
        """Ends deliveries until forget_announced(), so that no other rank waits for rows.

        Precondition: no result() is in progress, and none follows.
        """

    @abstractmethod
    def forget_announced(self) -> None:
        """Drops announced batches that were not started."""
