"""Link prediction: the rank of an edge's target among the entities in its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lsm.links.pairs import equal_pairs

SCORE_BYTES = 16 << 20
"""Scores in memory at the same time."""
_TOLERANCE = 1e-5  # of a score, in which sums of another order differ


def tie_tolerance(scores: Tensor) -> Tensor:
    """The difference by which a score still ties with each of ``scores``."""
    return scores.abs() * _TOLERANCE + 1e-12


def ranks_among(own: Tensor, others: Tensor) -> Tensor:
    """[p] float64: ranks of ``own`` [p] among ``others`` [p, k], means over the orders of ties."""
    tolerance = tie_tolerance(own)
    above = (others > (own + tolerance)[:, None]).sum(1)
    # NaN counts as a tie, and -inf is none.
    below = (others < (own - tolerance)[:, None]).sum(1)
    return 1 + above.double() + (others.size(1) - above - below).double() / 2


@dataclass(frozen=True)
class Protocol:
    """Entities that a target is ranked among.

    all: every entity; uniform: ``sample`` distinct entities; degree: ``sample`` entities drawn in
    proportion to their degree, with replacement. All edges share a sample.
    """

    candidates: Literal["all", "uniform", "degree"] = "all"
    sample: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.candidates != "all" and self.sample < 1:
            raise ValueError(f"sample: expected at least 1 entity, got {self.sample}")

    def draw(self, num_entities: int, degrees: Tensor | None) -> Tensor:
        """Ids of the sample, [sample] int64; none for all. ``degrees``: [num_entities], for degree.
        Raises ValueError without them."""
        generator = torch.Generator().manual_seed(self.seed)
        if self.candidates == "uniform":
            return torch.randperm(num_entities, generator=generator)[: self.sample]
        if self.candidates == "degree":
            if degrees is None or len(degrees) != num_entities:
                raise ValueError(f"degrees: expected one of each of the {num_entities} entities")
            ends = degrees.double().cumsum(0)
            draws = torch.rand(self.sample, generator=generator, dtype=torch.float64) * ends[-1]
            return torch.searchsorted(ends, draws, right=True)
        return torch.empty(0, dtype=torch.int64)

    def text(self, num_candidates: int, *, is_filtered: bool) -> str:
        """The protocol in words, for records. ``num_candidates``: of each target, with itself."""
        kinds = {
            "all": "all {} entities",
            "uniform": "{} uniform entities",
            "degree": "{} by degree",
        }
        entities = kinds[self.candidates].format(f"{num_candidates:,}")
        return f"{'filtered' if is_filtered else 'raw'}, both sides, {entities}, mean rank on ties"


@dataclass(frozen=True)
class Ranking:
    """Means over both sides of ``num_edges`` edges, ranked as ``protocol`` says."""

    mrr: float
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float
    num_edges: int
    protocol: str

    @classmethod
    def of(cls, ranks: Tensor, protocol: str) -> Ranking:
        """Means of the ``ranks`` [2 * edges] of both sides. Raises ValueError without an edge."""
        if not len(ranks):
            raise ValueError("edges: expected at least one to rank")
        one, three, ten = ((ranks <= k).double().mean().item() for k in (1, 3, 10))
        mrr = ranks.reciprocal().mean().item()
        return cls(mrr, one, three, ten, len(ranks) // 2, protocol)


class RankCounter:
    """Counts the candidates that score above the target of each query, and those that tie."""

    def __init__(
        self, targets: Tensor, tolerance: Tensor, left_out: tuple[Tensor, Tensor] | None = None
    ) -> None:
        """``targets``: [q] scores of the targets. A candidate ties if its score differs by at most
        ``tolerance`` [q]. ``left_out``: numbers of queries [p], ascending, and ids [p] of
        candidates that do not count for them; a target among its candidates belongs there. Raises
        FloatingPointError if a target's score is not finite."""
        if not torch.isfinite(targets).all():
            raise FloatingPointError(
                "an edge's score is not finite: the embeddings hold NaN or inf"
            )
        self._least, self._most = (targets - tolerance)[:, None], (targets + tolerance)[:, None]
        none = torch.empty(0, dtype=torch.int64)
        self._queries, self._left_out = left_out or (none, none)
        self._above = torch.zeros(len(targets), dtype=torch.float64)
        self._ties = torch.zeros(len(targets), dtype=torch.float64)

    def chunks(self, num_candidates: int) -> Iterator[slice]:
        """All queries, in chunks with scores of at most SCORE_BYTES."""
        size = max(1, SCORE_BYTES // (4 * num_candidates))
        for first in range(0, len(self._above), size):
            yield slice(first, min(first + size, len(self._above)))

    def add(self, queries: slice, ids: Tensor, scores: Tensor) -> None:
        """Counts the candidates ``ids`` [k] int64, with scores [c, k] for the queries of a chunk.
        Overwrites scores of candidates that are left out."""
        bounds = torch.tensor([queries.start, queries.stop])
        start, stop = torch.searchsorted(self._queries, bounds).tolist()
        rows, columns = equal_pairs(ids, self._left_out[start:stop])
        scores[self._queries[start:stop][rows] - queries.start, columns] = -torch.inf
        above = (scores > self._most[queries]).sum(1)
        # NaN is neither above nor below, so that it counts as a tie.
        below = (scores < self._least[queries]).sum(1)
        self._above[queries] += above
        self._ties[queries] += len(ids) - above - below

    def ranks(self) -> Tensor:
        """[q] float64, from 1: means over the orders of ties."""
        return 1 + self._above + self._ties / 2
