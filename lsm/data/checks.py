"""Shared by checks of stores: sizes and checksums of files, ids out of range, rows that are not
finite."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import EllipsisType

import numpy as np
import torch

from lsm.core.os_error import in_words
from lsm.core.progress import ByteProgress
from lsm.data.arrays import array_problem
from lsm.data.convert.array_file import CHUNK_BYTES, ArrayFile
from lsm.data.file_sizes import size_problem
from lsm.data.format import CONVERT_AGAIN, FileMeta
from lsm.data.names import read_names

_MAX_NAMED = 5


def check_files(
    path: Path, files: dict[str, FileMeta], bars: ByteProgress, remedy: str = CONVERT_AGAIN
) -> tuple[list[str], set[str]]:
    """(problems of the files of the store ``path``: presence, size, checksum; names of those that
    are there in full)."""
    problems: list[str] = []
    readable: set[str] = set()
    advance = bars.task("checksums", sum(file.bytes for file in files.values()))
    for name, expected in files.items():
        problem = size_problem(path / name, expected, remedy)
        if problem is not None:
            problems.append(str(problem))
            continue
        readable.add(name)
        if _sha256(path / name, advance) != expected.sha256:
            problems.append(f"{path / name}: wrong checksum: it was changed; {remedy}")
    return problems, readable


def check_names(path: Path, count: int) -> Iterator[str]:
    """The problem of a file of names of ids 0 to ``count - 1``."""
    try:
        found = sum(1 for _ in read_names(path))
    except (OSError, ValueError) as error:
        yield in_words(error)
        return
    if found != count:
        yield f"{path}: expected {count} names, got {found}; {CONVERT_AGAIN}"


class StoreArrays:
    """The arrays of a store whose files are there in full: those that are ``readable``. remedy: of
    their damage."""

    def __init__(self, path: Path, readable: set[str], remedy: str = CONVERT_AGAIN) -> None:
        self.path = path
        self._readable = readable
        self._remedy = remedy

    def has(self, *names: str) -> bool:
        """True if all files ``names`` can be read."""
        return self._readable.issuperset(names)

    def check(
        self,
        name: str,
        dtype: str | None,
        shape: tuple[int | EllipsisType | None, ...],
        values: Callable[[ArrayFile], Iterator[str]] = lambda _array: iter(()),
    ) -> Iterator[str]:
        """Problems of the array ``name``, if it can be read: of its dtype and shape (as for
        ``load_array``), else of its ``values``."""
        if not self.has(name):
            return
        path = self.path / name
        try:
            array = ArrayFile(path, masks=dtype is None)
        except ValueError as error:
            yield f"{error}; {self._remedy}"
            return
        with array:
            problem = array_problem(array.stored_dtype, array.shape, dtype, shape)
            if problem is not None:
                yield f"{path}: {problem}; {self._remedy}"
                return
            for problem in values(array):
                yield f"{path}: {problem}; {self._remedy}"


class Named:
    """Counts ids and remembers the first few."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[int] = []

    def add(self, ids: np.ndarray) -> None:
        self.count += len(ids)
        self._first += ids[: _MAX_NAMED - len(self._first)].tolist()

    def __str__(self) -> str:
        more = ", ..." if self.count > len(self._first) else ""
        return ", ".join(map(str, self._first)) + more


def out_of_range(array: ArrayFile, low: int, high: int, what: str) -> Iterator[str]:
    named, value = Named(), None
    for first, values in array.chunks():
        bad = np.flatnonzero((values < low) | (values >= high))
        if len(bad) and value is None:
            value = values[bad[0]]
        named.add(first + bad)
    if named.count:
        yield (
            f"{what} out of range [{low}, {high}): {named.count} (first at positions {named}; "
            f"the first is {value})"
        )


def finite(what: str, array: ArrayFile, of: str = "nodes") -> Iterator[str]:
    """The problem of an array with NaN or infinite values. ``what``: its values, in words; ``of``
    nodes or edges."""
    named = Named()
    if array.dtype.kind != "f":
        return
    for first, values in array.chunks():
        is_finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
        named.add(first + np.flatnonzero(~is_finite))
    if named.count:
        yield f"NaN or infinite {what}: {named.count} (first {of}: {named})"


def rows_not_finite(rows: torch.Tensor) -> np.ndarray:
    """Numbers of the ``rows`` ([n, dim]) that hold NaN or an infinity: [m] int64, ascending."""
    # A sum is finite only if its terms are; only rows with another sum are searched.
    suspects = (~torch.isfinite(rows.sum(dim=1))).nonzero().flatten()
    is_bad = ~torch.isfinite(rows[suspects]).all(dim=1)
    return suspects[is_bad].numpy()


def _sha256(path: Path, advance: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            advance(len(chunk))
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return digest.hexdigest()
