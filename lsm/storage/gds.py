"""The engine ``gds``: rows from files straight into GPU memory, by GPUDirect Storage.

A request becomes an array of reads, which goes to cuFile in batches (lsm.storage.cufile). Rows that
are adjacent in a file and in the output are coalesced into one read. Opening the engine loads
cuFile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path

import torch

from lsm.core.option_types import settled
from lsm.storage.cufile import CuFile, Reads, UnendedReadsError
from lsm.storage.engine import PendingReads, Storage
from lsm.storage.options import StorageOptions
from lsm.storage.row_map import RowMap

logger = logging.getLogger(__name__)

NUM_BATCHES = 4
"""Batches in flight. One thread each submits and awaits them."""

COMPATIBLE_BATCH = 8
"""Reads of a batch in compatibility mode. Each read in flight holds one of cuFile's bounce buffers
there: the default configuration has 64 of the usual size, and cuFileBatchIOSubmit blocks without a
time limit when none is left."""


class GdsReads:
    """PendingReads by cuFile. Each batch keeps its output alive."""

    def __init__(self, batches: Sequence[Future[None]]) -> None:
        self._batches = batches

    @property
    def done(self) -> bool:
        """True once every read has ended, well or badly."""
        return all(batch.done() for batch in self._batches)

    def wait(self, timeout_secs: float) -> None:
        """As Ticket.wait(), except that reads may write to their output after a TimeoutError. The
        engine keeps the output alive until they have ended."""
        deadline = time.monotonic() + timeout_secs
        error: Exception | None = None
        for index, batch in enumerate(self._batches):
            try:
                batch.result(max(0.0, deadline - time.monotonic()))
            except CancelledError:
                error = error or RuntimeError("the storage engine was closed")
            except TimeoutError as late:
                if batch.done():  # the engine's own time limit
                    error = error or late
                    continue
                count = len(self._batches)
                raise TimeoutError(
                    f"{count - index} of {count} batches of reads did not end in {timeout_secs} s"
                ) from None
            except OSError as failed:
                error = error or failed
        if error is not None:
            raise error


class GdsStorage(Storage):
    """A Storage that reads into GPU memory by cuFile, and into host memory by ``posix``.

    Arguments are those of Storage; ``queue_depth`` bounds the reads of a batch. Counters are those
    of the posix engine. Raises RuntimeError where cuFile cannot be used. Warns where cuFile is in
    its compatibility mode.
    """

    plans_together = False

    def __init__(
        self,
        paths: Sequence[Path | str],
        *,
        num_rows: int,
        row_bytes: int,
        stripe_bytes: int = 4096,
        options: StorageOptions | None = None,
        row_map: RowMap | None = None,
    ) -> None:
        options = (options or StorageOptions()).resolved()
        self._files = CuFile([str(path) for path in paths], options.direct)
        try:
            super().__init__(
                paths,
                num_rows=num_rows,
                row_bytes=row_bytes,
                stripe_bytes=stripe_bytes,
                engine="posix",
                options=options,
                row_map=row_map,
            )
        except BaseException:
            self._files.close()
            raise
        self.engine = "gds"
        self.reads_to_gpu = True
        self._max_read_bytes = settled(options.max_read_bytes)
        self._batch_size = min(options.queue_depth, self._files.max_batch)
        if self._files.is_compatible:
            self._batch_size = min(self._batch_size, COMPATIBLE_BATCH)
            logger.warning(
                "storage.engine=gds: cuFile is in its compatibility mode, so rows go through host "
                "memory (is the kernel module nvidia-fs loaded?); storage.engine=io_uring is "
                "faster then"
            )
        self._threads = ThreadPoolExecutor(NUM_BATCHES, thread_name_prefix="lsm-gds")
        self._kept: list[torch.Tensor] = []  # outputs of reads that never ended

    def start(
        self, reads: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]
    ) -> list[PendingReads]:
        """As Storage.start(), with outputs on the host or on a GPU. Requests are planned one by
        one."""
        return [
            self._start(*read) if read[1].is_cuda else Storage.start(self, [read])[0]
            for read in reads
        ]

    def close(self) -> None:
        """As Storage.close(), but blocks until batches in flight have ended or timed out."""
        if self._native is not None:
            self._threads.shutdown(cancel_futures=True)
            if not self._kept:  # else cuFile still uses the files
                self._files.close()
        super().close()

    def _start(
        self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor | None
    ) -> GdsReads:
        reads = Reads(
            *self.handle().contiguous_reads(
                self.row_map.rows(ids),
                positions,
                out_bytes=out.numel() * out.element_size(),
                max_read_bytes=self._max_read_bytes,
            )
        )
        batches = [
            self._threads.submit(self._read, batch, out) for batch in reads.slices(self._batch_size)
        ]
        return GdsReads(batches)

    def _read(self, reads: Reads, out: torch.Tensor) -> None:
        """Reads one batch, in a thread of the engine."""
        try:
            self._files.read(reads, out, self.timeout_secs)
        except UnendedReadsError:
            self._kept.append(out)
            raise
