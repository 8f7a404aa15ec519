"""Link prediction: the rank of an edge's own entity among entities in its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lsm.embed.composition import compose
from lsm.embed.known_edges import KnownEdges
from lsm.embed.negatives import equal_pairs
from lsm.embed.options import EmbedOptions
from lsm.embed.scores import scores_of
from lsm.embed.sides import Side, sides_of

Blocks = Iterable[tuple[int, Tensor]]
"""Rows of entities, block by block: number of the first entity and rows [n, at least dim] float32.
Every iteration starts anew."""

SCORE_BYTES = 16 << 20
TIE = 1e-6
"""Scores of float32 that differ by less, relative to the terms that were added, are ties."""


@dataclass(frozen=True)
class Protocol:
    """Entities that an edge's own is ranked among.

    all: every entity; uniform: ``sample`` distinct entities; degree: ``sample`` entities drawn in
    proportion to their degree, with replacement. All edges share a sample.
    """

    candidates: Literal["all", "uniform", "degree"] = "all"
    sample: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.candidates != "all" and self.sample < 1:
            raise ValueError(f"sample: expected at least 1 entity, got {self.sample}")


@dataclass(frozen=True)
class Ranking:
    """Means over both sides of ``num_edges`` edges. ``protocol`` says how they were ranked."""

    mrr: float
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float
    num_edges: int
    protocol: str


def rank_edges(
    options: EmbedOptions,
    blocks: Blocks,
    relations: Tensor | None,
    edges: Tensor,
    known: KnownEdges | None = None,
    protocol: Protocol | None = None,
    degrees: Tensor | None = None,
) -> Ranking:
    """Ranks of heads and tails of ``edges`` [n, 3] int64 ([n, 2] without relations).

    ``relations``: rows [relation rows, at least dim]. ``known``: other edges, which do not count
    (filtered); None: every entity counts. ``degrees``: [entities], for Protocol degree. A rank is
    the mean over the orders of equal scores. dot ignores relations, of known edges too. ``blocks``
    are read up to three times; memory holds one block, and the embeddings of the edges' own
    entities and of a sample. Raises FloatingPointError if an edge has no finite score, ValueError
    for an entity without a row.
    """
    protocol = protocol or Protocol()
    num_entities = sum(len(rows) for _, rows in blocks) if protocol.candidates != "all" else 0
    sample = _sample(protocol, num_entities, degrees)
    needed, places = torch.unique(
        torch.cat((edges[:, 0], edges[:, -1], sample)), return_inverse=True
    )
    embeddings = _gather(blocks, needed, options.dim)
    heads, tails, sampled = places.split([len(edges), len(edges), len(sample)])
    counted = 0
    ranks = []
    sides = sides_of(options, edges, 0 if relations is None else len(relations))
    for is_head, side in enumerate(sides):
        given, missing = (tails, heads) if is_head else (heads, tails)
        relation = None
        if side.relations is not None:
            assert relations is not None
            relation = relations[side.relations, : options.dim]
        queries = compose(options.chosen_model, embeddings[given], relation, side.inverse)
        ranker = _Ranker(options, side, queries, embeddings[missing], known, bool(is_head))
        candidates: Iterator[tuple[Tensor, Tensor]]
        if protocol.candidates == "all":
            candidates = _numbered(blocks, options.dim)
        else:
            candidates = iter([(sample, embeddings[sampled])])
        for ids, rows in candidates:
            ranker.add(ids, rows)
            counted += len(ids)
        ranks.append(ranker.ranks())
    return _means(torch.cat(ranks), _text(protocol, counted // 2, known is not None))


class _Ranker:
    """Counts the candidates that score above, and equal to, the entities of edges."""

    def __init__(
        self,
        options: EmbedOptions,
        side: Side,
        queries: Tensor,
        targets: Tensor,
        known: KnownEdges | None,
        is_head: bool,
    ) -> None:
        self._scores = scores_of(options.chosen_model)
        self._queries, self._missing = queries, side.missing
        of_target = self._scores.of_pairs(queries, targets)
        if not torch.isfinite(of_target).all():
            raise FloatingPointError(
                "an edge's score is not finite: the embeddings hold NaN or inf"
            )
        terms = queries.norm(dim=1), targets.norm(dim=1)
        is_product = options.model in ("dot", "distmult", "complex")
        tolerance = TIE * (terms[0] * terms[1] if is_product else terms[0] + terms[1])
        self._least, self._most = (of_target - tolerance)[:, None], (of_target + tolerance)[:, None]
        own = torch.arange(len(queries)), side.missing
        pairs = own if known is None else known.pairs(side, is_head)
        self._pair_queries = torch.cat((own[0], pairs[0]))
        self._pair_entities = torch.cat((own[1], pairs[1]))
        self._pair_queries, order = self._pair_queries.sort()
        self._pair_entities = self._pair_entities[order]
        self._above = torch.zeros(len(queries), dtype=torch.float64)
        self._equal = torch.zeros(len(queries), dtype=torch.float64)

    def add(self, ids: Tensor, rows: Tensor) -> None:
        """Counts the entities ``ids`` [k] with embeddings ``rows`` [k, dim]."""
        size = max(1, SCORE_BYTES // (4 * len(ids)))
        for first in range(0, len(self._queries), size):
            chunk = slice(first, min(first + size, len(self._queries)))
            scores = torch.empty(chunk.stop - chunk.start, len(ids))
            self._scores.of_all(self._queries[chunk], rows, scores)
            bounds = torch.tensor([chunk.start, chunk.stop])
            start, stop = torch.searchsorted(self._pair_queries, bounds).tolist()
            pairs = slice(start, stop)
            known, columns = equal_pairs(ids, self._pair_entities[pairs])
            scores[self._pair_queries[pairs][known] - first, columns] = -torch.inf
            above = (scores > self._most[chunk]).sum(1)
            # NaN is neither above nor below, so that it counts as a tie.
            below = (scores < self._least[chunk]).sum(1)
            self._above[chunk] += above
            self._equal[chunk] += len(ids) - above - below

    def ranks(self) -> Tensor:
        """[queries] float64, from 1."""
        return 1 + self._above + self._equal / 2


def _numbered(blocks: Blocks, dim: int) -> Iterator[tuple[Tensor, Tensor]]:
    for first, rows in blocks:
        yield torch.arange(first, first + len(rows)), rows[:, :dim]


def _sample(protocol: Protocol, num_entities: int, degrees: Tensor | None) -> Tensor:
    generator = torch.Generator().manual_seed(protocol.seed)
    if protocol.candidates == "uniform":
        return torch.randperm(num_entities, generator=generator)[: protocol.sample]
    if protocol.candidates == "degree":
        if degrees is None or len(degrees) != num_entities:
            raise ValueError(f"degrees: expected one of each of the {num_entities} entities")
        ends = degrees.double().cumsum(0)
        draws = torch.rand(protocol.sample, generator=generator, dtype=torch.float64) * ends[-1]
        return torch.searchsorted(ends, draws, right=True)
    return torch.empty(0, dtype=torch.int64)


def _gather(blocks: Blocks, ids: Tensor, dim: int) -> Tensor:
    """Embeddings [m, dim] of ``ids`` [m], ascending."""
    gathered = torch.empty(len(ids), dim)
    num_found = 0
    for first, rows in blocks:
        start, stop = torch.searchsorted(ids, torch.tensor([first, first + len(rows)])).tolist()
        gathered[start:stop] = rows[ids[start:stop] - first, :dim]
        num_found += stop - start
    if num_found != len(ids):
        raise ValueError(f"edges: {len(ids) - num_found} of {len(ids)} entities have no embedding")
    return gathered


def _means(ranks: Tensor, protocol: str) -> Ranking:
    if not len(ranks):
        raise ValueError("edges: expected at least one to rank")
    hits = {k: (ranks <= k).double().mean().item() for k in (1, 3, 10)}
    mrr = ranks.reciprocal().mean().item()
    return Ranking(mrr, hits[1], hits[3], hits[10], len(ranks) // 2, protocol)


def _text(protocol: Protocol, num_candidates: int, is_filtered: bool) -> str:
    kinds = {"all": "all {} entities", "uniform": "{} uniform entities", "degree": "{} by degree"}
    entities = kinds[protocol.candidates].format(f"{num_candidates:,}")
    return f"{'filtered' if is_filtered else 'raw'}, both sides, {entities}, mean rank on ties"
