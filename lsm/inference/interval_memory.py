"""Division of memory in the route ``intervals``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lsm.inference.arrays import runs_of
from lsm.inference.stage import TooLittleMemoryError
from lsm.storage.engine import buffers_of
from lsm.storage.options import StorageOptions

_MOST_STREAM_BYTES = 32 << 20
_STREAM_SHARE = 16  # of memory, for each of two buffers of rows that stream by
_PLANNED_BYTES = 48  # of a row that is being read: its id and its place
_READ_SHARE = 16  # of memory, for reads in flight
_LONGEST_READ, _SHORTEST_READ = 256 << 10, 8 << 10
_MOST_READS, _FEWEST_READS = 32, 4


@dataclass(frozen=True)
class Division:
    """Batches of rows that stream by, the first of which may stay, and intervals of chunks.

    batch_rows: rows of a batch. num_kept: the first rows, whole batches, which are read once and
    stay. intervals: first and end of the chunks whose sums are in memory at once.
    """

    batch_rows: int
    num_kept: int
    intervals: list[tuple[int, int]]


@dataclass(frozen=True)
class Needs:
    """Memory that a stage needs.

    costs: [chunks] int64, of the sums and edges of each chunk. at_work: of the chunks that are
    computed at once. num_rows, row_bytes: of the rows that stream by. few_rows: least rows of a
    batch. has_own: True if a node's own rows are in another file.
    """

    costs: np.ndarray
    at_work: int
    num_rows: int
    row_bytes: int
    few_rows: int
    has_own: bool


class IntervalMemory:
    """Memory for reads, rows that stream by, rows that stay, and sums with their edges.

    reads, own_reads: options of reading the rows that stream by, and a node's own. read_rows: rows
    that are read at once. enough_bytes: memory that suffices.

    Raises TooLittleMemoryError with the ``name`` of the stage.
    """

    def __init__(self, name: str, free_bytes: int, needs: Needs) -> None:
        self._costs, self._num_rows, self._row_bytes = needs.costs, needs.num_rows, needs.row_bytes
        has_own, row_bytes = needs.has_own, needs.row_bytes
        few = min(needs.few_rows, needs.num_rows) * (row_bytes + _PLANNED_BYTES)
        least = max(2 * few, needs.at_work)
        self._largest = int(needs.costs.max(initial=0))
        needed = self._largest + least
        self.reads, self.own_reads, in_flight = _reads(free_bytes, has_own)
        left = free_bytes - in_flight
        self.enough_bytes = enough_with_reads(needed, lambda free: _reads(free, has_own)[2])
        if left < needed:
            raise TooLittleMemoryError(name, self.enough_bytes - free_bytes)
        share = min(_MOST_STREAM_BYTES, left // _STREAM_SHARE)
        stream = max(least // 2, min(share, (left - self._largest) // 2))
        self.read_rows = max(1, stream // (row_bytes + _PLANNED_BYTES))
        self._room = left - 2 * stream

    def divide(self, units: np.ndarray) -> Division:
        """The division for the chunks ``units`` [n] int64, ascending."""
        total, all_bytes = int(self._costs[units].sum()), self._num_rows * self._row_bytes
        least = max(self._largest, min(total, self._room // 8))
        if all_bytes + least <= self._room:
            intervals = [*self._intervals(units, self._room - all_bytes)]
            return Division(max(1, self._num_rows), self._num_rows, intervals)
        budget, intervals = self._equal(units, total)
        left = self._room - budget if len(intervals) > 1 else 0
        num_kept = left // (self.read_rows * self._row_bytes) * self.read_rows
        return Division(self.read_rows, min(num_kept, self._num_rows), intervals)

    def _equal(self, units: np.ndarray, total: int) -> tuple[int, list[tuple[int, int]]]:
        """The least memory with which there are as few intervals as with all of it, and these."""
        found = self._room, [*self._intervals(units, self._room)]
        fewest = max(1, len(found[1]))
        low, high = max(self._largest, total // fewest), self._room
        while low < high:
            budget = (low + high) // 2
            intervals = [*self._intervals(units, budget)]
            if len(intervals) <= fewest:
                found, high = (budget, intervals), budget
            else:
                low = budget + 1
        return found

    def _intervals(self, units: np.ndarray, budget: int) -> Iterator[tuple[int, int]]:
        """Runs of chunks of at most ``budget`` bytes."""
        sums = np.concatenate([[0], self._costs.cumsum()])
        for begin, last in runs_of(units):
            while begin < last:
                end = int(np.searchsorted(sums, sums[begin] + budget, side="right")) - 1
                end = min(max(end, begin + 1), last)
                yield begin, end
                begin = end


def read_options(options: StorageOptions, free_bytes: int) -> tuple[StorageOptions, int]:
    """``options`` for rows in order, and the memory of reads in flight: at most a tenth of
    ``free_bytes`` unless that is very little."""
    room = free_bytes // _READ_SHARE
    longest = _SHORTEST_READ
    while 2 * longest <= min(_LONGEST_READ, room // _MOST_READS * 4):
        longest *= 2
    depth = min(_MOST_READS, max(_FEWEST_READS, room // longest))
    update: dict[str, Any] = {"max_read_bytes": longest, "queue_depth": depth}
    chosen = options.model_copy(update=update)
    return chosen, buffers_of(chosen)


def enough_with_reads(num_bytes: int, reads: Callable[[int], int]) -> int:
    """Memory that leaves ``num_bytes`` besides ``reads``, a function of all of it."""
    enough = num_bytes
    while enough - reads(enough) < num_bytes:
        enough = num_bytes + reads(enough)
    return enough


def _reads(free_bytes: int, has_own: bool) -> tuple[StorageOptions, StorageOptions, int]:
    """Options of reading rows that stream by and a node's own, and the memory of these reads."""
    reads, of_rows = read_options(StorageOptions(), free_bytes)
    own_reads, of_own = read_options(StorageOptions(), free_bytes // 2)
    return reads, own_reads, of_rows + (of_own if has_own else 0)
