"""Ranks of links among candidates: the rows of links in memory, while candidates stream by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lsm import native
from lsm.inference.arrays import ArrayFile
from lsm.inference.link_outputs import Arrays, LinkOutputs, digest_of_pairs, groups_of, marked
from lsm.inference.pair_scores import EndFiles, PairScorer, pairs_bytes
from lsm.inference.stage import Finish, Resources, Stage, TooLittleMemoryError
from lsm.inference.top_targets import TILE_DESTINATIONS, TILE_SOURCES, tile_bytes, tile_scores
from lsm.links.ranking import RankCounter, ranks_among, tie_tolerance
from lsm.nn.link_models import LinkNetwork

LeftOut = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Of links from sources to destinations, [n] int64 each: numbers of links, ascending, and ids that
are no candidates of theirs."""
_LINK_COPIES = 3  # of the row of a source


class LinkRanks(LinkOutputs):
    """Ranks of links: ``ranks.npy`` float64 [n], from 1, means over the orders of ties."""

    def __init__(
        self, model: LinkNetwork, links: Tensor, candidates: Tensor, left_out: LeftOut
    ) -> None:
        """``links``: [2, n] int64. ``candidates``: destinations that each link's own is ranked
        among: [n, k] int64, or [k] for all links but those ``left_out``."""
        self.edge_type, self.scorer = model.edge_type, model.scorer
        self.links, self.candidates, self.left_out = links, candidates, left_out

    def wanted(self, num_nodes: Mapping[str, int]) -> dict[str, Tensor]:
        marks = marked(self.links, self.edge_type, num_nodes)
        for some in self.candidates.view(-1).split(1 << 20):
            marks[self.edge_type[2]][some] = True
        return marks

    def arrays(self, work: Path, num_nodes: Mapping[str, int]) -> dict[str, ArrayFile]:
        return {"ranks": ArrayFile(work / "ranks.npy", self.links.size(1), (), torch.float64)}

    @property
    def summary(self) -> dict[str, Any]:
        return {"edge_type": self.edge_type, "links": self.links.size(1)}

    def facts(self) -> dict[str, Any]:
        candidates = digest_of_pairs(self.candidates.view(1, -1))
        return {"links": digest_of_pairs(self.links), "candidates": candidates}

    def stage(self, arrays: Arrays, rows: EndFiles, resources: Resources) -> Stage:
        kind = _GivenStage if self.candidates.dim() == 2 else _DrawnStage
        return kind(self, arrays["ranks"], rows, resources)


class _GivenStage(Stage):
    """Ranks of links that have candidates of their own, as scores of pairs."""

    name = "ranks"

    def __init__(
        self, ranked: LinkRanks, ranks: ArrayFile, rows: EndFiles, resources: Resources
    ) -> None:
        self._links, self._candidates = ranked.links, ranked.candidates
        self._rows, self._ranks = rows, ranks
        self._width = 1 + ranked.candidates.size(1)
        self._scorer = PairScorer(ranked.scorer, rows, resources)
        missing = pairs_bytes(max(0, self._width - self._scorer.most_pairs))
        self.enough_bytes = self._scorer.enough_bytes + pairs_bytes(self._width)
        if missing:
            raise TooLittleMemoryError("a link with its candidates", missing)
        self.num_units = ranked.links.size(1)

    def run(self, units: np.ndarray, finish: Finish) -> int:
        with self._rows as rows:
            for begin, end in groups_of(units, self._scorer.most_pairs // self._width):
                sources, own = self._links[:, begin:end]
                theirs = torch.cat([own[:, None], self._candidates[begin:end]], 1)
                native.check_mapped(self._links)
                native.check_mapped(self._candidates)
                pairs = sources.repeat_interleave(self._width), theirs.view(-1)
                scores = self._scorer.scores(*pairs).view(-1, self._width)
                self._ranks.write(begin, ranks_among(scores[:, 0], scores[:, 1:]))
                finish(begin, end, int((~torch.isfinite(scores)).any(1).sum()))
            return rows.bytes_read


class _DrawnStage(Stage):
    """Ranks of links that share their candidates, by tiles of links and candidates."""

    name = "ranks"

    def __init__(
        self, ranked: LinkRanks, ranks: ArrayFile, rows: EndFiles, resources: Resources
    ) -> None:
        self._links, self._candidates = ranked.links, ranked.candidates
        self._left_out, self._scorer = ranked.left_out, ranked.scorer
        self._rows, self._ranks = rows, ranks
        self._pool = resources.pool
        self.num_units = -(-ranked.links.size(1) // TILE_SOURCES)
        at_work = resources.num_threads * tile_bytes(ranked.scorer, rows)
        unit = TILE_SOURCES * rows.sources.row_bytes * _LINK_COPIES
        tile = TILE_DESTINATIONS * rows.destinations.row_bytes
        half = (resources.free_bytes - at_work) // 2
        least = 2 * max(unit, 2 * tile)
        if 2 * half < least:
            raise TooLittleMemoryError(self.name, least - 2 * half)
        self._own = PairScorer(ranked.scorer, rows, replace(resources, free_bytes=half))
        self.enough_bytes = at_work + max(least, 2 * self._own.enough_bytes) + 1
        self._group = min(half // 2 // unit or 1, max(1, self._own.most_pairs // TILE_SOURCES))
        self._block = max(1, half // 2 // tile) * TILE_DESTINATIONS

    def run(self, units: np.ndarray, finish: Finish) -> int:
        with self._rows as rows:
            for begin, end in groups_of(units, self._group):
                finish(begin, end, self._rank(begin, end, rows))
            return rows.bytes_read

    def _rank(self, begin: int, end: int, rows: EndFiles) -> int:
        """Writes the ranks of units ``begin`` to ``end - 1``. Returns the number of links with a
        score that is not finite."""
        first = begin * TILE_SOURCES
        sources, destinations = self._links[:, first : end * TILE_SOURCES].contiguous()
        native.check_mapped(self._links)
        own = self._own.scores(sources, destinations)
        ids, places = torch.unique(sources, return_inverse=True)
        ours = rows.read_sources(ids).wait()
        tiles = [slice(at, at + TILE_SOURCES) for at in range(0, len(own), TILE_SOURCES)]
        counters = []
        for tile in tiles:
            left_out = self._left_out(sources[tile], destinations[tile])
            counters.append(RankCounter(own[tile], tie_tolerance(own[tile]), left_out))
        for some in self._candidates.split(self._block):
            theirs = rows.read_destinations(some).wait()

            def work(number: int, some: Tensor = some, theirs: Tensor = theirs) -> None:
                with torch.inference_mode():
                    mine = ours[places[tiles[number]]]
                    queries = slice(0, len(mine))
                    for at in range(0, len(some), TILE_DESTINATIONS):
                        part = slice(at, at + TILE_DESTINATIONS)
                        scores = tile_scores(self._scorer, mine, theirs[part])
                        counters[number].add(queries, some[part], scores)

            list(self._pool.map(work, range(len(tiles))))
        self._ranks.write(first, torch.cat([counter.ranks() for counter in counters]))
        return int((~torch.isfinite(own)).sum())
