"""Draws the negatives that the edges of a chunk share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lsm.core.device import moved

Candidates = Sequence[tuple[int, int]]
"""Ranges of rows, first and end, that do not overlap."""


class NegativeDraws:
    """Rows drawn with replacement: uniformly from the candidates, and from ends of edges."""

    def __init__(self, candidates: Candidates, count: int, degree_fraction: float) -> None:
        """``count`` rows a draw. Raises ValueError without a candidate."""
        check_candidates(candidates)
        self.count = count
        self._num_by_degree = round(count * degree_fraction)
        self._num_uniform = count - self._num_by_degree
        self._total, ends, shifts = 0, [], []
        for first, end in candidates:
            # Adding this to a number below the total size gives a row of the number's range.
            shifts.append(first - self._total)
            self._total += end - first
            ends.append(self._total)
        self._ends, self._shifts = torch.tensor(ends), torch.tensor(shifts)

    def draw(self, ends: Tensor, generator: torch.Generator) -> Tensor:
        """[count] int64 rows. ``ends``: the rows [b] on the corrupted side of the batch; drawing
        one of them at random draws in proportion to degree in the batch."""
        return self.draw_many(ends, generator, 1)[0]

    def draw_many(self, ends: Tensor, generator: torch.Generator, times: int) -> Tensor:
        """[times, count]: :meth:`draw` several times, with few launches on a GPU."""
        device, shape = ends.device, (times, self._num_uniform)
        numbers = torch.randint(self._total, shape, generator=generator, device=device)
        which = torch.searchsorted(moved(self._ends, device), numbers, right=True)
        uniform = numbers + moved(self._shifts, device)[which]
        if not self._num_by_degree:
            return uniform
        shape = (times, self._num_by_degree)
        most = max(1, len(ends))  # a batch without edges has no draws
        edges = torch.randint(most, shape, generator=generator, device=device)
        return torch.cat((uniform, ends[edges]), 1)


def check_candidates(candidates: Candidates) -> None:
    if not candidates or any(end <= first for first, end in candidates):
        raise ValueError(f"candidates: expected ranges of rows, first below end, got {candidates}")


def all_rows(candidates: Candidates, device: torch.device) -> Tensor:
    """Every candidate once, in the order of the ranges."""
    check_candidates(candidates)
    return torch.cat([torch.arange(first, end, device=device) for first, end in candidates])
