"""Totals are summed over ranks by field, but for those of each rank."""

from __future__ import annotations

from dataclasses import dataclass, field

from lsm.run.position import Position
from lsm.run.totals import OF_RANK, Totals

NUM_RANKS = 4


@dataclass
class Some(Totals):
    num_correct: int = 0
    rows: dict[str, float] = field(default_factory=dict)
    spans: dict[str, float] = field(default_factory=dict, metadata=OF_RANK)


def some(rank):
    rows = {"hits": rank, "misses": 10 * rank}
    return Some(
        loss_sum=0.5 + rank,
        loss_count=3 + rank,
        num_stopping=int(rank == 1),
        num_correct=2 * rank,
        rows=rows,
        spans={"secs": rank},
    )


def over_ranks_case(context):
    from lsm.distributed.collectives import World

    return some(context.rank).over_ranks(World(context.rank, context.size))


def test_fields_are_summed_over_ranks(ranks):
    for rank, totals in enumerate(ranks.check(over_ranks_case)):
        expected = Some(
            loss_sum=8.0,
            loss_count=18,
            num_stopping=1,
            num_correct=12,
            rows={"hits": 6.0, "misses": 60.0},
            spans={"secs": rank},
        )
        assert totals == expected
        assert type(totals.loss_count) is int
        assert totals.loss == 8.0 / 18


def test_a_position_adds_all_but_the_loss_by_name():
    position = Position(epoch=1)
    for rank in (1, 2):
        position.add(some(rank))
    assert (position.loss_sum, position.loss_count) == (4.0, 9)
    assert position.sums == {"num_correct": 6, "hits": 3, "misses": 30, "secs": 3}
    position.start_epoch(2)
    assert position == Position(epoch=2)
