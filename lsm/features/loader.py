"""Feature rows by node id, from whatever holds them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import torch

from lsm import native
from lsm.core.counters import COUNTERS, EXCHANGED, STAGES
from lsm.core.device import empty_rows
from lsm.data.feature_files import FeatureFiles
from lsm.storage.engine import Storage, StorageOptions, Ticket
from lsm.storage.open import open_storage
from lsm.storage.read_scheduler import ReadScheduler

if TYPE_CHECKING:
    from lsm.cache.options import CacheOptions
    from lsm.data.graph_store import GraphStore


class PendingRows:
    """Rows that were asked for and may still be on their way."""

    def __init__(self, ticket: Ticket, rows: torch.Tensor) -> None:
        self._ticket = ticket
        self._rows = rows
        self.stats: dict[str, float] = dict.fromkeys((*COUNTERS, *EXCHANGED, *STAGES), 0)
        """COUNTERS, EXCHANGED and STAGES of these rows; final once result() has returned."""
        self.stats["requests"] = self.stats["misses"] = len(rows)

    @property
    def num_bytes(self) -> int:
        """Memory that the rows take."""
        return self._rows.numel() * self._rows.element_size()

    @property
    def arrived(self) -> bool:
        """Whether no read of these rows is left to do."""
        return self._ticket.done

    def result(self, timeout_secs: float | None = None) -> torch.Tensor:
        """Blocks until the rows have arrived: [N, dim]. Raises OSError if a read failed,
        TimeoutError after ``timeout_secs`` (default: the engine's)."""
        start = time.perf_counter()
        self._ticket.wait(timeout_secs)
        self.stats["read_wait_secs"] += time.perf_counter() - start
        return self._rows


class FeatureLoader:
    """Feature rows of a store's nodes: ``rows = FeatureLoader(store).fetch(ids)``.

    Rows come back in memory that is reused once no tensor refers to it any more. Thread-safe.

    store: a GraphStore, or the FeatureFiles of features that belong to no graph. cache:
    CacheOptions, for a loader that keeps rows in memory as they say: a CachedFeatureLoader, which
    takes ``scores`` and ``num_threads`` as well, and not ``pinned``;
    without it every row is read from storage. engine: auto, memory, mmap, posix or io_uring.
    storage: an engine that is open already, instead of ``engine`` and ``options``; close() leaves
    it open. idle_bytes: how much memory of returned rows is kept for reuse. pinned: rows come in
    page-locked memory, from torch's pool of it, for a GPU.
    """

    window = 1
    """How many batches, the next one included, it is of use to announce."""

    peer_timeout_secs = 0.0
    """How long announce() and result() may wait for other ranks, beside storage."""

    copies_rows = False
    """Whether result() works, and does not only wait: then it is worth a thread of its own."""

    reads_apart = False
    """Whether what is read for a batch takes less memory than the batch, which is made of it last:
    then batches are better not made long before they are needed."""

    def __new__(cls, store, cache: CacheOptions | None = None, *_arguments, **_options):
        if cls is FeatureLoader and cache is not None:
            from lsm.features.cached import CachedFeatureLoader  # which derives from this class

            cls = CachedFeatureLoader
        return super().__new__(cls)

    def __init__(
        self,
        store,
        cache: None = None,
        *,
        engine: str = "auto",
        options: StorageOptions | None = None,
        storage: Storage | None = None,
        idle_bytes: int = 512 << 20,
        pinned: bool = False,
    ) -> None:
        files = files_of(store)
        self.dim = files.dim
        self.dtype = files.dtype
        self._pid = os.getpid()
        self._owns_storage = storage is None
        self.storage = storage or open_storage(files, engine, options)
        self._pool = native.BufferPool(idle_bytes)
        self._pinned = pinned
        self._reads = ReadScheduler(self.storage, self.storage.merge_iterations)

    @property
    def device_bytes(self) -> int:
        """GPU memory that this loader holds beside the rows it delivers."""
        return 0

    @property
    def engine(self) -> str:
        """The engine in use ("auto" resolved)."""
        return self.storage.engine

    @property
    def reads(self) -> ReadScheduler:
        """What hands reads to the engine."""
        return self._reads

    @property
    def is_forked(self) -> bool:
        """Whether this is a process that was forked from the one that opened the loader."""
        return os.getpid() != self._pid

    def check_process(self) -> None:
        """RuntimeError where the loader's threads are not: in a process forked later."""
        if self.is_forked:
            raise RuntimeError(
                f"this loader was opened by process {self._pid}, and its threads did not survive "
                "the fork; open the loader in the child, or start the child with the "
                'multiprocessing method "spawn"'
            )

    def claim(self) -> None:
        """To be called by who is about to announce batches, and release() by the same later.
        RuntimeError in a forked process, and while batches of another are planned."""
        self.check_process()

    def release(self) -> None:
        """Says that all batches announced since claim() were asked for or forgotten."""

    def announce(self, ids: torch.Tensor) -> None:
        """Says that ``ids`` ([N] int64, no repeats) will be asked for, after all batches announced
        before. Of no use without a cache."""

    def leave(self) -> None:
        """Says that nothing more will be announced until forget_announced(). From any thread."""

    def forget_announced(self) -> None:
        """Says that batches which were announced, but not yet asked for, never will be."""

    def prefetch(self, ids: torch.Tensor) -> PendingRows:
        """Starts reading rows ``ids`` ([N] int64, any order, repeats allowed); ``result()`` of what
        it returns gives them. Raises ValueError for an id out of range."""
        self.check_process()
        ids = vector_of_ids(ids)
        rows = self._take_rows(len(ids))
        return PendingRows(self._reads.submit(ids, rows), rows)

    def fetch(self, ids: torch.Tensor, timeout_secs: float | None = None) -> torch.Tensor:
        """Rows ``ids`` as [N, dim] in the store's dtype: row i is the feature of node ids[i].

        Blocks until they have arrived. Raises OSError if a read failed, TimeoutError after
        ``timeout_secs`` (default: the engine's).
        """
        return self.prefetch(ids).result(timeout_secs)

    def stats(self) -> dict[str, int | float]:
        """The storage engine's counters (see Storage.stats)."""
        return self.storage.stats()

    def close(self) -> None:
        """Closes the engine, but not in a forked process, whose it is not. Rows that were delivered
        stay valid."""
        if self._owns_storage and not self.is_forked:
            self.storage.close()

    def __enter__(self) -> FeatureLoader:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _take_rows(self, num_rows: int) -> torch.Tensor:
        """Memory for ``num_rows`` rows: [num_rows, dim], not initialised."""
        if self._pinned:
            return empty_rows(num_rows, self.dim, self.dtype)
        buffer = self._pool.take(num_rows * self.storage.row_bytes)
        return native.as_tensor(buffer, self.dtype).view(num_rows, self.dim)


def files_of(store: GraphStore | FeatureFiles) -> FeatureFiles:
    """The feature files of ``store``, or ``store`` itself if it is files alone."""
    return store if isinstance(store, FeatureFiles) else store.feature_files


def vector_of_ids(ids: torch.Tensor) -> torch.Tensor:
    """``ids``, contiguous; ValueError unless it is [N] int64."""
    if ids.dim() != 1 or ids.dtype != torch.int64:
        raise ValueError(f"ids: expected [N] int64, got {list(ids.shape)} {ids.dtype}")
    return ids.contiguous()
