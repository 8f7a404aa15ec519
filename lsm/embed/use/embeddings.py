"""The embeddings of a run, read from disk by name or by id."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lsm.data.triples.store import TripleStore
from lsm.embed.run import EmbeddingRun
from lsm.embed.use import prediction
from lsm.embed.use.neighbors import MEASURES, nearest

Key = str | int
"""Name, or id."""
TARGETS = ("tail", "head")
"""Sides of an edge that a score ranks."""


def open_run(path: str | Path, store: str | Path | None = None) -> Embeddings:
    """Opens the directory of a run, to read the embeddings that its last checkpoint keeps.

    Args:
        path: ``run.dir`` of `lsm embed train`.
        store: The store of the run, where it has moved.

    Returns:
        The embeddings, of which nothing is read yet.

    Raises:
        FileNotFoundError: There is no checkpoint in ``path``.
        ValueError: A file is damaged.
    """
    overrides = [] if store is None else [f"data.path={store}"]
    return Embeddings(EmbeddingRun.open(path, overrides))


class Embeddings:
    """Embeddings of entities and relations. Nothing is kept in memory: every call reads.

    Entities and relations are given by name (str) or by id (int). A name costs a pass over the
    store's file of names, an id does not. Every method raises OSError for a damaged file of
    embeddings, and RuntimeError if the run was trained on meanwhile.
    """

    def __init__(self, run: EmbeddingRun) -> None:
        """Use ``lsm.embed.open_run``, which makes it of ``run``."""
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
        return self.run.store()

    def entities(self, keys: Sequence[Key]) -> Tensor:
        """Reads embeddings of entities.

        Args:
            keys: Names or ids.

        Returns:
            Embeddings, [len(keys), dim] float32.

        Raises:
            ValueError: One of ``keys`` is unknown.
        """
        return self.run.rows(self.entity_ids(keys))

    def relations(self, keys: Sequence[Key] | None = None) -> Tensor:
        """Reads embeddings of relations.

        Args:
            keys: Names or ids. None: all relations, then those that are reciprocal.

        Returns:
            Embeddings, [len(keys), dim] float32.

        Raises:
            ValueError: One of ``keys`` is unknown, or the model has no relations.
        """
        table = self.run.relations()
        if table is None:
            model = self.run.config.embed.model
            raise ValueError(f"{self.run.path}: embed.model={model} has no relations")
        return table if keys is None else table[self.relation_ids(keys)]

    def entity_ids(self, keys: Sequence[Key]) -> list[int]:
        """Looks up entities.

        Args:
            keys: Names or ids.

        Returns:
            Their ids.

        Raises:
            ValueError: One of ``keys`` is unknown; the error offers names like it.
        """
        count = self.num_entities  # ids need no store
        return _ids(keys, count, lambda names: self.store.find_entities(names), "entity")

    def relation_ids(self, keys: Sequence[Key]) -> list[int]:
        """Looks up relations.

        Args:
            keys: Names or ids.

        Returns:
            Their ids.

        Raises:
            ValueError: One of ``keys`` is unknown; the error offers names like it.
        """
        count = self.run.num_relations
        return _ids(keys, count, lambda names: self.store.find_relations(names), "relation")

    def entity_names(self, ids: Sequence[int]) -> list[str]:
        """Looks up names.

        Args:
            ids: Ids of entities.

        Returns:
            Their names, found by one pass over the store's file of names.

        Raises:
            ValueError: No entity has one of the ids.
        """
        return self.store.names_of_entities(self.entity_ids(ids))

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Reads all embeddings, a block of about 16 MiB at a time.

        Returns:
            An iterator over (id of the first entity of a block, embeddings [n, dim] float32), by
            ascending id.
        """
        return self.run.blocks()

    def neighbors(
        self, keys: Sequence[Key], k: int = 10, measure: str = "cosine"
    ) -> tuple[Tensor, Tensor]:
        """Finds the entities with the nearest embeddings, in one pass over all of them.

        Args:
            keys: Names or ids of entities.
            k: Neighbours of each.
            measure: cosine or dot.

        Returns:
            ids [len(keys), k] int64 and scores [len(keys), k] float32, best first, lower ids first
            among equals. An entity is no neighbour of its own.

        Raises:
            ValueError: One of ``keys`` is unknown, or ``k`` is not below the number of entities.
            RuntimeError: An embedding of ``keys`` is not finite.
        """
        if measure not in MEASURES:
            raise ValueError(f"measure (--by): expected {' or '.join(MEASURES)}, got {measure!r}")
        if not 1 <= k < self.num_entities:
            raise ValueError(f"k: expected 1 to {self.num_entities - 1} other entities, got {k}")
        own = self.entity_ids(keys)
        queries = self.run.rows(own)
        if not torch.isfinite(queries).all():
            raise RuntimeError(f"{self.run.path}: an embedding asked for holds NaN or inf")
        found = nearest(self.blocks(), queries, torch.tensor(own), k, measure)
        self.run.require_unchanged()
        return found

    def predict(
        self,
        heads: Sequence[Key] | None = None,
        relations: Sequence[Key] | None = None,
        tails: Sequence[Key] | None = None,
        k: int = 10,
        *,
        unknown_only: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Finds the tails that complete heads and relations best, or the heads that complete tails.

        Reads all embeddings once per 65,536 queries; memory does not grow with the number of
        entities. The given entity is a candidate, too, as in evaluation.

        Args:
            heads: Names or ids of entities, [q]; their tails are predicted.
            relations: Names or ids, [q], or one for all queries. None for a model without.
            tails: Names or ids of entities, [q], instead of ``heads``; their heads are predicted.
            k: Predictions of each query.
            unknown_only: Leave out edges of training, validation and test.

        Returns:
            ids [q, k] int64 and scores [q, k] float32, best first, lower ids first among equals;
            the scores are those of ``score`` with the same target. Where fewer than ``k``
            entities are left, ids are -1 and scores -inf. Entities whose embeddings hold NaN are
            left out.

        Raises:
            ValueError: An entity or relation is unknown, ``k`` is not from 1 to the number of
                entities, or ``relations`` do not fit the model.
            RuntimeError: An embedding of a query is not finite.
        """
        given = tails if heads is None else heads
        if given is None or (heads is not None and tails is not None):
            raise ValueError(
                "heads, tails: expected one of the two, whose other side is predicted, got "
                f"{'none' if given is None else 'both'}"
            )
        if not 1 <= k <= self.num_entities:
            raise ValueError(f"k: expected 1 to {self.num_entities} entities, got {k}")
        found = prediction.predict(
            self.run,
            torch.tensor(self.entity_ids(given), dtype=torch.int64),
            self._kinds(relations, len(given)),
            k,
            is_head=heads is None,
            known_of=self.store if unknown_only else None,
        )
        self.run.require_unchanged()
        return found

    def score(self, triples: Sequence[Sequence[Key]] | Tensor, *, target: str = "tail") -> Tensor:
        """Scores edges, as evaluation ranks them; a higher score is likelier.

        With ``embed.reciprocal`` tails and heads are ranked by different embeddings of a relation,
        and so by different scores.

        Args:
            triples: (head, relation, tail) of names or ids, or ids [n, 3] int64. A model without
                relations takes (head, tail), too, and ignores relations.
            target: tail or head: the side that the score ranks.

        Returns:
            Scores, [n] float32. NaN for an edge whose embeddings hold NaN.

        Raises:
            ValueError: An entity or relation is unknown, or a triple has another number of parts.
        """
        if target not in TARGETS:
            raise ValueError(f"target: expected {' or '.join(TARGETS)}, got {target!r}")
        scores = prediction.score(self.run, self._edges(triples), is_head=target == "head")
        self.run.require_unchanged()
        return scores

    def export(
        self,
        out: str | Path,
        form: str,
        *,
        ids: bool = False,
        force: bool = False,
        progress: bool | None = False,
    ) -> list[Path]:
        """Writes all embeddings to files for other tools, a block at a time.

        Args:
            out: Directory to write to.
            form: npy, tsv, word2vec or safetensors.
            ids: Ids instead of names, which needs no store.
            force: Replace files in ``out``.
            progress: Bars; None: on a terminal.

        Returns:
            The files, which have their names once they are whole.

        Raises:
            ValueError: There is no such ``form``.
            FileExistsError: ``out`` is not empty.
        """
        from lsm.embed.use.export import export  # which takes Embeddings

        return export(self, out, form, ids=ids, force=force, progress=progress)

    def _kinds(self, relations: Sequence[Key] | None, count: int) -> Tensor | None:
        """The ids of the relations of ``count`` queries; None for a model without."""
        options = self.run.config.embed
        if not options.has_relations:
            if relations is not None:
                raise ValueError(
                    f"relations: expected none, as embed.model={options.model} has no relations, "
                    f"got {relations!r}"
                )
            return None
        if relations is None:
            raise ValueError(
                f"relations: expected one, as embed.model={options.model} scores relations"
            )
        ids = torch.tensor(self.relation_ids(relations), dtype=torch.int64)
        if len(ids) == 1:
            return ids.expand(count)
        if len(ids) != count:
            raise ValueError(
                f"relations: expected one, or one of each of {count} queries, got {len(ids)}"
            )
        return ids

    def _edges(self, triples: Sequence[Sequence[Key]] | Tensor) -> Tensor:
        """The ids of edges: [n, 3] int64, or [n, 2] without relations."""
        has_relations = self.run.config.embed.has_relations
        if isinstance(triples, Tensor):
            return self._checked(triples, (3,) if has_relations else (2, 3))
        rows = triples
        for number, row in enumerate(rows):
            if isinstance(row, str) or len(row) not in ((3,) if has_relations else (2, 3)):
                parts = "head, relation, tail" if has_relations else "head, tail"
                raise ValueError(f"triples: expected ({parts}), got {row!r} at {number}")
        ends = self.entity_ids([row[0] for row in rows] + [row[-1] for row in rows])
        columns = [ends[: len(rows)], ends[len(rows) :]]
        if has_relations:
            columns.insert(1, self.relation_ids([row[1] for row in rows]))
        return torch.tensor(columns, dtype=torch.int64).T.contiguous()

    def _checked(self, edges: Tensor, columns: tuple[int, ...]) -> Tensor:
        """``edges`` of ids, on the host. Raises ValueError if they are no edges of the run."""
        is_integer = not (edges.is_floating_point() or edges.is_complex())
        if edges.ndim != 2 or edges.shape[1] not in columns or not is_integer:
            expected = " or ".join(f"[n, {count}]" for count in columns)
            raise ValueError(
                f"triples: expected ids {expected} of integers, got {edges.dtype} "
                f"{list(edges.shape)}"
            )
        edges = edges.to("cpu", torch.int64)
        bounds = [("entity", self.num_entities, 0), ("entity", self.num_entities, -1)]
        if columns == (3,):
            bounds.append(("relation", self.run.num_relations, 1))
        for what, count, column in bounds if len(edges) else []:
            least, most = map(int, edges[:, column].aminmax())
            if least < 0 or most >= count:
                bad = least if least < 0 else most
                raise ValueError(f"{what}: expected ids below {count}, got {bad}")
        return edges


def _ids(
    keys: Sequence[Key], count: int, find: Callable[[list[str]], list[int]], what: str
) -> list[int]:
    if isinstance(keys, str):
        raise TypeError(f"{what}: expected a list of names or ids, got {keys!r}")
    names = [key for key in keys if isinstance(key, str)]
    by_name = dict(zip(names, find(names), strict=True)) if names else {}
    ids = [by_name[key] if isinstance(key, str) else _whole(key, what) for key in keys]
    for number in ids:
        if not 0 <= number < count:
            raise ValueError(f"{what}: expected ids below {count}, got {number}")
    return ids


def _whole(key: Any, what: str) -> int:
    try:
        return operator.index(key)
    except TypeError:
        raise TypeError(f"{what}: expected names or ids, whole numbers, got {key!r}") from None
