"""The victim buffer as a dict: the rows that wait in host memory, until when, in which slot."""

from __future__ import annotations


class VictimBuffer:
    """``mode`` queues: ``num_rows`` rows per future iteration, what does not fit is discarded.
    ``mode`` pool: ``num_rows`` rows in all; when full, the row with the farthest next use (highest
    id on ties) gives way to a strictly nearer one. Slots: lowest free first. (DESIGN section 5.)
    """

    def __init__(self, mode: str, num_rows: int, window: int) -> None:
        self.mode = mode
        self.num_rows = num_rows
        self.num_slots = {"none": 0, "pool": num_rows, "queues": num_rows * window}[mode]
        self.next_use: dict[int, int] = {}
        self.slot: dict[int, int] = {}

    def take(self, node: int) -> int:
        """Removes the row of ``node``; its slot."""
        del self.next_use[node]
        return self.slot.pop(node)

    def put(self, node: int, next_use: int) -> tuple[bool, int]:
        """Whether the row enters, and how many rows are lost by that (itself or another)."""
        if self.mode == "queues":
            if list(self.next_use.values()).count(next_use) == self.num_rows:
                return False, 1
            self._enter(node, next_use)
            return True, 0
        if len(self.slot) < self.num_rows:
            self._enter(node, next_use)
            return True, 0
        farthest = max(self.slot, key=lambda other: (self.next_use[other], other))
        if next_use >= self.next_use[farthest]:
            return False, 1
        self.take(farthest)
        self._enter(node, next_use)
        return True, 1

    def _enter(self, node: int, next_use: int) -> None:
        used = set(self.slot.values())
        self.slot[node] = next(s for s in range(self.num_slots) if s not in used)
        self.next_use[node] = next_use
