"""Totals of iterations, read from the device and summed over ranks field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from lsm.distributed import collectives
from lsm.distributed.collectives import World

OF_RANK = {"of_rank": True}
"""Metadata of a field that stays that of each rank."""
NO_SUM = {"of_rank": True, "no_sum": True}
"""Metadata of a field that is no sum."""


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
    counts: dict[str, float] = field(default_factory=dict)
    """Counts of the task."""
    unread: dict[str, Tensor] = field(default_factory=dict, metadata=NO_SUM)
    """Numbers that the device still computes: ``loss_sum``, and counts by name. Each is a tensor of
    one number there."""

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
        return _over_ranks([self], world)[0]

    def others(self) -> Iterator[tuple[str, float]]:
        """The sums other than the loss by name, those of this rank too."""
        yield from self.counts.items()
        for each in fields(self)[len(fields(Totals)) :]:
            value = getattr(self, each.name)
            if isinstance(value, Mapping):
                yield from value.items()
            elif "no_sum" not in each.metadata:
                yield each.name, value

    def _shared(self) -> Iterator[Field]:
        return (each for each in fields(self) if not each.metadata.get("of_rank"))


AnyTotals = TypeVar("AnyTotals", bound=Totals)


def read(unread: Sequence[AnyTotals], world: World) -> list[AnyTotals]:
    """The totals of iterations over all ranks, with no number left on the device, which is awaited
    once. A collective: every rank gives as many."""
    tensors = [number.double() for each in unread for number in each.unread.values()]
    numbers = iter(torch.stack(tensors).tolist() if tensors else ())
    return _over_ranks([_filled(each, numbers) for each in unread], world)


def _filled(totals: AnyTotals, numbers: Iterator[float]) -> AnyTotals:
    """``totals`` with the next ``numbers`` in place of the unread ones."""
    found = {name: next(numbers) for name in totals.unread}
    loss_sum = found.pop("loss_sum", totals.loss_sum)
    return replace(totals, loss_sum=loss_sum, counts=totals.counts | found, unread={})


def _over_ranks(totals: Sequence[AnyTotals], world: World) -> list[AnyTotals]:
    if world.size == 1:
        return list(totals)
    mine: list[float] = []
    for each in totals:
        for of in each._shared():
            value = getattr(each, of.name)
            mine += value.values() if isinstance(value, Mapping) else [value]
    sums = collectives.all_reduce_sum(torch.tensor(mine, dtype=torch.float64), world).tolist()
    numbers = iter(sums)
    return [_summed(each, numbers) for each in totals]


def _summed(totals: AnyTotals, numbers: Iterator[float]) -> AnyTotals:
    """``totals`` with the next ``numbers`` in place of its own."""
    changes: dict[str, Any] = {}
    for each in totals._shared():
        value = getattr(totals, each.name)
        if isinstance(value, Mapping):
            changes[each.name] = {name: next(numbers) for name in value}
        else:
            changes[each.name] = type(value)(next(numbers))
    return replace(totals, **changes)
