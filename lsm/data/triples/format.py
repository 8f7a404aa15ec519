"""A store of triples: names of its files, ``meta.json`` and how edges are sorted.

Entity ids are places in a seeded shuffle of the entities, so that each range of ids is a random
sample. The ids are cut into ``parts`` ranges of (almost) equal size, the edges sorted by (part of
head, part of tail): by bucket. Training joins neighbouring parts to as many partitions as it wants,
so the conversion does not fix their number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, NonNegativeInt

from lsm.core.versioned_json import read_versioned
from lsm.data import format as layout
from lsm.data.format import FileMeta, MetaPart

SCHEMA_VERSION = 1
ENTITIES = "entities.tsv"
RELATIONS = "relations.tsv"
# Has many divisors, so that most numbers of partitions get equal shares.
MOST_PARTS = 240
_COMMAND = "lsm data convert triples"
REMEDY = f"convert the data again with `{_COMMAND}`"


class TripleCounts(MetaPart):
    """Oddities of the source, counted."""

    triples: int = Field(default=0, ge=0)
    """Triples of the source, duplicates included."""
    malformed: int = Field(default=0, ge=0)
    """Lines skipped (--skip-malformed)."""
    duplicates: int = Field(default=0, ge=0)
    """Triples left out because their split has them already."""
    leaked: int = Field(default=0, ge=0)
    """Triples of valid and test that are in train too; kept."""
    self_loops: int = Field(default=0, ge=0)
    """Triples of the store whose head is their tail; kept."""
    entities_not_in_train: int = Field(default=0, ge=0)
    """Entities of valid or test, or named, that no training triple has."""
    relations_not_in_train: int = Field(default=0, ge=0)


class TripleMeta(MetaPart):
    """``meta.json`` of a store of triples."""

    schema_version: int = SCHEMA_VERSION
    kind: Literal["triples"] = "triples"
    name: str
    num_entities: int = Field(ge=1, lt=2**40)
    num_relations: int = Field(ge=0, lt=2**24)
    """0: edges without relations."""
    parts: int = Field(ge=1, le=MOST_PARTS)
    seed: int = Field(ge=0)
    """Of the shuffle of the entities."""
    splits: dict[str, NonNegativeInt]
    """Triples of train, valid and test."""
    counts: TripleCounts
    files: dict[str, FileMeta] = Field(default_factory=dict)
    source: str | dict[str, Any] = ""

    @property
    def columns(self) -> int:
        """Columns of an edge: head, relation, tail; or head, tail."""
        return 3 if self.num_relations else 2

    @property
    def dtype(self) -> str:
        """NumPy name of the dtype of edges."""
        return layout.index_dtype(self.num_entities)


def edge_file(split: str) -> str:
    """Path in the store of the edges of a split: [n, columns], sorted by bucket, then by value."""
    return f"edges/{split}.npy"


def bucket_file(split: str) -> str:
    """Path of where each bucket starts: [parts**2 + 1] int64; bucket (i, j) is i * parts + j."""
    return f"edges/{split}_buckets.npy"


def part_starts(num_entities: int, parts: int) -> np.ndarray:
    """First entity of each part, and the end: [parts + 1] int64."""
    return -(-np.arange(parts + 1) * num_entities // parts)


def part_of(ids: np.ndarray, num_entities: int, parts: int) -> np.ndarray:
    """The part that holds each of ``ids`` (int64), which are below 2**40."""
    return ids * parts // num_entities


def read_triple_meta(store: Path) -> TripleMeta:
    """``meta.json`` of the store of triples ``store``, checked for consistency. Raises
    FileNotFoundError if there is none, ValueError if it cannot be used or is of another kind."""
    path = store / layout.META
    if layout.kind_of(store, _COMMAND, REMEDY) != "triples":
        raise ValueError(
            f"{store}: expected a store of triples, got one of a graph with features; make one "
            f"with `{_COMMAND}`"
        )
    meta = read_versioned(path, TripleMeta, SCHEMA_VERSION, REMEDY)
    layout.require_splits(path, meta.splits, REMEDY)
    if meta.parts > meta.num_entities:
        raise ValueError(
            f"{path}: parts: expected at most {meta.num_entities} (entities), got {meta.parts}; "
            f"{REMEDY}"
        )
    row_bytes = meta.columns * np.dtype(meta.dtype).itemsize
    least = {ENTITIES: 3 * meta.num_entities}
    if meta.num_relations:
        least[RELATIONS] = 3 * meta.num_relations
    for split, count in meta.splits.items():
        least |= {edge_file(split): count * row_bytes, bucket_file(split): 8 * meta.parts**2 + 8}
    layout.require_listed(path, meta.files, least)
    counts = f"{meta.num_entities} entities and {sum(meta.splits.values())} triples"
    layout.require_bytes(path, meta.files, least, counts)
    return meta
