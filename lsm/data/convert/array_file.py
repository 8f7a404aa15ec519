"""Reads arrays from files in chunks with pread, which maps no page into the process."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from lsm.core.files import read_exactly
from lsm.core.threads import map_ahead
from lsm.data.npy_header import MAGIC, read_header

CHUNK_BYTES = 16 << 20


class ArrayFile:
    """A 1-D or 2-D array in a .npy file, or headerless; read by rows. A context manager.

    ``shape`` and ``dtype`` describe the result of ``read``: native, C-contiguous rows.
    ``stored_dtype`` is that of the file, of either byte order.
    """

    def __init__(
        self, path: Path, *, raw_shape: tuple[int, ...] | None = None, masks: bool = False
    ) -> None:
        """Opens ``path``. A file without the .npy magic is read as headerless float32 of
        ``raw_shape``.

        Raises FileNotFoundError, or ValueError if the file is no array of numbers (with ``masks``:
        or of bools) or is truncated.
        """
        if not path.is_file():
            raise FileNotFoundError(f"{path}: missing")
        self.path = path
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        try:
            self._read_header(raw_shape)
            self._check("fiub" if masks else "fiu")
        except BaseException:
            self._file.close()
            raise
        os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._file.close()

    @property
    def num_rows(self) -> int:
        return self.shape[0]

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, begin: int, end: int) -> np.ndarray:
        """Rows [begin, end) as a new array."""
        if self._is_column_major:
            columns = np.empty((self.shape[1], end - begin), self.dtype)
            for c, column in enumerate(columns):
                self._pread(column, c * self.shape[0] + begin)
            return np.ascontiguousarray(columns.T)
        out = np.empty((end - begin, *self.shape[1:]), self.dtype)
        self._pread(out, begin * math.prod(self.shape[1:]))
        return out

    def read_all(self) -> np.ndarray:
        """The whole array."""
        return self.read(0, self.num_rows)

    def chunks(self, chunk_bytes: int = CHUNK_BYTES) -> Iterator[tuple[int, np.ndarray]]:
        """(first row, rows) in order. Reads the next chunk in the background."""
        row_bytes = max(1, math.prod(self.shape[1:]) * self.dtype.itemsize)
        step = max(1, chunk_bytes // row_bytes)
        yield from read_ahead(self.read, self.num_rows, step)

    def read_edges(self, begin: int, end: int) -> np.ndarray:
        """Edges [begin, end) as [2, n] in any memory order: row 0 sources, row 1 destinations.

        The array on disk is [2, E] or [E, 2].
        """
        if self._edges_are_planar:
            out = np.empty((2, end - begin), self.dtype)
            for row in range(2):
                self._pread(out[row], row * self._num_edges + begin)
            return out
        out = np.empty((end - begin, 2), self.dtype)
        self._pread(out, 2 * begin)
        return out.T

    def expect_edges(self, *, edges_first: bool) -> int:
        """The number of edges of [E, 2] (``edges_first``) or [2, E]. Raises ValueError for another
        shape or dtype. Must precede ``read_edges``.
        """
        axis = 0 if edges_first else 1
        if len(self.shape) != 2 or self.shape[1 - axis] != 2:
            form = "[E, 2]" if edges_first else "[2, E] (row 0 sources, row 1 destinations)"
            hint = "; transpose it" if 2 in self.shape else ""
            raise ValueError(f"{self.path}: expected shape {form}, got {list(self.shape)}{hint}")
        if self.dtype not in (np.int32, np.int64):
            raise ValueError(f"{self.path}: expected dtype int32 or int64, got {self.dtype}")
        self._edges_are_planar = edges_first == self._is_column_major
        self._num_edges = self.shape[axis]
        return self._num_edges

    def edge_chunks(self, chunk_bytes: int = CHUNK_BYTES) -> Iterator[tuple[int, np.ndarray]]:
        """(position of the first edge, [2, n] edges) in order, reading ahead."""
        step = chunk_bytes // (2 * self.dtype.itemsize)
        yield from read_ahead(self.read_edges, self._num_edges, step)

    def _pread(self, out: np.ndarray, first_element: int) -> None:
        offset = self._data_offset + first_element * self.dtype.itemsize
        try:
            read_exactly(self._file.fileno(), out, offset)
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}; it shrank while it was read") from None
        if not self.stored_dtype.isnative:
            out.byteswap(inplace=True)
        os.posix_fadvise(self._file.fileno(), offset, out.nbytes, os.POSIX_FADV_DONTNEED)

    def _read_header(self, raw_shape: tuple[int, ...] | None) -> None:
        if self._file.read(len(MAGIC)) == MAGIC:
            header = read_header(self._file, self.path)
            self.shape, self.stored_dtype = header.shape, header.dtype
            fortran, self._data_offset = header.fortran_order, header.data_offset
        elif raw_shape is not None:
            self.shape, fortran, self.stored_dtype = raw_shape, False, np.dtype(np.float32)
            self._data_offset = 0
        else:
            raise ValueError(f"{self.path}: not a .npy file; save it with numpy.save")
        self.dtype = self.stored_dtype.newbyteorder("=")
        self._is_column_major = fortran and len(self.shape) == 2

    def _check(self, kinds: str) -> None:
        if self.dtype.kind not in kinds or self.dtype.itemsize > 8:
            raise ValueError(
                f"{self.path}: expected integers or floats, got {self.dtype}; "
                "convert it with astype and save it again"
            )
        if len(self.shape) not in (1, 2):
            raise ValueError(f"{self.path}: expected 1 or 2 dimensions, got {list(self.shape)}")
        size = self.path.stat().st_size
        expected = self._data_offset + self.num_bytes
        if size < expected or (self._data_offset == 0 and size != expected):
            what = "truncated" if size < expected else "too long"
            raise ValueError(
                f"{self.path}: {what}: expected {expected} bytes for {self.dtype} "
                f"{list(self.shape)}, got {size}"
            )


def read_ahead(
    read: Callable[[int, int], np.ndarray], num_rows: int, step: int
) -> Iterator[tuple[int, np.ndarray]]:
    """(begin, read(begin, end)) over [0, num_rows) in steps. A thread reads one step ahead."""

    def rows_from(begin: int) -> tuple[int, np.ndarray]:
        return begin, read(begin, min(begin + step, num_rows))

    with ThreadPoolExecutor(1) as executor:
        yield from map_ahead(executor, rows_from, range(0, num_rows, step), 2)
