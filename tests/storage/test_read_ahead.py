"""How far reads run ahead: the paper's model by hand, and decisions in a plain simulation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm.storage.read_ahead import AccessModel, Decision, InFlight, ReadAhead, company

OPTANE = AccessModel(peak_iops=1.5e6, overhead_secs=(25 + 11 + 5) * 1e-6)


def test_the_model_is_the_papers_two_equations():
    """N = IOPS x (Ti + Ts + Tt) x N_ssd with Ts = N / (N_ssd x peak), for IOPS = 95% of peak."""
    for drives in (1, 2):
        model = AccessModel(1e6, 100e-6, drives)
        accesses = model.accesses(0.95)
        steady_secs = accesses / (drives * 1e6)
        assert accesses == pytest.approx(0.95e6 * (100e-6 + steady_secs) * drives)
    assert AccessModel(1e6, 100e-6).accesses(0.95) == pytest.approx(1900)  # 0.95 / 0.05 x 100
    assert AccessModel(1e6, 100e-6, 2).accesses(0.95) == pytest.approx(3800)
    assert AccessModel(1e6, 100e-6).accesses(0) == 0


def test_the_papers_number_from_the_papers_constants():
    """GIDS, 4.2: 812 accesses for 95% of an Optane's 1.5M IOPS, with latencies of 11, 25 and 5 us.

    Equations 2 and 3 give 1,168 for these; 812 of them reach 93% of the peak by the same equations.
    The printed number is met exactly by 25 + 5 us, without the SSD's own 11, if the share is taken
    twice: 0.95 x 855. We keep to the equations, which ask for more. (1,024 were measured.)
    """
    assert round(OPTANE.accesses(0.95)) in (1168, 1169)
    assert OPTANE.share(812) == pytest.approx(0.93, abs=0.001)
    assert OPTANE.share(1024) == pytest.approx(0.943, abs=0.001)
    assert int(0.95 * AccessModel(1.5e6, 30e-6).accesses(0.95)) == 812


@given(share=st.floats(0, 0.999), peak=st.floats(1, 1e8), secs=st.floats(1e-7, 1))
def test_share_and_accesses_are_inverse(share, peak, secs):
    model = AccessModel(peak, secs)
    assert model.share(model.accesses(share)) == pytest.approx(share)
    assert model.iops(model.accesses(share)) == pytest.approx(share * peak)


@pytest.mark.parametrize("share", [-0.5, 1, float("nan")])
def test_the_whole_peak_and_less_than_nothing_are_no_shares(share):
    with pytest.raises(ValueError, match=f"share: expected 0 <= share < 1, got {share}"):
        OPTANE.accesses(share)


ROOM = 1000
AHEAD = ReadAhead(iterations=3, max_iterations=8, accesses=100)


def flight(iterations, ready=0, row_bytes=0, reads=0):
    return InFlight(iterations, ready, row_bytes, reads)


@pytest.mark.parametrize(
    ("in_flight", "next_bytes", "expected"),
    [
        (flight(0), 5 * ROOM, "START"),  # alone, an iteration may exceed the staging memory
        (flight(1, row_bytes=600), 401, "WAIT_FOR_TRAINING"),
        (flight(1, row_bytes=600), 400, "START"),
        (flight(2, ready=2, reads=500), 1, "START"),  # fewer than three, whatever the drive does
        (flight(3, reads=99), 1, "START"),
        (flight(3, reads=100), 1, "WAIT_FOR_DRIVE"),
        (flight(7, reads=99), 1, "START"),
        (flight(8, reads=0), 1, "WAIT_FOR_TRAINING"),
        (flight(5, ready=2, reads=0), 1, "START"),
        (flight(5, ready=3, reads=0), 1, "WAIT_FOR_TRAINING"),  # nothing but training is waited for
        (flight(7, ready=2, row_bytes=999), 2, "WAIT_FOR_TRAINING"),
    ],
)
def test_decisions(in_flight, next_bytes, expected):
    assert AHEAD.decide(in_flight, next_bytes, ROOM) is Decision[expected]


def test_iterations_worth_reading_together_do_not_wait_for_the_device():
    ahead = ReadAhead(3, 8, accesses=100, merges=True)
    assert ahead.decide(flight(5, ready=2, reads=10**6), 1, ROOM) is Decision.START
    assert ahead.decide(flight(8, ready=2), 1, ROOM) is Decision.WAIT_FOR_TRAINING
    assert ahead.decide(flight(5, row_bytes=ROOM), 1, ROOM) is Decision.WAIT_FOR_TRAINING


def test_the_drive_waits_once_half_of_those_in_flight_are_ready():
    ahead = ReadAhead(iterations=2, max_iterations=64, accesses=100, merges=True)
    for in_flight in (4, 9, 20, 63):
        half = in_flight // 2
        assert ahead.decide(flight(in_flight, half - 1), 1, ROOM) is Decision.START
        assert ahead.decide(flight(in_flight, half), 1, ROOM) is Decision.WAIT_FOR_TRAINING


def test_a_fixed_depth_is_kept_whatever_the_device_does():
    fixed = ReadAhead.fixed(4)
    for reads in (0, 10**6):
        decisions = [fixed.decide(flight(n, n, 0, reads), 1, ROOM) for n in range(6)]
        assert decisions == [Decision.START] * 4 + [Decision.WAIT_FOR_TRAINING] * 2


def simulate(ahead, sizes, reads, staging_bytes, drive_reads):
    """The most iterations, bytes and reads in flight when every iteration takes ``sizes`` bytes and
    ``reads`` accesses, the drive does ``drive_reads`` of them a turn, in order, and training
    takes the oldest iteration as soon as it is there."""
    todo, in_flight, most, turns = list(zip(sizes, reads, strict=True)), [], [0, 0, 0], 0
    while todo or in_flight:
        turns += 1
        assert turns < 10_000, "nothing moves"
        while todo:
            state = InFlight(
                iterations=len(in_flight),
                ready=sum(left == 0 for _, left in in_flight),
                row_bytes=sum(size for size, _ in in_flight),
                reads=sum(left for _, left in in_flight),
            )
            if ahead.decide(state, todo[0][0], staging_bytes) is not Decision.START:
                break
            in_flight.append(list(todo.pop(0)))
            seen = (len(in_flight), *(sum(values) for values in zip(*in_flight, strict=True)))
            most = [max(pair) for pair in zip(most, seen, strict=True)]
        budget = drive_reads
        for each in in_flight:
            done = min(budget, each[1])
            each[1] -= done
            budget -= done
        if in_flight and in_flight[0][1] == 0:
            in_flight.pop(0)
    return most


@given(
    sizes=st.lists(st.integers(0, 700), min_size=1, max_size=60),
    iterations=st.integers(1, 4),
    accesses=st.integers(0, 300),
    merges=st.booleans(),
    data=st.data(),
)
def test_everything_moves_within_bounds(sizes, iterations, accesses, merges, data):
    """Whatever iterations need, none at all or more than fits: all are read, one at least is always
    on its way, and more than one never take more than the staging memory."""
    reads = [data.draw(st.integers(0, size)) for size in sizes]
    ahead = ReadAhead(iterations, iterations + 8, accesses, merges)
    most = simulate(ahead, sizes, reads, 500, drive_reads=40)
    assert 1 <= most[0] <= iterations + 8
    assert most[1] <= max(500, *sizes)
    if not merges and iterations == 1:  # the last one started takes reads past the threshold
        assert most[2] <= max(0, accesses - 1) + max(reads)


def test_small_iterations_add_up_to_the_accesses_and_large_ones_do_not_gather():
    """12 reads each: 9 are needed for 100 outstanding. 500 each: one has more than that already."""
    ahead = ReadAhead(1, 64, accesses=100)
    assert simulate(ahead, [1] * 200, [12] * 200, 10**6, drive_reads=6)[0] == 9
    assert simulate(ahead, [1] * 50, [500] * 50, 10**6, drive_reads=50)[0] == 2


def test_half_of_those_in_flight_are_read_together():
    assert [company(n) for n in (1, 2, 3, 4, 9, 64)] == [1, 1, 1, 2, 4, 32]


def test_bounds_are_checked():
    with pytest.raises(ValueError, match=r"iterations: expected 1 to max_iterations \(3\), got 4"):
        ReadAhead(4, 3)
    with pytest.raises(ValueError, match="got 0"):
        ReadAhead(0, 3)
