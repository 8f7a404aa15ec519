"""Feature rows by node id, from whatever holds them."""

from __future__ import annotations

import torch

from lsm import native
from lsm.storage import StorageOptions, Ticket, open_storage


class PendingRows:
    """Rows that were asked for and may still be on their way."""

    def __init__(self, ticket: Ticket, rows: torch.Tensor) -> None:
        self._ticket = ticket
        self._rows = rows

    @property
    def num_bytes(self) -> int:
        """Memory that the rows take."""
        return self._rows.numel() * self._rows.element_size()

    def result(self, timeout_secs: float | None = None) -> torch.Tensor:
        """Blocks until the rows have arrived: [N, dim]. Raises OSError if a read failed,
        TimeoutError after ``timeout_secs`` (default: the engine's)."""
        self._ticket.wait(timeout_secs)
        return self._rows


class FeatureLoader:
    """Feature rows of a store's nodes: ``rows = FeatureLoader(store).fetch(ids)``.

    Rows come back in memory that is reused once no tensor refers to it any more. Thread-safe.

    store: a GraphStore. engine: auto, memory, mmap, posix or io_uring. idle_bytes: how much memory
    of returned rows is kept for reuse.
    """

    def __init__(
        self,
        store,
        *,
        engine: str = "auto",
        options: StorageOptions | None = None,
        idle_bytes: int = 512 << 20,
    ) -> None:
        self.dim = store.feature_dim
        self.dtype = store.feature_dtype
        self.storage = open_storage(store, engine, options)
        self._pool = native.BufferPool(idle_bytes)

    @property
    def engine(self) -> str:
        """The engine in use ("auto" resolved)."""
        return self.storage.engine

    def prefetch(self, ids: torch.Tensor) -> PendingRows:
        """Starts reading rows ``ids`` ([N] int64, any order, repeats allowed); ``result()`` of what
        it returns gives them. Raises ValueError for an id out of range."""
        if ids.dim() != 1 or ids.dtype != torch.int64:
            raise ValueError(f"ids: expected [N] int64, got {list(ids.shape)} {ids.dtype}")
        ids = ids.contiguous()
        buffer = self._pool.take(ids.numel() * self.storage.row_bytes)
        rows = native.as_tensor(buffer, self.dtype).view(ids.numel(), self.dim)
        return PendingRows(self.storage.submit(ids, rows), rows)

    def fetch(self, ids: torch.Tensor, timeout_secs: float | None = None) -> torch.Tensor:
        """Rows ``ids`` as [N, dim] in the store's dtype: row i is the feature of node ids[i]."""
        return self.prefetch(ids).result(timeout_secs)

    def stats(self) -> dict[str, int | float]:
        """The storage engine's counters (see Storage.stats)."""
        return self.storage.stats()

    def close(self) -> None:
        """Closes the engine. Rows that were delivered stay valid."""
        self.storage.close()

    def __enter__(self) -> FeatureLoader:
        return self

    def __exit__(self, *_exception) -> None:
        self.close()
