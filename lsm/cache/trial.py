"""Which of several ways to do the same work is faster, tried on the work itself."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

WARM_UP = 3
ROUNDS = 9


class Trial:
    """Collects how long each of ``ways`` took, and says which is fastest: by the median of what was
    added for it after the first ``warm_up`` times, once there are ``rounds`` of each."""

    def __init__(self, ways: Iterable[str], warm_up: int = WARM_UP, rounds: int = ROUNDS) -> None:
        self._warm_up = warm_up
        self._rounds = rounds
        self._rates: dict[str, list[float]] = {way: [] for way in ways}

    def add(self, way: str, amount: int, seconds: float) -> None:
        """``way`` did ``amount`` of the work, which is more than none, in ``seconds``."""
        self._rates[way].append(amount / max(seconds, 1e-9))

    @property
    def next(self) -> str:
        """The way that was tried least, the first of several."""
        return min(self._rates, key=lambda way: len(self._rates[way]))

    @property
    def done(self) -> bool:
        """Whether every way was tried often enough."""
        return all(len(r) >= self._warm_up + self._rounds for r in self._rates.values())

    def rates(self) -> dict[str, float]:
        """Of each way, how much of the work it did per second: a median. Only once it is done."""
        return {way: statistics.median(r[self._warm_up :]) for way, r in self._rates.items()}

    @property
    def fastest(self) -> str:
        """The first of the ways with the highest rate. Only once it is done."""
        rates = self.rates()
        return max(rates, key=rates.__getitem__)
