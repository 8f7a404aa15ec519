"""The room for rows that are requested ahead: which ones count as ready, and how often they are
asked."""

import random
from types import SimpleNamespace

import pytest

from lsm.loader.rows_in_flight import RowsInFlight, RunAhead
from lsm.storage.read_ahead import Decision


class Arrivals:
    """Pending rows whose arrival is set by hand."""

    def __init__(self, num_bytes):
        self.num_bytes, self.has_arrived, self.looks = num_bytes, False, 0

    @property
    def arrived(self):
        self.looks += 1
        return self.has_arrived


class Decisions:
    """A ReadAhead that starts everything, and records the flights that it was asked about."""

    accesses = 0

    def __init__(self):
        self.seen = []

    def decide(self, flight, _next_bytes, _staging_bytes):
        self.seen.append(flight)
        return Decision.START


def flight_of(decisions, completed_ahead=0):
    reads = SimpleNamespace(outstanding_reads=3)
    source = SimpleNamespace(reads=reads, completed_ahead=completed_ahead)
    return RowsInFlight(source, RunAhead(decisions, staging_bytes=1000))


@pytest.mark.parametrize("seed", range(5))
def test_ready_iterations_are_those_that_have_arrived(seed):
    """Whatever the order of arrivals and takes."""
    draw, decisions, held = random.Random(seed), Decisions(), []
    flight = flight_of(decisions)
    for _ in range(200):
        move = draw.choice(["add", "arrive", "take", "ask"])
        if move == "add":
            held.append(Arrivals(draw.randrange(100)))
            assert flight.add(held[-1]) == (len(held), 3)
        elif move == "arrive" and held:
            draw.choice(held).has_arrived = True
        elif move == "take" and held:
            held.pop(0).has_arrived = True
            flight.take()
        else:
            flight.await_room(7)
            seen = decisions.seen[-1]
            assert seen.iterations == len(flight) == len(held)
            assert seen.ready == sum(rows.has_arrived for rows in held)
            assert seen.row_bytes == flight.row_bytes == sum(rows.num_bytes for rows in held)
            assert seen.reads == 3


def test_rows_that_have_arrived_are_asked_no_more():
    flight, rows = flight_of(Decisions()), [Arrivals(1) for _ in range(4)]
    for each in rows:
        flight.add(each)
    rows[2].has_arrived = True
    for _ in range(10):
        flight.await_room(1)
    assert [each.looks for each in rows] == [10, 10, 1, 10]
    flight.take()
    flight.await_room(1)
    assert [each.looks for each in rows] == [10, 11, 1, 11]
