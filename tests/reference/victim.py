"""The victim buffer as dicts: the rows that wait in host memory, their next uses and their
slots."""

from __future__ import annotations

from collections.abc import Callable


class VictimBuffer:
    """``mode`` queues: ``num_rows`` rows per future iteration; a row that does not fit, or whose
    next use is not known, is discarded. ``mode`` pool: ``num_rows`` rows in all, the best of its
    own and those that are offered: the nearest next use first, then rows of unknown next use, the
    highest ``rank(node)`` first; on ties its own by slot, then those offered in their order. Slots:
    lowest free first, once all rows that give way have left.
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

    def put(self, rows: list[tuple[int, int | None]]) -> tuple[int, int]:
        """Offers rows that leave the device, each with its next use, in the order of the moves.
        Returns (number of those that enter, number of rows of known next use that are lost)."""
        if self.mode == "none":
            return 0, 0
        if self.mode == "queues":
            waiting = list(self.next_use.values())
            entering: list[tuple[int, int | None]] = []
            for node, next_use in rows:
                if next_use is not None and waiting.count(next_use) < self.num_rows:
                    waiting.append(next_use)
                    entering.append((node, next_use))
            lost = [row for row in rows if row[1] is not None and row not in entering]
        else:
            own = [
                (node, self.next_use[node]) for node in sorted(self.slot, key=self.slot.__getitem__)
            ]
            ranked = sorted(own + rows, key=lambda row: self._order(*row))
            kept, dropped = ranked[: self.num_rows], ranked[self.num_rows :]
            for node, _ in dropped:
                if node in self.slot:
                    self.take(node)
            entering = [row for row in rows if row in kept]
            lost = [row for row in dropped if row[1] is not None]
        for row in entering:
            self._enter(*row)
        return len(entering), len(lost)

    def enter_window(self, node: int, t: int) -> bool:
        """Takes note that iteration t requests ``node``. Returns True if its row is here and had no
        next use."""
        if node not in self.slot or self.next_use[node] is not None:
            return False
        self.next_use[node] = t
        return True

    def _order(self, node: int, next_use: int | None) -> tuple[int, float]:
        """The lowest key is the best."""
        return (1, -self.rank(node)) if next_use is None else (0, next_use)

    def _enter(self, node: int, next_use: int | None) -> None:
        used = set(self.slot.values())
        self.slot[node] = next(s for s in range(self.num_slots) if s not in used)
        self.next_use[node] = next_use
