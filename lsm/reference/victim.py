"""The victim buffer as dicts: the rows that wait in host memory, their next uses and their
slots."""

from __future__ import annotations

from collections.abc import Callable


class VictimBuffer:
    """``mode`` queues: ``num_rows`` rows per future iteration; a row that does not fit, or whose
    next use is not known, is discarded. ``mode`` pool: ``num_rows`` rows in all; when full, the
    row that leaves first gives way to a strictly better one: rows of unknown next use leave first,
    lowest ``rank(node)`` first, then the farthest next use; on ties the highest id. Slots: lowest
    free first.
    """

    def __init__(self, mode: str, num_rows: int, window: int, rank: Callable[[int], float]) -> None:
        self.mode = mode
        self.num_rows = num_rows
        self.num_slots = {"none": 0, "pool": num_rows, "queues": num_rows * window}[mode]
        self.rank = rank
        self.next_use: dict[int, int | None] = {}  # None: not known
        self.slot: dict[int, int] = {}

    def take(self, node: int) -> int:
        """Removes the row of ``node``. Returns its slot."""
        del self.next_use[node]
        return self.slot.pop(node)

    def put(self, node: int, next_use: int | None) -> tuple[bool, int]:
        """(True if the row enters, number of rows of known next use that are lost by it: itself or
        another)."""
        is_known = next_use is not None
        if self.mode == "none":
            return False, 0
        if self.mode == "queues":
            if not is_known or list(self.next_use.values()).count(next_use) == self.num_rows:
                return False, int(is_known)
            self._enter(node, next_use)
            return True, 0
        if len(self.slot) < self.num_rows:
            self._enter(node, next_use)
            return True, 0
        first = max(self.slot, key=lambda other: (self._order(other, self.next_use[other]), other))
        if self._order(node, next_use) >= self._order(first, self.next_use[first]):
            return False, int(is_known)
        num_lost = int(self.next_use[first] is not None)
        self.take(first)
        self._enter(node, next_use)
        return True, num_lost

    def enter_window(self, node: int, t: int) -> bool:
        """Takes note that iteration t requests ``node``. Returns True if its row is here and had no
        next use."""
        if node not in self.slot or self.next_use[node] is not None:
            return False
        self.next_use[node] = t
        return True

    def _order(self, node: int, next_use: int | None) -> tuple[int, float]:
        """The order of leaving: the row with the highest key leaves first."""
        return (1, -self.rank(node)) if next_use is None else (0, next_use)

    def _enter(self, node: int, next_use: int | None) -> None:
        used = set(self.slot.values())
        self.slot[node] = next(s for s in range(self.num_slots) if s not in used)
        self.next_use[node] = next_use
