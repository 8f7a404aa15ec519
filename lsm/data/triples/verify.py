"""Checks everything that a store of triples promises, streaming."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lsm.core.os_error import in_words
from lsm.core.progress import ByteProgress
from lsm.data import format as layout
from lsm.data.checks import CONVERT_AGAIN, Named, check_files, check_names
from lsm.data.convert.array_file import ArrayFile
from lsm.data.triples.format import ENTITIES, RELATIONS, edge_file, read_triple_meta
from lsm.data.triples.sort import EdgeKeys, Grid, buckets_of, without_duplicates
from lsm.data.triples.store import TripleStore

_ROWS = 1 << 18


def verify_triples(path: Path, *, progress: bool | None = None) -> list[str]:
    """The problems of the store of triples at ``path``, one line each."""
    try:
        store = TripleStore(path, read_triple_meta(path))
    except (OSError, ValueError) as error:
        return [in_words(error)]
    with ByteProgress(progress) as bars:
        problems, readable = check_files(path, store.meta.files, bars)
    for split in layout.SPLITS:
        if edge_file(split) in readable:
            problems += _edges(store, split)
    for name, count in ((ENTITIES, store.num_entities), (RELATIONS, store.num_relations)):
        if name in readable:
            problems += check_names(path / name, count)
    return problems


def _edges(store: TripleStore, split: str) -> Iterator[str]:
    """Problems of the edges of a split and of its buckets."""
    path = store.path / edge_file(split)
    try:
        store.edges(split)  # checks dtype and shape
        with ArrayFile(path) as edges:
            in_range = True
            for problem in _out_of_range(store, edges):
                yield f"{path}: {problem}; {CONVERT_AGAIN}"
                in_range = False
            if in_range:
                yield from _order(store, split, edges)
    except (OSError, ValueError) as error:
        yield in_words(error)


def _out_of_range(store: TripleStore, edges: ArrayFile) -> Iterator[str]:
    bounds = np.full(store.meta.columns, store.num_entities)
    if store.num_relations:
        bounds[1] = store.num_relations
    named = Named()
    for first, rows in edges.chunks():
        named.add(first + np.flatnonzero(((rows < 0) | (rows >= bounds)).any(axis=1)))
    if named.count:
        yield f"ids out of range: edges {named} ({named.count} in all)"


def _order(store: TripleStore, split: str, edges: ArrayFile) -> Iterator[str]:
    keys = EdgeKeys(Grid(store.num_entities, store.meta.parts), edges)
    sizes = np.zeros(store.meta.parts**2, np.int64)
    for begin in range(0, len(keys), _ROWS):
        # One more, to see the step to the next block.
        block = keys.read(begin, min(begin + _ROWS + 1, len(keys)))
        falls = (block[1:, 0] < block[:-1, 0]) | (
            (block[1:, 0] == block[:-1, 0]) & (block[1:, 1] < block[:-1, 1])
        )
        if falls.any():
            place = begin + 1 + int(np.flatnonzero(falls)[0])
            yield f"{edges.path}: edge {place} is out of order; {CONVERT_AGAIN}"
            return
        if len(without_duplicates(block)) < len(block):
            yield f"{edges.path}: an edge is there twice, after edge {begin}; {CONVERT_AGAIN}"
            return
        sizes += np.bincount(buckets_of(block[:_ROWS]), minlength=len(sizes))
    if (np.diff(store.bucket_starts(split)) != sizes).any():
        yield f"{edges.path}: edges are not in the buckets that are listed; {CONVERT_AGAIN}"
