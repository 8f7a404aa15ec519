"""Totals of an iteration, summed over ranks field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, replace
from typing import Any, Self

import torch

from lsm.distributed import collectives
from lsm.distributed.collectives import World

OF_RANK = {"of_rank": True}
"""Metadata of a field that stays that of each rank."""


@dataclass
class Totals:
    """Sums over an iteration: of this rank, then of all. A field is a number, or numbers by name,
    which are the same names on every rank."""

    loss_sum: float = 0.0
    """Sum of the losses."""
    loss_count: int = 0
    """Number of losses."""
    num_stopping: int = 0
    """Ranks that were asked to stop."""

    @property
    def loss(self) -> float:
        """Mean of the losses."""
        return self.loss_sum / max(1, self.loss_count)

    @property
    def bytes_read(self) -> int:
        """Bytes read from storage meanwhile."""
        return 0

    def over_ranks(self, world: World) -> Self:
        """These totals, summed over ranks. A collective."""
        if world.size == 1:
            return self
        mine: list[float] = []
        for each in self._shared():
            value = getattr(self, each.name)
            mine += value.values() if isinstance(value, Mapping) else [value]
        sums = iter(
            collectives.all_reduce_sum(torch.tensor(mine, dtype=torch.float64), world).tolist()
        )
        changes: dict[str, Any] = {}
        for each in self._shared():
            value = getattr(self, each.name)
            if isinstance(value, Mapping):
                changes[each.name] = {name: next(sums) for name in value}
            else:
                changes[each.name] = type(value)(next(sums))
        return replace(self, **changes)

    def others(self) -> Iterator[tuple[str, float]]:
        """The numbers beside the loss by name, those of this rank too."""
        for each in fields(self)[len(fields(Totals)) :]:
            value = getattr(self, each.name)
            if isinstance(value, Mapping):
                yield from value.items()
            else:
                yield each.name, value

    def _shared(self) -> Iterator[Field]:
        return (each for each in fields(self) if not each.metadata.get("of_rank"))
