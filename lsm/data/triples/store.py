"""Opens a store of triples for reading."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from lsm.core.files import read_scattered
from lsm.data.arrays import load_array
from lsm.data.file_sizes import check_sizes
from lsm.data.names import find_names, names_at, read_names
from lsm.data.npy_header import read_header
from lsm.data.triples import format as layout
from lsm.data.triples.format import TripleMeta, read_triple_meta

_DAMAGED = "run `lsm data verify` and convert again"
_CHUNK_EDGES = 1 << 20

_Bound = tuple[str, int, int]
"""The name of a column of edges, and first and end of its ids."""


class TripleStore:
    """A store of triples, opened for reading.

    Entities are ids 0 to ``num_entities - 1``: places in a seeded shuffle, so that any range of ids
    is a random sample. ``entity_names`` has their names.
    """

    def __init__(self, path: Path, meta: TripleMeta) -> None:
        """``path``: the directory; ``meta``: its meta.json. Use ``TripleStore.open``."""
        self.path = path
        self.meta = meta

    @classmethod
    def open(cls, path: str | Path) -> TripleStore:
        """Opens the store at ``path``; reads ``meta.json`` and checks every file's size. Raises
        FileNotFoundError, or ValueError for a store of another kind or damage."""
        store = cls(Path(path), read_triple_meta(Path(path)))
        check_sizes(store.path, store.meta.files)
        return store

    @property
    def name(self) -> str:
        """The name that the store was made with."""
        return self.meta.name

    @property
    def num_entities(self) -> int:
        """Entities are 0 to ``num_entities - 1``."""
        return self.meta.num_entities

    @property
    def num_relations(self) -> int:
        """Relations are 0 to ``num_relations - 1``; 0: the edges have none."""
        return self.meta.num_relations

    @property
    def num_edges(self) -> dict[str, int]:
        """Edges of train, valid and test."""
        return dict(self.meta.splits)

    def edges(self, split: str) -> np.ndarray:
        """Edges of a split, mapped read-only: [n, 3] (head, relation, tail) or [n, 2] (head, tail),
        int32 or int64, sorted by bucket of parts. Raises ValueError for a damaged file."""
        path, offset = self.path / layout.edge_file(split), self._edge_offset(split)
        shape = (self.meta.splits[split], self.meta.columns)
        if shape[0] == 0:
            return np.empty(shape, self.meta.dtype)
        return np.memmap(path, self.meta.dtype, "r", offset, shape)

    def checked_edges(self, split: str, rows: slice | np.ndarray = slice(None)) -> np.ndarray:
        """``rows`` of a split's edges, as :meth:`edges` has them: a new int64 array. Raises
        ValueError, which names the file, for ids of no entity or relation."""
        edges = self.edges(split)[rows].astype(np.int64)
        entities = (0, self.num_entities)
        _require_ids(self.path / layout.edge_file(split), edges, self._bounds(entities, entities))
        return edges

    def checked_chunks(self, *splits: str) -> Iterator[np.ndarray]:
        """The edges of ``splits``, as of checked_edges(), a million at a time."""
        for split in splits:
            for first in range(0, self.num_edges[split], _CHUNK_EDGES):
                yield self.checked_edges(split, slice(first, first + _CHUNK_EDGES))

    def bucket_starts(self, split: str) -> np.ndarray:
        """[parts * parts + 1] int64: bucket (i, j) of parts is edges [b[k], b[k + 1]) of ``edges``,
        k = i * parts + j. Raises ValueError for a damaged file."""
        path, length = self.path / layout.bucket_file(split), self.meta.parts**2 + 1
        starts = load_array(path, "int64", (length,), in_memory=True).numpy()
        expected = (0, self.meta.splits[split])
        if (starts[0], starts[-1]) != expected or (starts[1:] < starts[:-1]).any():
            raise ValueError(
                f"{path}: expected int64 [{length}], growing from 0 to {expected[1]}; {_DAMAGED}"
            )
        return starts

    def part_starts(self) -> np.ndarray:
        """First entity of each part, and the end: [parts + 1] int64."""
        return layout.part_starts(self.meta.num_entities, self.meta.parts)

    def partition_starts(self, partitions: int) -> np.ndarray:
        """First entity of each of ``partitions``, and the end: [partitions + 1] int64. A partition
        is a run of neighbouring parts; runs differ by at most one part. Raises ValueError for more
        partitions than parts."""
        return self.part_starts()[self._first_parts(partitions)]

    def buckets(self, split: str, partitions: int) -> Buckets:
        """The edges of ``split`` by pair of ``partitions``, from 1 to the number of parts."""
        return Buckets(self, split, self._first_parts(partitions))

    def entity_names(self) -> Iterator[str]:
        """Names by id, streamed."""
        yield from read_names(self.path / layout.ENTITIES)

    def names_of_entities(self, ids: Sequence[int]) -> list[str]:
        """The names of ``ids``; one pass over the file of names."""
        return names_at(self.path / layout.ENTITIES, ids)

    def find_entities(self, names: Sequence[str]) -> list[int]:
        """The ids of ``names``; one pass over the file of names. ValueError for an unknown one."""
        return find_names(self.path / layout.ENTITIES, names)

    def find_relations(self, names: Sequence[str]) -> list[int]:
        """The ids of relations ``names``. ValueError for an unknown one."""
        return find_names(self.path / layout.RELATIONS, names)

    def relation_names(self) -> Iterator[str]:
        """Names by id; none without relations."""
        if self.meta.num_relations:
            yield from read_names(self.path / layout.RELATIONS)

    def _bounds(self, heads: tuple[int, int], tails: tuple[int, int]) -> list[_Bound]:
        """The ids in each column of edges, given the range of heads and that of tails."""
        relations = [("relation", 0, self.num_relations)] if self.num_relations else []
        return [("head", *heads), *relations, ("tail", *tails)]

    def _first_parts(self, partitions: int) -> np.ndarray:
        parts = self.meta.parts
        if not 1 <= partitions <= parts:
            raise ValueError(
                f"{self.path}: partitions: expected 1 to {parts} for {self.num_entities} entities, "
                f"got {partitions}"
            )
        return np.arange(partitions + 1) * parts // partitions

    def _edge_offset(self, split: str) -> int:
        """Offset of the first element of the file of edges."""
        path, meta = self.path / layout.edge_file(split), self.meta
        with open(path, "rb", buffering=0) as file:
            header = read_header(file, path)
        expected = (meta.splits[split], meta.columns)
        if header.dtype != meta.dtype or header.shape != expected or header.fortran_order:
            raise ValueError(
                f"{path}: expected {meta.dtype} {list(expected)}, got {header.dtype} "
                f"{list(header.shape)}; {_DAMAGED}"
            )
        return header.data_offset


class Buckets:
    """The edges of one split by (partition of head, partition of tail), read from disk on demand.
    The file stays open as long as the object lives.

    ``starts``: [partitions * partitions + 1] int64; bucket k = i * partitions + j has
    ``starts[k + 1] - starts[k]`` edges.
    """

    def __init__(self, store: TripleStore, split: str, first_parts: np.ndarray) -> None:
        """Use ``TripleStore.buckets``."""
        self.partitions = len(first_parts) - 1
        self._store, self._path = store, store.path / layout.edge_file(split)
        self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)
        self._offset = store._edge_offset(split)
        self._dtype = np.dtype(store.meta.dtype)
        self._columns = store.meta.columns
        self._first_parts = first_parts
        self._part_starts = store.bucket_starts(split)
        self._entity_starts = store.part_starts()
        self._num_parts = store.meta.parts
        sizes = np.diff(self._part_starts).reshape(self._num_parts, self._num_parts)
        for axis in (0, 1):
            sizes = np.add.reduceat(sizes, first_parts[:-1], axis=axis)
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])

    def edges(self, i: int, j: int) -> np.ndarray:
        """Edges from partition ``i`` to partition ``j``, a new array [n, 3] (head, relation, tail)
        or [n, 2] (head, tail), int32 or int64, in the order of the file. Reads a slice for each
        part of ``i``. Raises IndexError for a partition out of range, OSError for the file,
        ValueError if it has ids of other partitions there."""
        if not (0 <= i < self.partitions and 0 <= j < self.partitions):
            raise IndexError(f"bucket ({i}, {j}): expected partitions below {self.partitions}")
        rows = np.arange(self._first_parts[i], self._first_parts[i + 1]) * self._num_parts
        begins = self._part_starts[rows + self._first_parts[j]]
        ends = self._part_starts[rows + self._first_parts[j + 1]]
        out = np.empty((int((ends - begins).sum()), self._columns), self._dtype)
        unread = out.reshape(-1).view(np.uint8).data
        row_bytes = self._columns * self._dtype.itemsize
        for begin, end in _joined(begins.tolist(), ends.tolist()):
            size = (end - begin) * row_bytes
            read_scattered(self._fd, [unread[:size]], self._offset + begin * row_bytes)
            unread = unread[size:]
        _require_ids(self._path, out, self._store._bounds(self._entities(i), self._entities(j)))
        return out

    def _entities(self, partition: int) -> tuple[int, int]:
        first, end = self._entity_starts[self._first_parts[partition : partition + 2]].tolist()
        return first, end


def _require_ids(path: Path, edges: np.ndarray, bounds: list[_Bound]) -> None:
    """Raises ValueError unless the ids of ``edges`` [n, columns] are within the ``bounds`` of their
    columns. ``path``: their file."""
    if not len(edges):
        return
    least, most = torch.from_numpy(edges).aminmax(dim=0)
    for (name, first, end), *found in zip(bounds, least.tolist(), most.tolist(), strict=True):
        bad = [number for number in found if not first <= number < end]
        if bad:
            raise ValueError(
                f"{path}: expected each {name} in [{first}, {end}), got {bad[0]}; {_DAMAGED}"
            )


def _joined(begins: list[int], ends: list[int]) -> Iterator[tuple[int, int]]:
    """The ranges that are not empty, those that touch made one."""
    first = last = 0
    for begin, end in zip(begins, ends, strict=True):
        if begin == last:
            last = end
            continue
        if last > first:
            yield first, last
        first, last = begin, end
    if last > first:
        yield first, last
