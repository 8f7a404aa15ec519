"""Feature bytes striped over files: page p lies in file p % K at page p // K."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lsm.core.files import read_exactly, read_scattered
from lsm.data.format import PAGE_BYTES
from lsm.data.sink import FileSink


class StripedWriter:
    """Appends bytes to K files, ``stripe_bytes`` at a time, round robin."""

    def __init__(self, sinks: Sequence[FileSink], stripe_bytes: int) -> None:
        self._sinks = list(sinks)
        self._stripe_bytes = stripe_bytes
        self._rest = np.empty(0, np.uint8)  # less than one round of pages

    def write(self, rows: np.ndarray) -> None:
        """Appends the bytes of the C-contiguous ``rows``."""
        data = rows.reshape(-1).view(np.uint8)
        if len(self._sinks) == 1:
            self._sinks[0].write(data)
            return
        round_bytes = len(self._sinks) * self._stripe_bytes
        if len(self._rest):
            data = np.concatenate([self._rest, data])
        whole = len(data) // round_bytes * round_bytes
        pages = data[:whole].reshape(-1, len(self._sinks), self._stripe_bytes)
        for k, sink in enumerate(self._sinks):
            sink.write(np.ascontiguousarray(pages[:, k]))
        self._rest = data[whole:].copy()

    def close(self) -> None:
        """Writes the rest, pads each file with zeros to a multiple of 4096 and closes it."""
        for k, sink in enumerate(self._sinks):
            begin = k * self._stripe_bytes
            sink.write(self._rest[begin : begin + self._stripe_bytes])
            sink.write(bytes(-sink.num_bytes % PAGE_BYTES))
            sink.close()


class StripedReader:
    """Reads ranges of the logical bytes. A context manager."""

    def __init__(self, paths: Sequence[Path], stripe_bytes: int) -> None:
        self._files = [open(path, "rb", buffering=0) for path in paths]  # noqa: SIM115
        self._stripe_bytes = stripe_bytes

    def __enter__(self) -> StripedReader:
        return self

    def __exit__(self, *_exception: object) -> None:
        for file in self._files:
            file.close()

    def read(self, offset: int, num_bytes: int) -> np.ndarray:
        """Bytes [offset, offset + num_bytes): [num_bytes] uint8. Raises ValueError past the end."""
        out = np.empty(num_bytes, np.uint8)
        if len(self._files) == 1:
            read_exactly(self._files[0].fileno(), out, offset)
            return out
        view = out.data
        # Adjacent pages of one file are coalesced into a scattered read.
        starts: dict[int, int] = {}
        places: dict[int, list[memoryview]] = {}
        done = 0
        while done < num_bytes:
            page, within = divmod(offset + done, self._stripe_bytes)
            row, k = divmod(page, len(self._files))
            size = min(num_bytes - done, self._stripe_bytes - within)
            starts.setdefault(k, row * self._stripe_bytes + within)
            places.setdefault(k, []).append(view[done : done + size])
            done += size
        for k, views in places.items():
            read_scattered(self._files[k].fileno(), views, starts[k])
        return out

    def drop_cache(self) -> None:
        """Drops the pages that were read from the page cache."""
        for file in self._files:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
