"""Arrays on disk whose rows are written in any order, by several ranks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lsm.data.feature_files import FeatureFiles
from lsm.data.sink import explaining_no_room, npy_header

REMEDY = "free some space there, and the same command continues"
_BLOCK_BYTES = 4096


@dataclass(frozen=True)
class ArrayFile:
    """An array [num_rows, \\*shape] of ``dtype``: rows alone, or with ``is_npy`` a .npy file."""

    path: Path
    num_rows: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    is_npy: bool = True

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def num_bytes(self) -> int:
        """Bytes of the file, a whole number of blocks unless it is a .npy file."""
        size = len(self._header) + self.num_rows * self.row_bytes
        return size if self.is_npy else -(-size // _BLOCK_BYTES) * _BLOCK_BYTES

    @property
    def feature_files(self) -> FeatureFiles:
        """The rows for a storage engine. Precondition: no .npy file."""
        (dim,) = self.shape
        return FeatureFiles((self.path,), self.num_rows, dim, self.dtype)

    @property
    def _header(self) -> bytes:
        dtype = np.dtype(str(self.dtype).removeprefix("torch."))
        return npy_header(dtype, self.num_rows, *self.shape) if self.is_npy else b""

    def create(self) -> None:
        """Makes the file, with rows of zeros. A file that is there keeps its rows."""
        with explaining_no_room(self.path, self.num_bytes, REMEDY), open(self.path, "ab") as file:
            if file.tell() != self.num_bytes:
                os.truncate(self.path, 0)
                file.write(self._header)
                file.flush()
                os.truncate(self.path, self.num_bytes)

    def write(self, first_row: int, rows: Tensor) -> None:
        """Writes ``rows`` [n, \\*shape] from ``first_row`` on. Thread-safe. Raises ValueError for
        rows of another shape, which would overwrite others."""
        self._write_runs([(first_row, first_row + len(rows))], rows)

    def write_at(self, ids: Tensor, rows: Tensor) -> None:
        """Writes ``rows`` [n, \\*shape] at rows ``ids`` [n], ascending. As write()."""
        self._write_runs(runs_of(ids.numpy()), rows)

    def _write_runs(self, runs: Iterable[tuple[int, int]], rows: Tensor) -> None:
        """Writes ``rows`` to each run of rows of the file, its first and its end."""
        if rows.shape[1:] != self.shape:
            raise ValueError(
                f"{self.path}: expected rows of shape {list(self.shape)}, got "
                f"{list(rows.shape[1:])}"
            )
        values = rows.to(self.dtype).contiguous()
        memory = values.numpy().reshape(-1).view(np.uint8).data
        row_bytes, base = self.row_bytes, len(self._header)
        with explaining_no_room(self.path, len(memory), REMEDY):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                for first, end in runs:
                    size, offset = (end - first) * row_bytes, base + first * row_bytes
                    view, memory = memory[:size], memory[size:]
                    while len(view):
                        done = os.pwrite(descriptor, view, offset)
                        view, offset = view[done:], offset + done
            finally:
                os.close(descriptor)

    def sync(self) -> None:
        """Makes the rows durable, and visible to other machines."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            with explaining_no_room(self.path, 0, REMEDY):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def runs_of(units: np.ndarray) -> Iterator[tuple[int, int]]:
    """First and end of each run of consecutive units."""
    if len(units):
        ends = np.append(np.flatnonzero(np.diff(units) != 1), len(units) - 1)
        starts = np.append(0, ends[:-1] + 1)
        yield from zip(units[starts].tolist(), (units[ends] + 1).tolist(), strict=True)
