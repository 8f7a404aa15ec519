"""Writes the files of a store of triples: shuffles entities, sorts edges, counts oddities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lsm.data import format as layout
from lsm.data.convert.array_file import ArrayFile
from lsm.data.names import write_names
from lsm.data.triples.format import (
    ENTITIES,
    MOST_PARTS,
    RELATIONS,
    TripleCounts,
    TripleMeta,
    bucket_file,
    edge_file,
)
from lsm.data.triples.sort import (
    KEY_BYTES,
    EdgeKeys,
    Grid,
    TripleSorter,
    buckets_of,
    merge,
    unpack,
    without_duplicates,
)
from lsm.data.writer import StoreWriter

MEMORY_BYTES = 768 << 20
SPOOLED_BYTES = 24  # of a triple: three int64
# Triples read at a time, and the memory that each takes on the way.
_LEAST_ROWS, _MOST_ROWS = 1 << 8, 1 << 18
_ROW_MEMORY = 1024
# Ids are places, so a few triples with huge ids are damage, or ids of something else.
_MOST_ENTITIES_PER_TRIPLE = 1000


@dataclass(frozen=True)
class ProvisionalTriples:
    """Triples with ids in the order of the source."""

    splits: dict[str, Path]
    """Files of int64 [n, 3] of train, valid, test; or ``all``, from which splits are drawn. They
    are removed once they are read."""
    entities: Sequence[str]
    """Names by id."""
    relations: Sequence[str]
    """Names by id; empty: no relations."""
    fractions: tuple[float, float] = (0.0, 0.0)
    """Of valid and test, for ``all``."""
    num_malformed: int = 0


def write_triples(
    writer: StoreWriter,
    source: ProvisionalTriples,
    name: str,
    seed: int,
    description: dict[str, Any],
    memory_bytes: int = MEMORY_BYTES,
) -> TripleMeta:
    """Writes all files but ``meta.json``, which it returns. Memory: ``memory_bytes`` for the sort,
    17 bytes per entity. Raises ValueError for a source without triples or with wild ids."""
    num_entities = len(source.entities)
    num_triples = sum(path.stat().st_size for path in source.splits.values()) // SPOOLED_BYTES
    _check_numbers(num_entities, len(source.relations), num_triples)
    meta = TripleMeta(
        name=name,
        num_entities=num_entities,
        num_relations=len(source.relations),
        parts=min(MOST_PARTS, num_entities),
        seed=seed,
        splits=dict.fromkeys(layout.SPLITS, 0),
        counts=TripleCounts(triples=num_triples, malformed=source.num_malformed),
        source=description,
    )
    edge_bytes = meta.columns * np.dtype(meta.dtype).itemsize
    writer.require_bytes(num_triples * (KEY_BYTES + edge_bytes))
    # places[i]: id of entity i of the source.
    places = np.random.default_rng([seed, 0]).permutation(num_entities)
    by_place = np.empty_like(places)
    by_place[places] = np.arange(num_entities)
    write_names(writer.file(ENTITIES), (source.entities[i] for i in by_place))
    del by_place
    if source.relations:
        write_names(writer.file(RELATIONS), source.relations)
    _Edges(writer, meta, source, places, memory_bytes).write()
    return meta


def _check_numbers(num_entities: int, num_relations: int, num_triples: int) -> None:
    if num_triples == 0:
        raise ValueError("no triples in the source")
    most = max(1 << 20, _MOST_ENTITIES_PER_TRIPLE * num_triples)
    if num_entities > most or num_relations >= 1 << 24:
        what = "entities" if num_entities > most else "relations"
        count = num_entities if num_entities > most else num_relations
        raise ValueError(
            f"{count:,} {what} for {num_triples:,} triples: expected ids to be numbered from 0 "
            "without gaps; number them so, or write them as names (.tsv, .csv)"
        )


class _Edges:
    """Writes the edges of all splits."""

    def __init__(
        self,
        writer: StoreWriter,
        meta: TripleMeta,
        source: ProvisionalTriples,
        places: np.ndarray,
        memory_bytes: int,
    ) -> None:
        self._writer = writer
        self._meta = meta
        self._source = source
        self._places = places
        self._memory_bytes = memory_bytes
        self._rows = min(max(_LEAST_ROWS, memory_bytes // _ROW_MEMORY), _MOST_ROWS)
        self._grid = Grid(meta.num_entities, meta.parts)
        self._trained_entities = np.zeros(meta.num_entities, bool)
        self._trained_relations = np.zeros(meta.num_relations, bool)

    def write(self) -> None:
        splits = self._source.splits
        if "all" in splits:
            self._write_drawn(splits["all"])
        else:
            for split in layout.SPLITS:
                with _SplitSink(self._writer, self._meta, split) as sink:
                    for keys in self._sorted(splits[split], split) if split in splits else ():
                        self._write_block(split, sink, keys)
        counts = self._meta.counts
        counts.entities_not_in_train = int(np.count_nonzero(~self._trained_entities))
        counts.relations_not_in_train = int(np.count_nonzero(~self._trained_relations))
        counts.leaked = sum(self._count_common("train", split) for split in ("valid", "test"))

    def _write_drawn(self, spool: Path) -> None:
        """Draws the split of each triple; duplicates are gone by then, so none is in two."""
        valid, test = self._source.fractions
        generator = np.random.default_rng([self._meta.seed, 1])
        with ExitStack() as stack:
            sinks = {
                split: stack.enter_context(_SplitSink(self._writer, self._meta, split))
                for split in layout.SPLITS
            }
            for keys in self._sorted(spool, "all"):
                draws = generator.random(len(keys))
                kinds = np.searchsorted([test, test + valid], draws, side="right")
                for kind, split in enumerate(("test", "valid", "train")):
                    self._write_block(split, sinks[split], keys[kinds == kind])

    def _sorted(self, spool: Path, name: str) -> Iterator[np.ndarray]:
        """The keys of a spooled file, ascending, each once."""
        sorter = TripleSorter(self._writer.scratch(), name, self._memory_bytes)
        offset, size = 0, spool.stat().st_size
        while offset < size:
            triples = np.fromfile(spool, np.int64, 3 * self._rows, offset=offset).reshape(-1, 3)
            offset += triples.nbytes
            triples[:, 0] = self._places[triples[:, 0]]
            triples[:, 2] = self._places[triples[:, 2]]
            sorter.add(self._grid.pack(triples))
        spool.unlink()
        yield from sorter.sorted()
        self._meta.counts.duplicates += sorter.num_duplicates

    def _write_block(self, split: str, sink: _SplitSink, keys: np.ndarray) -> None:
        triples = unpack(keys)
        self._meta.counts.self_loops += int(np.count_nonzero(triples[:, 0] == triples[:, 2]))
        if split == "train":
            self._trained_entities[triples[:, 0]] = True
            self._trained_entities[triples[:, 2]] = True
            if self._meta.num_relations:
                self._trained_relations[triples[:, 1]] = True
        sink.write(keys, triples)

    def _count_common(self, one: str, other: str) -> int:
        """Triples that are in both splits."""
        with ExitStack() as stack:
            sources = []
            for split in (one, other):
                path = self._writer.path_of(edge_file(split))
                sources.append(EdgeKeys(self._grid, stack.enter_context(ArrayFile(path))))
            blocks = merge(sources, self._rows)
            return sum(len(block) - len(without_duplicates(block)) for block in blocks)


class _SplitSink:
    """Writes the edges of one split and where their buckets start."""

    def __init__(self, writer: StoreWriter, meta: TripleMeta, split: str) -> None:
        self._writer = writer
        self._meta = meta
        self._split = split
        self._sizes = np.zeros(meta.parts**2, np.int64)
        self._sink = writer.file(edge_file(split))
        self._sink.write_header(np.dtype(meta.dtype), 0, meta.columns)

    def __enter__(self) -> _SplitSink:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return  # the writer abandons all files
        num_edges = int(self._sizes.sum())
        self._sink.replace_header(np.dtype(self._meta.dtype), num_edges, self._meta.columns)
        self._sink.close()
        self._meta.splits[self._split] = num_edges
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._sizes)])
        self._writer.write_array(bucket_file(self._split), starts)

    def write(self, keys: np.ndarray, triples: np.ndarray) -> None:
        """Appends sorted triples, whose keys are ``keys``."""
        self._sizes += np.bincount(buckets_of(keys), minlength=len(self._sizes))
        edges = triples if self._meta.num_relations else triples[:, [0, 2]]
        self._sink.write(np.ascontiguousarray(edges, self._meta.dtype))
