"""The embeddings of a run, read from disk by name or by id."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from lsm.data.triple_store import TripleStore
from lsm.embed.job import identity
from lsm.embed.neighbors import MEASURES, nearest
from lsm.embed.run import EmbeddingRun

Key = str | int
"""Name, or id."""


def open_run(path: str | Path, store: str | Path | None = None) -> Embeddings:
    """Opens the directory of a run, to read the embeddings of its last checkpoint. ``store``: that
    of the run, where it has moved. Raises FileNotFoundError, or ValueError for damage."""
    overrides = [] if store is None else [f"data.path={store}"]
    return Embeddings(EmbeddingRun.open(path, overrides))


class Embeddings:
    """Embeddings of entities and relations. Nothing is kept in memory: every call reads.

    A name costs a pass over the store's file of names, an id does not.
    """

    def __init__(self, run: EmbeddingRun) -> None:
        """Use ``lsm.embed.open_run``."""
        self.run = run

    @property
    def num_entities(self) -> int:
        """Entities are 0 to ``num_entities - 1``."""
        return self.run.num_entities

    @property
    def dim(self) -> int:
        """Floats of an embedding. ``complex`` and ``rotate``: real parts, then imaginary parts."""
        return self.run.dim

    @cached_property
    def store(self) -> TripleStore:
        """The store that the run was trained on. Raises ValueError for another."""
        store = self.run.store()
        own, given = self.run.state.settings["store"], identity(store)
        different = [f"{key} {given[key]}, not {own[key]}" for key in own if own[key] != given[key]]
        if different:
            raise ValueError(
                f"data.path: {store.path} has {', '.join(different)}; give the store that the run "
                "was trained on with --store"
            )
        return store

    def entities(self, keys: Sequence[Key]) -> Tensor:
        """[len(keys), dim] float32: the embeddings of entities, by names or ids ``keys``. Raises
        ValueError for an unknown one."""
        return self.run.rows(self.entity_ids(keys))

    def relations(self, keys: Sequence[Key] | None = None) -> Tensor:
        """[len(keys), dim] float32: the embeddings of relations, by names or ids ``keys``; None:
        of all, then those of reciprocal relations. Raises ValueError for an unknown one, and for a
        model without relations."""
        table = self.run.relations()
        if table is None:
            model = self.run.config.embed.model
            raise ValueError(f"{self.run.path}: embed.model={model} has no relations")
        if keys is None:
            return table
        count = self.store.num_relations
        return table[_ids(keys, count, self.store.find_relations, "relation")]

    def entity_ids(self, keys: Sequence[Key]) -> list[int]:
        """The ids of entities, by names or ids ``keys``. Raises ValueError for an unknown one."""

        def find(names: list[str]) -> list[int]:
            return self.store.find_entities(names)  # which ids do without

        return _ids(keys, self.num_entities, find, "entity")

    def entity_names(self, ids: Sequence[int]) -> list[str]:
        """The names of entities ``ids``."""
        return self.store.names_of_entities(ids)

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """All embeddings by ascending id: first id of a block, and [n, dim] float32."""
        return self.run.blocks()

    def neighbors(
        self, keys: Sequence[Key], k: int = 10, measure: str = "cosine"
    ) -> tuple[Tensor, Tensor]:
        """The entities nearest to each of ``keys``, names or ids, best first: (ids [len(keys), k]
        int64, scores [len(keys), k] float32). ``measure``: cosine or dot. Reads all embeddings
        once. Raises ValueError for an unknown key or a ``k`` that is not below the number of
        entities, RuntimeError if an embedding of ``keys`` is not finite."""
        if measure not in MEASURES:
            raise ValueError(f"--by: expected {' or '.join(MEASURES)}, got {measure!r}")
        if not 1 <= k < self.num_entities:
            raise ValueError(f"-k: expected 1 to {self.num_entities - 1} other entities, got {k}")
        own = self.entity_ids(keys)
        queries = self.run.rows(own)
        if not torch.isfinite(queries).all():
            raise RuntimeError(f"{self.run.path}: an embedding asked for holds NaN or inf")
        found = nearest(self.blocks(), queries, torch.tensor(own), k, measure)
        self.run.require_unchanged()
        return found


def neighbors_by_name(
    run: Embeddings, keys: Sequence[str], k: int, measure: str, *, ids: bool = False
) -> dict[str, list[tuple[str, float]]]:
    """Name and score of the entities nearest to each of ``keys``, best first. ``ids``: keys are
    ids, and so are the answers. Raises ValueError for an unknown key."""
    entities: list[Key] = [_as_id(key) for key in keys] if ids else list(keys)
    numbers, scores = run.neighbors(entities, k, measure)
    flat = numbers.flatten().tolist()
    names = list(map(str, flat)) if ids else run.entity_names(flat)
    pairs = list(zip(names, scores.flatten().tolist(), strict=True))
    return {key: pairs[i * k : (i + 1) * k] for i, key in enumerate(keys)}


def _as_id(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"NAME: expected an id with --ids, got {text!r}")
    return int(text)


def _ids(
    keys: Sequence[Key], count: int, find: Callable[[list[str]], list[int]], what: str
) -> list[int]:
    if isinstance(keys, str):
        raise TypeError(f"{what}: expected a list of names or ids, got {keys!r}")
    names = [key for key in keys if isinstance(key, str)]
    by_name = dict(zip(names, find(names), strict=True)) if names else {}
    ids = [by_name[key] if isinstance(key, str) else int(key) for key in keys]
    for number in ids:
        if not 0 <= number < count:
            raise ValueError(f"{what}: expected ids below {count}, got {number}")
    return ids
