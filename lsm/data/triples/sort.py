"""External merge sort of triples into buckets, within a given memory.

A triple is packed into two integers that order it: ``high`` = bucket and head, ``low`` = relation
and tail. Sorted runs are written to disk and merged a block at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from typing import Protocol

import numpy as np

from lsm.data.convert.array_file import ArrayFile
from lsm.data.sink import explaining_no_room
from lsm.data.triples.format import part_of

_ID_BITS = 40  # of an entity; a relation and a bucket have 24
_ID_MASK = np.uint64((1 << _ID_BITS) - 1)
_SHIFT = np.uint64(_ID_BITS)
KEY_BYTES = 16
_MERGE_WAYS = 64
_LEAST_ROWS = 16  # of a run, and of a read of one
# Memory that sorting a key takes: the key twice, a permutation, NumPy's copies of both columns.
_SORT_BYTES = 80


@dataclass(frozen=True)
class Grid:
    """Entities cut into ``parts`` ranges."""

    num_entities: int
    parts: int

    def pack(self, triples: np.ndarray) -> np.ndarray:
        """Keys [n, 2] uint64 of triples [n, 3] int64 (head, relation, tail)."""
        heads, relations, tails = triples.T
        rows, columns = (part_of(ids, self.num_entities, self.parts) for ids in (heads, tails))
        keys = np.empty((len(triples), 2), np.uint64)
        keys[:, 0] = ((rows * self.parts + columns) << _ID_BITS) | heads
        keys[:, 1] = (relations << _ID_BITS) | tails
        return keys


def as_triples(rows: np.ndarray, places: Sequence[int]) -> np.ndarray:
    """Triples [n, 3] int64 from the columns ``places`` of ``rows``: head, relation and tail; or
    head and tail, with relation 0."""
    triples = np.zeros((len(rows), 3), np.int64)
    triples[:, 0], triples[:, 2] = rows[:, places[0]], rows[:, places[-1]]
    if len(places) == 3:
        triples[:, 1] = rows[:, places[1]]
    return triples


def unpack(keys: np.ndarray) -> np.ndarray:
    """Triples [n, 3] int64 of keys."""
    triples = np.empty((len(keys), 3), np.int64)
    triples[:, 0] = keys[:, 0] & _ID_MASK
    triples[:, 1] = keys[:, 1] >> _SHIFT
    triples[:, 2] = keys[:, 1] & _ID_MASK
    return triples


def buckets_of(keys: np.ndarray) -> np.ndarray:
    """The bucket of each key: [n] int64."""
    return (keys[:, 0] >> _SHIFT).astype(np.int64)


class KeySource(Protocol):
    """Keys on disk, ascending, each once."""

    def __len__(self) -> int:
        """Number of keys."""

    def read(self, begin: int, end: int) -> np.ndarray:
        """Keys [begin, end) as a new array [n, 2] uint64."""


class EdgeKeys:
    """The keys of a written file of edges."""

    def __init__(self, grid: Grid, edges: ArrayFile) -> None:
        self._grid = grid
        self._edges = edges

    def __len__(self) -> int:
        return self._edges.num_rows

    def read(self, begin: int, end: int) -> np.ndarray:
        edges = self._edges.read(begin, end)
        return self._grid.pack(as_triples(edges, range(edges.shape[1])))


class TripleSorter:
    """Sorts keys by runs in ``directory``; ``memory_bytes`` bounds its memory."""

    def __init__(self, directory: Path, name: str, memory_bytes: int) -> None:
        self.num_duplicates = 0
        """Keys left out because they are there already; complete once ``sorted`` has ended."""
        self._directory = directory
        self._name = name
        self._run_rows = max(_LEAST_ROWS, memory_bytes // _SORT_BYTES)
        self._pending: list[np.ndarray] = []
        self._num_pending = 0
        self._runs: list[_Run] = []
        self._num_files = 0

    def add(self, keys: np.ndarray) -> None:
        """Takes keys [n, 2] in any order."""
        while len(keys):
            taken = keys[: self._run_rows - self._num_pending]
            self._pending.append(taken.copy())
            self._num_pending += len(taken)
            keys = keys[len(taken) :]
            if self._num_pending == self._run_rows:
                self._write_pending()

    def sorted(self) -> Iterator[np.ndarray]:
        """All keys, ascending, each once, in blocks. Runs are removed afterwards."""
        self._write_pending()
        while len(self._runs) > _MERGE_WAYS:
            group, self._runs = self._runs[:_MERGE_WAYS], self._runs[_MERGE_WAYS:]
            self._write_run(self._merged(group))
        yield from self._merged(self._runs)

    def _write_pending(self) -> None:
        if self._num_pending:
            keys = np.concatenate(self._pending)
            self._pending, self._num_pending = [], 0
            self._write_run([self._unique(_in_order(keys))])

    def _write_run(self, blocks: Sequence[np.ndarray] | Iterator[np.ndarray]) -> None:
        self._num_files += 1
        run = _Run(self._directory / f"{self._name}.{self._num_files}.run")
        with open(run.path, "wb", buffering=0) as file:
            for block in blocks:
                write_all(file, run.path, block)
                run.num_keys += len(block)
        self._runs.append(run)

    def _merged(self, runs: list[_Run]) -> Iterator[np.ndarray]:
        rows = max(_LEAST_ROWS, self._run_rows // (2 * max(1, len(runs))))
        for block in merge(runs, rows):
            yield self._unique(block)
        for run in runs:
            run.path.unlink()

    def _unique(self, keys: np.ndarray) -> np.ndarray:
        unique = without_duplicates(keys)
        self.num_duplicates += len(keys) - len(unique)
        return unique


@dataclass
class _Run:
    """A sorted run: a file of keys."""

    path: Path
    num_keys: int = 0

    def __len__(self) -> int:
        return self.num_keys

    def read(self, begin: int, end: int) -> np.ndarray:
        count, offset = 2 * (end - begin), begin * KEY_BYTES
        return np.fromfile(self.path, np.uint64, count, offset=offset).reshape(-1, 2)


def merge(sources: Sequence[KeySource], rows: int) -> Iterator[np.ndarray]:
    """The keys of all ``sources``, ascending, in blocks; equal ones lie in one block. ``rows`` of
    each source are read at a time."""
    readers = [_Reader(source, rows) for source in sources]
    while readers := [reader for reader in readers if reader.fill()]:
        last = min(reader.last for reader in readers)
        yield _in_order(np.concatenate([reader.take(last) for reader in readers]))


class _Reader:
    """Reads a source a block at a time."""

    def __init__(self, source: KeySource, rows: int) -> None:
        self._source = source
        self._rows = rows
        self._next = 0
        self._block = np.empty((0, 2), np.uint64)

    @property
    def last(self) -> tuple[int, int]:
        return int(self._block[-1, 0]), int(self._block[-1, 1])

    def fill(self) -> bool:
        """Reads the next block if the last one is used up; False at the end."""
        if len(self._block) == 0 and self._next < len(self._source):
            end = min(self._next + self._rows, len(self._source))
            self._block = self._source.read(self._next, end)
            self._next = end
        return len(self._block) > 0

    def take(self, last: tuple[int, int]) -> np.ndarray:
        """Removes and returns the keys of the block that are at most ``last``."""
        high, low = np.uint64(last[0]), np.uint64(last[1])
        begin = int(np.searchsorted(self._block[:, 0], high, "left"))
        end = int(np.searchsorted(self._block[:, 0], high, "right"))
        count = begin + int(np.searchsorted(self._block[begin:end, 1], low, "right"))
        taken, self._block = self._block[:count], self._block[count:]
        return taken


def _in_order(keys: np.ndarray) -> np.ndarray:
    return keys[np.lexsort((keys[:, 1], keys[:, 0]))]


def without_duplicates(keys: np.ndarray) -> np.ndarray:
    """The sorted ``keys``, each once."""
    is_first = np.ones(len(keys), bool)
    is_first[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    return keys[is_first]


def write_all(file: RawIOBase, path: Path, array: np.ndarray) -> None:
    """Writes the bytes of the C-contiguous ``array`` to the unbuffered ``file`` at ``path``."""
    view = array.reshape(-1).view(np.uint8).data
    with explaining_no_room(path, len(view)):
        while len(view):
            view = view[file.write(view) :]
