"""Trials of several options for the same work, on the work itself."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

WARM_UP = 3
ROUNDS = 9


class Trial:
    """Times each of ``options`` and finds the fastest, by the median of ``rounds`` rates after the
    first ``warm_up``."""

    def __init__(
        self, options: Iterable[str], warm_up: int = WARM_UP, rounds: int = ROUNDS
    ) -> None:
        self._warm_up = warm_up
        self._rounds = rounds
        self._rates: dict[str, list[float]] = {option: [] for option in options}

    def add(self, option: str, amount: int, seconds: float) -> None:
        """Adds a round: ``option`` did ``amount`` (> 0) of the work in ``seconds``."""
        self._rates[option].append(amount / max(seconds, 1e-9))

    @property
    def next(self) -> str:
        """The option with the fewest rounds; the first of several."""
        return min(self._rates, key=lambda option: len(self._rates[option]))

    @property
    def done(self) -> bool:
        """True once every option has had its rounds."""
        return all(len(r) >= self._warm_up + self._rounds for r in self._rates.values())

    def rates(self) -> dict[str, float]:
        """Median work per second of each option. Precondition: done."""
        return {option: statistics.median(r[self._warm_up :]) for option, r in self._rates.items()}

    @property
    def fastest(self) -> str:
        """The first of the options with the highest rate. Precondition: done."""
        rates = self.rates()
        return max(rates, key=rates.__getitem__)
