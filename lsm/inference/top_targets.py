"""The best targets of nodes: rows of some sources in memory, while all destinations stream by.

The scores of a tile of sources and destinations are computed at once, whatever memory holds, and
the order of scores and ids is total: the targets are the same for any memory, threads and ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lsm import native
from lsm.graph.topology import Topology
from lsm.inference.arrays import ArrayFile
from lsm.inference.link_outputs import Arrays, LinkOutputs, groups_of
from lsm.inference.pair_scores import EndFiles
from lsm.inference.stage import Finish, Resources, Stage, TooLittleMemoryError
from lsm.nn.link_models import LinkNetwork
from lsm.nn.link_scorers import DistMult, Dot, Scorer

TILE_SOURCES = 64
"""Sources that are scored at once, and the unit of progress."""
TILE_DESTINATIONS = 1024
_TILE_BYTES = 64  # of a score of a tile, while the best are chosen
_HIDDEN_COPIES = 3  # of the rows of a tile's pairs, for a scorer that is no product
_BEST_BYTES = 12  # of a score and its id
_BEST_COPIES = 4
_MOST_BLOCK_BYTES = 64 << 20  # of destinations, of which two are in memory
_EDGES_AT_ONCE = 1 << 20


class TopTargets(LinkOutputs):
    """The best targets of sources: ``targets.npy`` int64 [n, k] and ``scores.npy`` float32 [n, k],
    best first, ties by id. Where there are fewer targets, -1 and -inf follow."""

    def __init__(
        self,
        model: LinkNetwork,
        sources: Tensor | None,
        k: int,
        known: Sequence[Topology] | None,
    ) -> None:
        """``sources``: ids [n] int64; None: all. ``known``: edges whose destinations are no targets
        of their sources; then a source is no target of its own either. None: all nodes are
        targets."""
        self.edge_type, self.scorer = model.edge_type, model.scorer
        self.selection = None if sources is None else torch.unique(sources)
        self.k, self.known = k, known

    def wanted(self, num_nodes: Mapping[str, int]) -> dict[str, Tensor]:
        source, _, destination = self.edge_type
        marks = {source: torch.zeros(num_nodes[source], dtype=torch.bool)}
        marks[source][slice(None) if self.selection is None else self.selection] = True
        return marks | {destination: torch.ones(num_nodes[destination], dtype=torch.bool)}

    def arrays(self, work: Path, num_nodes: Mapping[str, int]) -> dict[str, ArrayFile]:
        most, destination = num_nodes[self.edge_type[2]], self.edge_type[2]
        if not 1 <= self.k <= most:
            raise ValueError(
                f"--top-k: expected 1 to {most}, the nodes of type {destination}, got {self.k}"
            )
        count = num_nodes[self.edge_type[0]] if self.selection is None else len(self.selection)
        kinds = {"targets": torch.int64, "scores": torch.float32}
        return {
            name: ArrayFile(work / f"{name}.npy", count, (self.k,), kind)
            for name, kind in kinds.items()
        }

    @property
    def summary(self) -> dict[str, Any]:
        return {"edge_type": self.edge_type, "top_k": self.k}

    def facts(self) -> dict[str, Any]:
        return {"top-k": self.k, "known edges": "targets" if self.known is None else "no targets"}

    def stage(self, arrays: Arrays, rows: EndFiles, resources: Resources) -> Stage:
        return _TopStage(self, arrays, rows, resources)


class Best:
    """The best targets of some sources so far: scores, best first, and ids, [n, k]. Ties are by
    id."""

    def __init__(self, count: int, k: int, floor: Tensor | None = None) -> None:
        """``floor``: [n, 1], targets need higher scores; None: higher than -inf."""
        self.scores = torch.full((count, k), -torch.inf)
        self._floor = self.scores[:, :1] if floor is None else floor
        self.ids = torch.full((count, k), -1, dtype=torch.int64)
        self.has_nan = torch.zeros(count, dtype=torch.bool)

    def add(self, scores: Tensor, first: int) -> None:
        """Takes the ``scores`` [n, d] of destinations from ``first`` on, which are higher ids than
        those before. NaN and -inf are no targets."""
        self.has_nan |= scores.isnan().any(1)
        # A tie is of a higher id than those before it.
        better = scores > torch.maximum(self.scores[:, -1:], self._floor)
        rows, columns = better.nonzero(as_tuple=True)
        if not len(rows):
            return
        counts = better.sum(1)
        places = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
        packed = scores.new_full((len(scores), int(counts.max())), -torch.inf)
        packed[rows, places] = scores[rows, columns]
        ids = torch.full(packed.shape, -1, dtype=torch.int64)
        ids[rows, places] = columns + first
        self._join(packed, ids)

    def merge(self, later: Best) -> None:
        """Takes the best of destinations with higher ids."""
        self.has_nan |= later.has_nan
        self._join(later.scores, later.ids)

    def _join(self, scores: Tensor, ids: Tensor) -> None:
        k = self.scores.size(1)
        joined = torch.cat([self.scores, scores], 1)
        joined, order = joined.sort(dim=1, descending=True, stable=True)
        self.scores = joined[:, :k]
        self.ids = torch.cat([self.ids, ids], 1).gather(1, order[:, :k])


class _TopStage(Stage):
    """The best targets, by units of some sources."""

    name = "best targets"

    def __init__(
        self, best: TopTargets, arrays: Arrays, rows: EndFiles, resources: Resources
    ) -> None:
        self._sources, self._known, self._k = best.selection, best.known, best.k
        self._has_self = best.edge_type[0] == best.edge_type[2]
        self._scorer, self._rows, self._arrays = best.scorer, rows, arrays
        self._pool, self._threads = resources.pool, resources.num_threads
        self._num_sources = arrays["targets"].num_rows
        self.num_units = -(-self._num_sources // TILE_SOURCES)
        self._divide(resources.free_bytes)

    def _divide(self, free_bytes: int) -> None:
        """Divides memory among rows of sources with their best targets, and two blocks of
        destinations."""
        rows, threads = self._rows, self._threads
        at_work = threads * tile_bytes(self._scorer, rows)
        at_work += threads * TILE_SOURCES * self._k * _BEST_BYTES * _BEST_COPIES
        at_work += 4 * 8 * _EDGES_AT_ONCE * (self._known is not None)
        unit = TILE_SOURCES * (rows.sources.row_bytes + self._k * _BEST_BYTES * _BEST_COPIES)
        tile = TILE_DESTINATIONS * rows.destinations.row_bytes
        least = at_work + max(2 * unit, 4 * tile)
        self.enough_bytes = least
        if free_bytes < least:
            raise TooLittleMemoryError(self.name, least - free_bytes)
        half = (free_bytes - at_work) // 2
        self._group = half // unit
        self._block_rows = min(half // 2, _MOST_BLOCK_BYTES) // tile * TILE_DESTINATIONS

    def run(self, units: np.ndarray, finish: Finish) -> int:
        with self._rows as rows:
            for begin, end in groups_of(units, self._group):
                finish(begin, end, self._rank(begin, end, rows))
            return rows.bytes_read

    def _rank(self, begin: int, end: int, rows: EndFiles) -> int:
        """Writes the best targets of units ``begin`` to ``end - 1``. Returns the number of sources
        with a score that is NaN."""
        first, last = begin * TILE_SOURCES, min(end * TILE_SOURCES, self._num_sources)
        ids = torch.arange(first, last) if self._sources is None else self._sources[first:last]
        ours = rows.read_sources(ids).wait()
        tiles = range(0, len(ids), TILE_SOURCES)
        best = [Best(len(ids[at : at + TILE_SOURCES]), self._k) for at in tiles]
        for start, theirs in self._blocks(rows):
            self._add_block(best, ids, ours, start, theirs)
        for name, found in (("targets", "ids"), ("scores", "scores")):
            self._arrays[name].write(first, torch.cat([getattr(each, found) for each in best]))
        return sum(int(each.has_nan.sum()) for each in best)

    def _blocks(self, rows: EndFiles) -> Iterator[tuple[int, Tensor]]:
        """The first node and the rows of each block of destinations, the next being read."""
        count, before = rows.destinations.num_rows, None
        for start in range(0, count, self._block_rows):
            ids = torch.arange(start, min(start + self._block_rows, count))
            following = start, rows.read_destinations(ids)
            if before is not None:
                yield before[0], before[1].wait()
            before = following
        if before is not None:
            yield before[0], before[1].wait()

    def _add_block(
        self, best: list[Best], ids: Tensor, ours: Tensor, start: int, theirs: Tensor
    ) -> None:
        """Takes a block of destinations, whose first is ``start`` and whose rows are ``theirs``."""
        left_out = self._left_out(ids, start, start + len(theirs))
        parts = -(-self._threads // len(best))
        step = -(-len(theirs) // (parts * TILE_DESTINATIONS)) * TILE_DESTINATIONS

        def work(task: tuple[int, int]) -> Best:
            with torch.inference_mode():
                tile, at = task
                sources = slice(tile * TILE_SOURCES, (tile + 1) * TILE_SOURCES)
                found = Best(len(ids[sources]), self._k, best[tile].scores[:, -1:])
                rows, columns = _of_tile(left_out, sources)
                for first in range(at, min(at + step, len(theirs)), TILE_DESTINATIONS):
                    part = theirs[first : first + TILE_DESTINATIONS]
                    scores = tile_scores(self._scorer, ours[sources], part)
                    inside = (columns >= first) & (columns < first + len(part))
                    scores[rows[inside], columns[inside] - first] = -torch.inf
                    found.add(scores, start + first)
                return found

        tasks = [(tile, at) for tile in range(len(best)) for at in range(0, len(theirs), step)]
        for (tile, _), found in zip(tasks, self._pool.map(work, tasks), strict=True):
            best[tile].merge(found)

    def _left_out(self, ids: Tensor, start: int, end: int) -> tuple[Tensor, Tensor]:
        """The pairs of ``ids``, ascending, and destinations from ``start`` to ``end - 1`` that are
        no targets: their places among both, those of sources ascending."""
        nothing = torch.empty(0, dtype=torch.int64)
        if self._known is None:
            return nothing, nothing
        found = [pair for known in self._known for pair in _edges_between(known, ids, start, end)]
        if self._has_self:
            inside = ((ids >= start) & (ids < end)).nonzero().view(-1)
            found.append((inside, ids[inside] - start))
        rows, order = torch.cat([nothing, *(each[0] for each in found)]).sort()
        return rows, torch.cat([nothing, *(each[1] for each in found)])[order]


def _edges_between(
    known: Topology, ids: Tensor, start: int, end: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The edges from ``ids``, ascending, to nodes from ``start`` to ``end - 1``, some at a time:
    their places among both."""
    indptr = known.indptr[start : end + 1]
    for first in range(int(indptr[0]), int(indptr[-1]), _EDGES_AT_ONCE):
        edges = torch.arange(first, min(first + _EDGES_AT_ONCE, int(indptr[-1])))
        sources = known.indices[first : first + len(edges)].long()
        rows = torch.searchsorted(ids, sources).clamp_(max=len(ids) - 1)
        hit = (ids[rows] == sources).nonzero().view(-1)
        yield rows[hit], torch.searchsorted(indptr, edges[hit], right=True) - 1
    native.check_mapped(known.indptr)
    native.check_mapped(known.indices)


def tile_scores(scorer: Scorer, ours: Tensor, theirs: Tensor) -> Tensor:
    """The scores [n, k] float32 of a tile of rows, which are computed in one shape whatever n and k
    are: at most TILE_SOURCES and TILE_DESTINATIONS."""
    tile = scorer.matrix(_padded(ours, TILE_SOURCES), _padded(theirs, TILE_DESTINATIONS))
    return tile[: len(ours), : len(theirs)].float()


def tile_bytes(scorer: Scorer, rows: EndFiles) -> int:
    """Memory of a tile at work."""
    hidden = 0 if isinstance(scorer, Dot | DistMult) else _HIDDEN_COPIES
    return TILE_SOURCES * TILE_DESTINATIONS * (_TILE_BYTES + hidden * rows.row_bytes)


def _of_tile(pairs: tuple[Tensor, Tensor], sources: slice) -> tuple[Tensor, Tensor]:
    """The ``pairs`` of some sources, with places among these."""
    rows, columns = pairs
    first, end = torch.searchsorted(rows, torch.tensor([sources.start, sources.stop])).tolist()
    return rows[first:end] - sources.start, columns[first:end]


def _padded(rows: Tensor, count: int) -> Tensor:
    return functional.pad(rows.float(), (0, 0, 0, count - len(rows)))
