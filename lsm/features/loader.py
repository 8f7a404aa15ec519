"""Feature rows by node id, read from storage."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from lsm.core.counters import COUNTERS, EXCHANGED, SPANS, STORAGE_SUMS
from lsm.core.ids import vector_of_ids
from lsm.data.feature_files import FeatureFiles
from lsm.features.memory import TakeRows
from lsm.features.row_source import Announced, PendingRows, RowSource
from lsm.storage.engine import Storage, Ticket
from lsm.storage.read_scheduler import ReadScheduler


class ReadRows:
    """The PendingRows of a FeatureLoader without a cache."""

    def __init__(
        self,
        ticket: Ticket,
        rows: torch.Tensor,
        check_process: Callable[[], None],
        *,
        in_memory: bool = False,
    ) -> None:
        """check_process: raises in a forked process, which has none of the engine's threads.
        in_memory: True if the rows come from memory, and count as hits."""
        self._ticket, self._check_process = ticket, check_process
        self._rows = rows
        self.stats: dict[str, float] = dict.fromkeys((*COUNTERS, *EXCHANGED, *SPANS), 0)
        self.stats["requests"] = self.stats["hits" if in_memory else "misses"] = rows.size(0)

    @property
    def num_bytes(self) -> int:
        """As PendingRows.num_bytes."""
        return self._rows.nbytes

    @property
    def arrived(self) -> bool:
        """As PendingRows.arrived."""
        return self._ticket.done

    def result(self, timeout_secs: float | None = None) -> torch.Tensor:
        """As PendingRows.result(); ``timeout_secs``: the engine's by default."""
        self._check_process()
        start = time.perf_counter()
        self._ticket.wait(timeout_secs)
        self.stats["read_wait_secs"] += time.perf_counter() - start
        return self._rows


@dataclass(frozen=True)
class AnnouncedRead:
    """The Announced of a FeatureLoader without a cache, which knows no window."""

    num_bytes: int
    start: Callable[[], ReadRows]
    """As Announced.start()."""


class FeatureLoader(RowSource):
    """Feature rows of a store's nodes: ``rows = lsm.open_features(store).fetch(ids)``.

    lsm.open_features() makes one; with a cache it makes a CachedFeatureLoader, which has the same
    methods. The memory of rows is reused once no tensor refers to it any more. Thread-safe.
    """

    window = 1
    """Batches, including the next one, that are worth announcing."""

    completed_ahead = 0
    """Batches that are worth completing before they are taken; 0 if result() only waits."""

    peer_timeout_secs = 0.0
    """Longest wait of announce() and result() for other ranks, in addition to storage."""

    def __init__(
        self,
        files: FeatureFiles,
        opened: Storage,
        take_rows: TakeRows,
        reads: ReadScheduler | None = None,
    ) -> None:
        """Use ``lsm.open_features``, which opens the engine.

        Args:
            files: The files of the rows.
            opened: An engine over ``files``, which ``close()`` closes.
            take_rows: Allocates a number of rows, [n, dim].
            reads: Of all loaders whose rows make one batch; None: the loader has its own.
        """
        self.dim = files.dim
        self.dtype = files.dtype
        self.row_bytes = files.row_bytes
        self.storage = opened
        """The open engine."""
        self.reads = reads or ReadScheduler([], opened.merge_iterations)
        self.reads.add(opened)
        self._take_rows = take_rows
        self._pid = os.getpid()

    def __repr__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{type(self).__name__}(dim={self.dim}, dtype={dtype}, engine={self.engine!r})"

    @property
    def device_bytes(self) -> int:
        """GPU memory of this loader, without delivered rows."""
        return 0

    @property
    def engine(self) -> str:
        """The engine in use ("auto" resolved)."""
        return self.storage.engine

    @property
    def is_forked(self) -> bool:
        """True in a process forked from the one that opened the loader."""
        return os.getpid() != self._pid

    def check_process(self) -> None:
        """Checks that this process has the loader's threads.

        Raises:
            RuntimeError: The process was forked from the one that opened the loader.
        """
        if self.is_forked:
            raise RuntimeError(
                f"this loader was opened by process {self._pid}, and its threads did not survive "
                "the fork; open the loader in the child, or start the child with the "
                'multiprocessing method "spawn"'
            )

    def check_usable(self) -> None:
        """Checks that batches can be announced.

        Raises:
            RuntimeError: The process was forked, or an earlier failure lost rows of the cache.
            PeerError: A rank that shares the cache failed or left.
        """
        self.check_process()

    def claim(self) -> None:
        """Begins the batches of one iterator; ``release()`` ends them.

        Raises:
            RuntimeError: The process was forked, or the batches of another iterator are planned.
        """
        self.check_process()

    def release(self) -> None:
        """Ends the batches of an iterator. Precondition: all batches announced since claim() were
        requested or forgotten."""

    def announce(self, ids: torch.Tensor, *, repeats: bool = False) -> Announced[torch.Tensor]:
        """Announces a batch, which is started after all batches announced before.

        Without a cache the order is free, and nothing happens before the start.

        Args:
            ids: Node ids of the batch, [N] int64.
            repeats: An id may be there several times. A cache then plans for each id once.

        Returns:
            The announced batch, whose ``start()`` starts reading and gives pending rows.

        Raises:
            ValueError: An id is out of range, or repeated without ``repeats``; ``ids`` has another
                shape or dtype.
        """
        ids = vector_of_ids(ids)
        return AnnouncedRead(ids.numel() * self.row_bytes, partial(self._read, ids))

    def leave(self) -> None:
        """Ends announcements until forget_announced(). Callable from any thread."""

    def leave_rows(self) -> None:
        """Ends deliveries until forget_announced(). Precondition: no result() is in progress, and
        none follows."""

    def forget_announced(self) -> None:
        """Drops announced batches that were not started."""

    def prefetch(self, ids: torch.Tensor) -> PendingRows[torch.Tensor]:
        """Starts reading rows. Does not block.

        Args:
            ids: Node ids, [N] int64 or of a smaller integer type, or a list of them, in any order.
                Repeats are allowed. If batches are announced, the ids of the oldest.

        Returns:
            Pending rows, whose ``result()`` gives the rows.

        Raises:
            ValueError: An id is out of range, or ``ids`` has another shape or dtype.
        """
        return self._read(vector_of_ids(ids))

    def fetch(self, ids: torch.Tensor, timeout_secs: float | None = None) -> torch.Tensor:
        """Reads rows. Blocks until they have arrived.

        Args:
            ids: Node ids, as for ``prefetch()``.
            timeout_secs: Longest wait, in seconds; None: the engine's.

        Returns:
            Rows, [N, dim] in the store's dtype. Row i is the feature of node ``ids[i]``.

        Raises:
            ValueError: An id is out of range, or ``ids`` has another shape or dtype.
            OSError: A read failed.
            TimeoutError: The rows have not arrived in time.
        """
        return self.prefetch(ids).result(timeout_secs)

    def stats(self) -> dict[str, int | float]:
        """Returns the counters since the loader was opened.

        Returns:
            The storage engine's counters, by name. A cache adds its own.
        """
        return self.storage.stats()

    def storage_sums(self) -> dict[str, int | float]:
        """Returns STORAGE_SUMS since the loader was opened, sooner than stats() does.

        Returns:
            ``bytes_read`` and ``bytes_requested``.
        """
        stats = self.storage.stats()
        return {name: stats[name] for name in STORAGE_SUMS}

    def close(self) -> None:
        """Closes the engine, except in a forked process. Delivered rows stay valid."""
        if not self.is_forked:
            self.storage.close()

    def __enter__(self) -> FeatureLoader:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _read(self, ids: torch.Tensor) -> ReadRows:
        self.check_process()
        rows = self._take_rows(ids.numel())
        ticket = self.reads.submit(self.storage, ids, rows)
        return ReadRows(ticket, rows, self.check_process, in_memory=self.engine == "memory")
