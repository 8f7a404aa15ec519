"""The engine ``gds``: rows from files straight into GPU memory, by cuFile through kvikio.

kvikio is imported when the engine is opened. Where GPUDirect Storage does not work it copies
through the host by itself (its compatibility mode), which is logged. A row, or its part on one
stripe, is one read; parts that follow each other in the file and in the output are one together.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from lsm.storage.engine import Storage, StorageOptions, Ticket

logger = logging.getLogger(__name__)

NUM_THREADS = 16
"""Threads of kvikio, each with one read under way; by itself it has one (KVIKIO_NTHREADS)."""


def import_kvikio():
    """The module kvikio. RuntimeError, saying how to get it, if it cannot be imported."""
    try:
        import kvikio
    except ImportError as error:
        raise RuntimeError(
            f"storage.engine=gds: kvikio cannot be imported ({error}); install it with "
            "pip install 'lsm-gnn[gds]', or set storage.engine=io_uring"
        ) from error
    return kvikio


def set_defaults(defaults) -> None:
    """Has kvikio read rows by cuFile and several at a time; by itself it reads less than 1 MiB
    through the host. ``defaults``: its module of that name. What the user set in the environment
    stays. Warns where it will not use cuFile."""
    wanted = {"gds_threshold": ("KVIKIO_GDS_THRESHOLD", 0)}
    wanted["num_threads"] = ("KVIKIO_NTHREADS", NUM_THREADS)
    for name, (variable, value) in wanted.items():
        if variable in os.environ:
            continue
        if hasattr(defaults, "set"):
            defaults.set(name, value)
        else:  # before kvikio 25.04
            getattr(defaults, f"{name}_reset")(value)
    is_preferred = getattr(defaults, "is_compat_mode_preferred", None)
    if is_preferred() if is_preferred else defaults.compat_mode():
        logger.warning(
            "storage.engine=gds: kvikio is in its compatibility mode, so rows go through the host "
            "(is libcufile there, and /run/udev readable?); storage.engine=io_uring is faster then"
        )


class GdsTicket:
    """Rows that kvikio reads into ``out``; keeps ``out`` alive until they are there."""

    def __init__(
        self, reads: list[tuple[object, str, int, int]], out: torch.Tensor, timeout_secs: float
    ) -> None:
        self._reads = reads  # future, file, offset, length
        self._out = out
        self._timeout_secs = timeout_secs

    @property
    def done(self) -> bool:
        """Whether every read has ended, well or badly."""
        return all(future.done() for future, *_ in self._reads)

    def wait(self, timeout_secs: float | None = None) -> torch.Tensor:
        """As Ticket.wait(). After a time-out, reads may still write to ``out``: they are waited for
        when it goes."""
        limit = self._timeout_secs if timeout_secs is None else timeout_secs
        deadline = time.monotonic() + limit
        while not self.done:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self._reads)} reads by kvikio did not end in {limit} s")
            time.sleep(20e-6)
        reads, self._reads = self._reads, []
        for future, path, offset, length in reads:
            try:
                num_bytes = future.get()
            except Exception as error:
                raise OSError(f"{path}: reading {length} bytes at {offset}: {error}") from error
            if num_bytes != length:
                raise OSError(
                    f"{path}: expected {length} bytes at {offset}, got {num_bytes}; the file is "
                    "truncated: check the store with `lsm data verify`"
                )
        return self._out

    def __del__(self) -> None:
        for future, *_ in self._reads:
            future.get()


class GdsStorage(Storage):
    """A Storage that reads into GPU memory by cuFile. Into host memory it reads with ``posix``, for
    rows that stay there. Arguments as for Storage; counters are those of the posix engine."""

    def __init__(
        self,
        paths: Sequence[Path | str],
        *,
        num_rows: int,
        row_bytes: int,
        stripe_bytes: int = 4096,
        options: StorageOptions | None = None,
    ) -> None:
        kvikio = import_kvikio()
        set_defaults(kvikio.defaults)
        super().__init__(
            paths,
            num_rows=num_rows,
            row_bytes=row_bytes,
            stripe_bytes=stripe_bytes,
            engine="posix",
            options=options,
        )
        self.engine = "gds"
        self._stripe_bytes = stripe_bytes
        self._paths = [str(path) for path in paths]
        self._files = [kvikio.CuFile(path, "r") for path in self._paths]

    def submit_together(
        self, reads: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]
    ) -> list[Ticket | GdsTicket]:
        """As Storage.submit_together(); outputs may be on a GPU. Rows are not planned together."""
        return [
            self._submit(*read) if read[1].is_cuda else Storage.submit_together(self, [read])[0]
            for read in reads
        ]

    def close(self) -> None:
        """As Storage.close()."""
        for file in getattr(self, "_files", []):
            file.close()
        self._files = []
        super().close()

    def _submit(
        self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor | None
    ) -> GdsTicket:
        self.handle()  # an error if closed
        rows = out.view(torch.uint8).view(-1)
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.num_rows:
            raise ValueError(f"ids: expected ids in [0, {self.num_rows})")
        places = range(len(ids)) if positions is None else positions.tolist()
        num_places = len(rows) // self.row_bytes
        if any(not 0 <= place < num_places for place in places):
            raise ValueError(f"positions: expected rows of the {num_places} that out holds")
        ticket = GdsTicket([], out, self.timeout_secs)
        for file, offset, length, begin in self._merged(ids.tolist(), places):
            future = self._files[file].pread(rows[begin : begin + length], length, offset)
            ticket._reads.append((future, self._paths[file], offset, length))
        return ticket

    def _merged(
        self, ids: Sequence[int], places: Iterable[int]
    ) -> Iterator[tuple[int, int, int, int]]:
        """(file, offset in it, length, offset in the output) of the reads."""
        read = None
        for row, place in zip(ids, places, strict=True):
            for file, offset, length, done in self._runs(row):
                begin = place * self.row_bytes + done
                if read and (file, offset, begin) == (
                    read[0],
                    read[1] + read[2],
                    read[3] + read[2],
                ):
                    read = (file, read[1], read[2] + length, read[3])
                    continue
                if read:
                    yield read
                read = (file, offset, length, begin)
        if read:
            yield read

    def _runs(self, row: int) -> Iterator[tuple[int, int, int, int]]:
        """(file, offset in it, length, offset in the row) of the parts of a row."""
        num_files = len(self._files)
        if num_files == 1:
            yield 0, row * self.row_bytes, self.row_bytes, 0
            return
        done = 0
        while done < self.row_bytes:
            page, in_page = divmod(row * self.row_bytes + done, self._stripe_bytes)
            length = min(self._stripe_bytes - in_page, self.row_bytes - done)
            offset = page // num_files * self._stripe_bytes + in_page
            yield page % num_files, offset, length, done
            done += length
