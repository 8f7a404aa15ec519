"""Published orders: Legend's (Algorithm 1) and Marius' (BETA)."""

from __future__ import annotations

from lsm.embed.orders.turns import Turn


def legend_turns(partitions: int) -> list[Turn]:
    """Legend's column separation covering for a buffer of 3: one partition (the column) stays until
    it has met all others, then its successor takes over.

    A difference from the listing: its line 15 compares a slice of a full column with a length
    that it never has; we evict the larger id if it has yet to meet a larger one. Its line 12 may
    evict the partition just loaded; we then evict the smaller of the others. If the successor is
    resident, nothing is loaded. We look for the partition to load from the one loaded last upward.
    """
    return _Legend(partitions).run()


class _Legend:
    def __init__(self, partitions: int) -> None:
        self._n = partitions
        self._buffer = [0, 1, 2]
        self._newest = 2
        self._unmet = [set(range(partitions)) - {i} for i in range(partitions)]
        self._turns: list[Turn] = []
        for i in self._buffer:
            self._unmet[i] -= set(self._buffer)

    def run(self) -> list[Turn]:
        for i in range(3, self._n):
            self._replace(i - 2, i)
        column = 0
        while any(self._unmet):
            evicted = None
            if not self._unmet[column]:
                if column + 1 not in self._buffer:
                    evicted = self._take_over(column)
                column += 1
            if self._unmet[column]:
                self._cover(column, evicted)
        return self._turns

    def _replace(self, evicted: int, loaded: int) -> None:
        slot = self._buffer.index(evicted)
        self._buffer[slot] = loaded
        self._newest = loaded
        self._turns.append((slot, loaded))
        for i in self._buffer:
            self._unmet[i].discard(loaded)
        self._unmet[loaded] -= set(self._buffer)

    def _others(self, *gone: int) -> list[int]:
        return sorted(set(self._buffer) - set(gone))

    def _take_over(self, column: int) -> int:
        """Loads the next column; returns the partition to evict after that."""
        stays = self._newest == column
        self._replace(self._others(column)[0] if stays else column, column + 1)
        low, high = self._others(column + 1)
        return high if any(i > high for i in self._unmet[high]) else low

    def _cover(self, column: int, evicted: int | None) -> None:
        """Loads, of the partitions that the column has yet to meet, the one that meets the most."""
        if evicted is None:
            evicted = self._others(column, self._newest)[0]
        stays = self._others(evicted)
        upward = [(self._newest + 1 + k) % self._n for k in range(self._n)]
        candidates = [i for i in upward if i in self._unmet[column] and i != evicted]
        self._replace(evicted, max(candidates, key=lambda i: len(self._unmet[i] & set(stays))))


def beta_turns(partitions: int, buffer: int) -> list[Turn]:
    """Marius' BETA: all slots but the last stay while those that they have yet to meet pass
    through the last slot; then others of these take their place."""
    turns: list[Turn] = []
    passing, waiting = buffer - 1, list(range(buffer, partitions))
    while waiting:
        turns += [(buffer - 1, i) for i in waiting]
        rest = [passing, *waiting[:-1]]
        turns += list(enumerate(rest[: buffer - 1]))
        passing, waiting = waiting[-1], rest[buffer - 1 :]
    return turns
