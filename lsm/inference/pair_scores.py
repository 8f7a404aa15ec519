"""Scores of pairs of nodes from rows on disk.

As many pairs as memory holds are sorted by blocks of sources and destinations, so that the rows of
two blocks serve all pairs between them. A call of the scorer takes a fixed number of pairs: its
scores have the same bits whatever the blocks are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from lsm.data.feature_files import FeatureFiles
from lsm.inference.stage import Resources, TooLittleMemoryError, bytes_read
from lsm.nn.link_scorers import Scorer
from lsm.storage.engine import Storage, Ticket
from lsm.storage.open import open_storage

CALL_PAIRS = 1024
"""Pairs of a call of the scorer."""
LEAST_PAIRS = 1 << 14
"""Pairs that a budget has room for at the same time."""
_PAIR_BYTES = 112  # of a pair: its ends, their blocks, order and places, and its score
_CALL_COPIES = 6  # of the rows of a call, while it is scored
_HELD = 4  # blocks of rows in memory: two of each side, one of which is read
_PAIRS_SHARE = 4  # of memory, for pairs


class EndFiles(AbstractContextManager["EndFiles"]):
    """The rows of sources and of destinations, open for reading. A context manager."""

    def __init__(self, sources: FeatureFiles, destinations: FeatureFiles) -> None:
        """Both are the same if the ends of links are of one type."""
        self.sources, self.destinations = sources, destinations

    @property
    def row_bytes(self) -> int:
        """Of the wider rows."""
        return max(self.sources.row_bytes, self.destinations.row_bytes)

    def __enter__(self) -> EndFiles:
        with ExitStack() as stack:
            self._of_sources = stack.enter_context(open_storage(self.sources))
            self._of_destinations = self._of_sources
            if self.destinations is not self.sources:
                self._of_destinations = stack.enter_context(open_storage(self.destinations))
            self._open = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def read_sources(self, ids: Tensor) -> Ticket:
        """Starts to read the rows of sources ``ids`` [n] int64."""
        return _read(self._of_sources, self.sources, ids)

    def read_destinations(self, ids: Tensor) -> Ticket:
        """Starts to read the rows of destinations ``ids`` [n] int64."""
        return _read(self._of_destinations, self.destinations, ids)

    @property
    def bytes_read(self) -> int:
        """Bytes read so far."""
        return bytes_read({self._of_sources, self._of_destinations})


def _read(storage: Storage, files: FeatureFiles, ids: Tensor) -> Ticket:
    return storage.submit(ids, torch.empty(len(ids), files.dim, dtype=files.dtype))


@dataclass
class _Piece:
    """Pairs ``first`` to ``end - 1`` in the order of blocks, and the rows of their ends: tickets,
    and the places of the ends among the rows."""

    first: int
    end: int
    sources: Ticket
    source_places: Tensor
    destinations: Ticket
    destination_places: Tensor


class PairScorer:
    """Scores pairs within a budget of memory."""

    def __init__(self, scorer: Scorer, rows: EndFiles, resources: Resources) -> None:
        """Raises TooLittleMemoryError."""
        self._scorer, self._rows, self._pool = scorer, rows, resources.pool
        free_bytes = resources.free_bytes
        row_bytes = rows.row_bytes
        at_work = (resources.num_threads + 1) * CALL_PAIRS * _CALL_COPIES * row_bytes
        least = _PAIRS_SHARE * max(
            LEAST_PAIRS * _PAIR_BYTES, CALL_PAIRS * row_bytes * _HELD // (_PAIRS_SHARE - 1)
        )
        self.enough_bytes = at_work + least
        """Memory to use without an error."""
        if free_bytes < self.enough_bytes:
            missing = self.enough_bytes - free_bytes
            raise TooLittleMemoryError("pairs of nodes", missing)
        left = free_bytes - at_work
        self.most_pairs = left // _PAIRS_SHARE // _PAIR_BYTES
        """Pairs to score at once."""
        self._block_rows = (left - left // _PAIRS_SHARE) // (_HELD * row_bytes)

    def scores(self, sources: Tensor, destinations: Tensor) -> Tensor:
        """Scores [n] float32 of ``sources`` and ``destinations`` [n] int64; at most ``most_pairs``.
        Reads the rows of a block while those before are scored."""
        size = self._block_rows
        num_blocks = -(-self._rows.destinations.num_rows // size)
        keys = sources // size * num_blocks + destinations // size
        keys, order = keys.sort(stable=True)
        scores = torch.empty(len(order))
        before: _Piece | None = None
        for piece in self._pieces(keys, keys // num_blocks, sources[order], destinations[order]):
            if before is not None:
                scores[order[before.first : before.end]] = self._scored(before)
            before = piece
        if before is not None:
            scores[order[before.first : before.end]] = self._scored(before)
        return scores

    def _pieces(
        self, keys: Tensor, source_blocks: Tensor, sources: Tensor, destinations: Tensor
    ) -> Iterator[_Piece]:
        """The pairs by pieces whose rows fit in memory; reads are under way."""
        bounds, held = _bounds_of_runs(source_blocks), -1
        for first, end in _cut(_bounds_of_runs(keys), self._block_rows):
            run = int(torch.searchsorted(bounds, first, right=True)) - 1
            begin, last = int(bounds[run]), int(bounds[run + 1])
            if end > last:  # several blocks of few pairs
                run, begin, last = -1, first, end
            if run < 0 or run != held:
                ids, held = torch.unique(sources[begin:last]), run
                reading = self._rows.read_sources(ids)
            places = torch.searchsorted(ids, sources[first:end])
            theirs, their_places = torch.unique(destinations[first:end], return_inverse=True)
            of_theirs = self._rows.read_destinations(theirs)
            yield _Piece(first, end, reading, places, of_theirs, their_places)

    def _scored(self, piece: _Piece) -> Tensor:
        sources, destinations = piece.sources.wait(), piece.destinations.wait()

        def work(first: int) -> Tensor:
            with torch.inference_mode():
                part = slice(first, first + CALL_PAIRS)
                ours = _padded(piece.source_places[part], CALL_PAIRS)
                theirs = _padded(piece.destination_places[part], CALL_PAIRS)
                found = self._scorer(sources[ours], destinations[theirs])
                return found[: min(CALL_PAIRS, piece.end - piece.first - first)].float()

        return torch.cat([*self._pool.map(work, range(0, piece.end - piece.first, CALL_PAIRS))])


def pairs_bytes(count: int) -> int:
    """Memory with which as many pairs more can be scored at once."""
    return count * _PAIR_BYTES * _PAIRS_SHARE


def _padded(places: Tensor, count: int) -> Tensor:
    return functional.pad(places, (0, count - len(places)))


def _bounds_of_runs(values: Tensor) -> Tensor:
    """The first place of each run of equal ``values`` [n], and n: [runs + 1] int64."""
    ends = torch.unique_consecutive(values, return_counts=True)[1].cumsum(0)
    return torch.cat([ends.new_zeros(1), ends])


def _cut(bounds: Tensor, most: int) -> Iterator[tuple[int, int]]:
    """First and end of pieces of whole runs with ``bounds``: several runs with at most ``most``
    together, or one."""
    first, total = 0, int(bounds[-1])
    while first < total:
        place = int(torch.searchsorted(bounds, first + most, right=True)) - 1
        end = int(bounds[place])
        if end == first:
            end = int(bounds[place + 1])
        yield first, end
        first = end
