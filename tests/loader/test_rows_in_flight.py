"""The room for rows that are requested ahead: which ones count as ready, how often they are asked,
and how many are completed."""

import random
import threading
from types import SimpleNamespace

import pytest

from lsm.loader.rows_in_flight import ClosedError, RowsInFlight, RunAhead
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


def test_each_batch_that_is_taken_lets_one_more_be_completed():
    """Beyond those that the source completes ahead."""
    ahead, total = 2, 5
    flight = flight_of(Decisions(), completed_ahead=ahead)
    completed, ends = threading.Semaphore(0), []

    def complete_all():
        try:
            while True:
                flight.await_completion()
                completed.release()
        except ClosedError as error:
            ends.append(error)

    thread = threading.Thread(target=complete_all, daemon=True)
    thread.start()
    for _ in range(total):
        flight.add(Arrivals(1))
    for _ in range(ahead):
        assert completed.acquire(timeout=30)
    for _ in range(total - ahead):
        assert not completed.acquire(timeout=0.2)
        flight.take()
        assert completed.acquire(timeout=30)
    assert not completed.acquire(timeout=0.2)
    flight.close()
    thread.join(timeout=30)
    assert len(ends) == 1


def test_the_drive_is_kept_busy_while_rows_wait_for_room():
    """Only if the policy counts accesses in flight."""
    for accesses, expected in ((0, []), (7, [7, 7])):
        decisions = iter([Decision.WAIT_FOR_TRAINING, Decision.WAIT_FOR_DRIVE, Decision.START])
        told = []
        reads = SimpleNamespace(outstanding_reads=3, keep_busy=lambda n, told=told: told.append(n))
        source = SimpleNamespace(reads=reads, completed_ahead=0)
        read_ahead = SimpleNamespace(
            accesses=accesses, decide=lambda *_, decisions=decisions: next(decisions)
        )
        RowsInFlight(source, RunAhead(read_ahead, staging_bytes=1000)).await_room(7)
        assert told == expected
