"""The steps of a run: every bucket once per epoch, and every move possible."""

from collections import Counter
from itertools import product

import pytest

from lsm.embed.orders.itinerary import Itinerary
from lsm.embed.orders.order import make_order

SHAPES = [
    ("best", 1, 3, 1),
    ("best", 3, 3, 1),
    ("best", 4, 3, 1),
    ("best", 8, 3, 1),
    ("best", 8, 4, 1),
    ("legend", 8, 3, 1),
    ("beta", 8, 3, 1),
    ("random", 7, 3, 1),
    ("best", 8, 3, 2),
    ("random", 12, 3, 2),
    ("best", 16, 3, 4),
]
EPOCHS = 4


@pytest.fixture(params=SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def order(request):
    name, partitions, buffer, ranks = request.param
    return make_order(name, partitions, buffer, ranks)


def all_steps(order, seed=0, rounds=1):
    """By epoch and number: the step of every rank."""
    itineraries = [Itinerary(order, rank, seed, rounds) for rank in range(order.shape.ranks)]
    for epoch in range(EPOCHS):
        yield [list(steps) for steps in zip(*(i.epoch(epoch) for i in itineraries), strict=True)]


@pytest.mark.parametrize("rounds", [1, 3])
def test_every_bucket_is_trained_once_per_round_where_it_is_resident(order, rounds):
    n = order.shape.partitions
    for steps in all_steps(order, rounds=rounds):
        buckets = []
        for number, ranks in enumerate(steps):
            for step in ranks:
                assert step.number == number
                buckets += [(step.round, bucket) for bucket in step.buckets]
                assert {p for bucket in step.buckets for p in bucket} <= set(step.frames)
                assert step.trained == tuple(other.buckets for other in ranks)
                assert [set(state) for state in step.residents] == [set(s.frames) for s in ranks]
        every = [(k, (i, j)) for k in range(rounds) for i in range(n) for j in range(n)]
        assert sorted(buckets) == every


@pytest.mark.parametrize("rounds", [1, 2])
def test_frames_hold_what_was_moved_there(order, rounds):
    """A model of every rank's frames, which only the moves change, over all epochs."""
    held = None
    for steps in all_steps(order, rounds=rounds):
        for ranks in steps:
            if held is None:
                held = [{frame: p for p, frame in step.frames.items()} for step in ranks]
            on_disk = set(range(order.shape.partitions))
            for mine, step in zip(held, ranks, strict=True):
                assert {p: mine[frame] for p, frame in step.frames.items()} == {
                    p: p for p in step.frames
                }
                assert step.spare not in step.frames.values()
                on_disk -= set(step.frames)
                if step.written is not None:
                    assert mine.pop(step.spare) == step.written
                assert step.spare not in mine
            written = {step.written for step in ranks} - {None}
            assert written == set(ranks[0].all_written)
            for mine, step in zip(held, ranks, strict=True):
                assert (step.loaded is None) == (step.leaves is None)
                if step.loaded is not None:
                    assert step.loaded in on_disk
                    assert step.leaves in step.frames
                    mine[step.spare] = step.loaded


# beta promises nothing.
@pytest.mark.parametrize("order", [s for s in SHAPES if s[0] != "beta"], indirect=True, ids=str)
def test_a_partition_just_loaded_does_not_leave_next(order):
    newest = [None] * order.shape.ranks
    for steps in all_steps(order):
        for ranks in steps:
            for rank, step in enumerate(ranks):
                if step.loaded is not None:
                    assert step.leaves != newest[rank]
                    newest[rank] = step.loaded


def test_names_change_from_epoch_to_epoch_and_with_the_seed():
    order = make_order("best", 8)
    epochs = [[step.buckets for (step,) in steps] for steps in all_steps(order)]
    assert epochs[1] != epochs[2] != epochs[3]
    other = [[step.buckets for (step,) in steps] for steps in all_steps(order, seed=1)]
    assert epochs[1] != other[1]
    assert epochs == [[step.buckets for (step,) in steps] for steps in all_steps(order)]


def test_a_run_that_continues_walks_the_same_steps():
    order = make_order("best", 8)
    whole, later = Itinerary(order, 0, 5), Itinerary(order, 0, 5)
    for epoch in range(3):
        steps = whole.epoch(epoch)
    assert later.epoch(2) == steps


@pytest.mark.parametrize("shape", [("best", 8, 3, 1), ("best", 8, 4, 1), ("best", 8, 3, 2)])
def test_a_bucket_meets_the_other_partitions_equally_often(shape):
    """Those of the buffer, drawn from all but the bucket's own, as ``partition_shift`` assumes."""
    _, partitions, buffer, ranks = shape
    itineraries = [Itinerary(make_order(*shape), rank, 0, rounds=4) for rank in range(ranks)]
    epochs = 60
    met = Counter(
        (bucket, partition)
        for epoch in range(epochs)
        for itinerary in itineraries
        for step in itinerary.epoch(epoch)
        for bucket, partition in product(step.buckets, step.frames)
    )
    rounds = 4 * epochs
    for bucket, partition in product(product(range(partitions), repeat=2), range(partitions)):
        own = set(bucket)
        if partition in own:
            assert met[bucket, partition] == rounds
        else:
            share = (buffer - len(own)) / (partitions - len(own))
            deviation = (share * (1 - share) * rounds) ** 0.5
            assert abs(met[bucket, partition] - share * rounds) < 5 * deviation
