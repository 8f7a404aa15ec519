"""Orders of partitions: every bucket once, loads that training hides, and few states."""

import json
from itertools import combinations

import pytest

from lsm import native
from lsm.embed.orders import best
from lsm.embed.orders.order import NAMES, OrderShape, make_order
from lsm.embed.orders.turns import loads_of, states_of

PREFETCHING = ("best", "legend", "random")


def pairs(count):
    return count * (count - 1) // 2


def replay(order):
    """Follows the loads slot by slot; checks that the states are those that the loads make."""
    held = [set(state) for state in order.states[0]]
    loads = {(load.step, load.rank): load for load in order.loads}
    assert len(loads) == len(order.loads)
    for step, ranks in enumerate(order.states):
        assert [set(state) for state in ranks] == held
        everywhere = [p for state in ranks for p in state]
        assert len(set(everywhere)) == len(everywhere)  # buffers are disjoint
        assert set(everywhere) <= set(range(order.shape.partitions))
        for rank in range(order.shape.ranks):
            load = loads.get((step, rank))
            if load is not None:
                assert load.evicted in held[rank]
                assert load.loaded not in everywhere
                held[rank] = held[rank] - {load.evicted} | {load.loaded}
    assert max((load.step for load in order.loads), default=-1) < len(order.states) - 1


def check_every_bucket_once(order):
    n = order.shape.partitions
    trained = []
    for states, planned in zip(order.states, order.buckets, strict=True):
        for state, buckets in zip(states, planned, strict=True):
            assert all(i in state and j in state for i, j in buckets)
            trained += buckets
    assert sorted(trained) == [(i, j) for i in range(n) for j in range(n)]


def check_newest_stays(order):
    newest = {}
    for load in order.loads:
        assert load.evicted != newest.get(load.rank), load
        newest[load.rank] = load.loaded


def check_loads_overlap(order):
    """While a load runs, its rank trains a bucket of neither partition, after all buckets of the
    partition that leaves."""
    for load in order.loads:
        buckets = order.buckets[load.step][load.rank]
        meanwhile = [load.evicted not in bucket for bucket in buckets]
        assert meanwhile == sorted(meanwhile)
        assert any(meanwhile), load
        assert all(load.loaded not in bucket for bucket in buckets)


@pytest.mark.parametrize("partitions", range(4, 33))
@pytest.mark.parametrize("name", NAMES)
def test_properties(name, partitions):
    order = make_order(name, partitions)
    replay(order)
    check_every_bucket_once(order)
    if name in PREFETCHING:
        check_newest_stays(order)
        check_loads_overlap(order)
        assert order.idle_loads == 0
    assert len(order.states) >= order.shape.lower_bound


@pytest.mark.parametrize("partitions", [4, 5, *range(7, 18)])
def test_best_meets_the_lower_bound(partitions):
    order = make_order("best", partitions)
    assert len(order.states) == 1 + -(-(pairs(partitions) - 3) // 2)


@pytest.mark.parametrize("partitions", range(4, 33))
def test_best_has_no_more_states_than_other_orders_that_prefetch(partitions):
    best = len(make_order("best", partitions).states)
    others = [len(make_order(name, partitions).states) for name in ("legend", "random")]
    assert best <= min(others)
    # BETA prefetches nothing, which makes it an easier aim.
    assert best <= len(make_order("beta", partitions).states) + 2


@pytest.mark.parametrize(
    ("partitions", "legend", "beta"),
    [(6, 8, 8), (8, 16, 15), (10, 24, 24), (12, 37, 35), (14, 50, 48), (16, 66, 63)],
)
def test_published_orders_have_the_published_sizes(partitions, legend, beta):
    assert len(make_order("legend", partitions).states) == legend
    assert len(make_order("beta", partitions).states) == beta


@pytest.mark.parametrize(
    ("partitions", "ranks", "steps"), [(8, 2, 8), (12, 2, 16), (16, 2, 30), (16, 4, 17)]
)
def test_several_ranks(partitions, ranks, steps):
    order = make_order("best", partitions, 3, ranks)
    replay(order)
    check_every_bucket_once(order)
    check_newest_stays(order)
    check_loads_overlap(order)
    assert len(order.states) - 1 <= steps


@pytest.mark.parametrize("name", ["best", "random"])
@pytest.mark.parametrize(
    ("partitions", "buffer", "ranks"),
    # Of several ranks: also with as few partitions as they can do with, in larger buffers.
    [(9, 3, 2), (11, 4, 1), (10, 4, 2), (9, 5, 1), (24, 3, 6), (20, 4, 4), (18, 8, 2), (33, 7, 4)],
)
def test_shapes_whose_orders_are_not_carried(name, partitions, buffer, ranks):
    order = make_order(name, partitions, buffer, ranks)
    replay(order)
    check_every_bucket_once(order)
    check_newest_stays(order)
    check_loads_overlap(order)


@pytest.mark.parametrize("key", json.loads(best.CARRIED_ENDS.read_text()))
def test_an_order_is_found_again_by_one_descent(key, monkeypatch):
    """It brings each pair of partitions together once at least, and is as long as the file says."""
    shape = OrderShape(*map(int, key.split(",")))
    descents, native_search = [], native.search_order

    def counted(**arguments):
        descents.append(arguments["restarts"])
        return native_search(**arguments)

    monkeypatch.setattr(native, "search_order", counted)
    turns = best.best_turns(shape)
    assert descents == [1]
    covered = set()
    for step in states_of(shape, turns):
        assert len({p for state in step for p in state}) == shape.ranks * shape.buffer
        covered.update(pair for state in step for pair in combinations(sorted(state), 2))
    assert covered == set(combinations(range(shape.partitions), 2))
    newest = {}
    for load in loads_of(shape, turns):
        assert load.evicted != newest.get(load.rank)
        newest[load.rank] = load.loaded
    extra, _ = json.loads(best.CARRIED_ENDS.read_text())[key]
    assert len(states_of(shape, turns)) <= shape.lower_bound + extra


def searched(shape):
    """The turns of a plain search: fifty restarts for each number of steps that is tried."""
    too_few, extra, nodes = -1, 0, 1000 * max(1, shape.partitions // 8)
    while (found := best.search(shape, extra, 50, nodes)) is None:
        too_few, extra = extra, max(1, 2 * extra)
    while extra - too_few > 1:
        middle = (too_few + extra) // 2
        fewer = best.search(shape, middle, 50, 1000)
        if fewer is None:
            too_few = middle
        else:
            extra, found = middle, fewer
    return found


@pytest.mark.parametrize(
    "shape",
    [
        *(OrderShape(8, 4), OrderShape(12, 6), OrderShape(20, 3, 2), OrderShape(33, 3)),
        pytest.param(OrderShape(64, 3), marks=pytest.mark.slow),
        pytest.param(OrderShape(48, 4), marks=pytest.mark.slow),
        OrderShape(9, 3, 2),  # in no file
    ],
)
def test_the_order_is_that_of_the_search(shape):
    assert best.best_turns(shape) == searched(shape)


@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_partitions_that_all_fit_take_one_state(name, partitions):
    order = make_order(name, partitions)
    assert order.states == ((tuple(range(partitions)),),)
    assert order.loads == ()
    check_every_bucket_once(order)


def test_beta_cannot_prefetch():
    newest = None
    breaches = 0
    for load in make_order("beta", 8).loads:
        breaches += load.evicted == newest
        newest = load.loaded
    assert breaches > 0


def test_random_orders_follow_the_seed():
    def states(seed):
        return make_order("random", 10, seed=seed).states

    assert states(1) == states(1)
    assert states(1) != states(2)


def test_the_search_ends_without_an_order_where_there_is_none():
    # Six partitions have no order of 7 states, which the bound would allow.
    found = native.search_order(
        partitions=6, buffer=3, ranks=1, waste=0, seed=0, restarts=50, nodes=10**6
    )
    assert found is None
    assert len(make_order("best", 6).states) == OrderShape(6, 3).lower_bound + 1


def test_the_search_keeps_its_limit_of_waste():
    shape = {"partitions": 9, "buffer": 4, "ranks": 1, "seed": 3, "restarts": 200, "nodes": 2000}
    turns = native.search_order(waste=6, **shape)
    covered = set(combinations(range(4), 2))
    held, waste = [0, 1, 2, 3], 0
    for slot, partition in turns:
        held[slot] = partition
        new = {tuple(sorted((partition, p))) for p in held if p != partition} - covered
        covered |= new
        waste += 3 - len(new)
    assert len(covered) == pairs(9)
    assert waste <= 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("optimal", 8), "embed.order: expected one of best, legend, beta, random, got 'optimal'"),
        (("best", 8, 2), "embed.buffer: expected at least 3, got 2"),
        (("best", 0), "embed.partitions: expected 1 to 128, got 0"),
        (("best", 129), "embed.partitions: expected 1 to 128, got 129"),
        (("best", 6, 3, 2), "expected at least 8 for 2 ranks and embed.buffer = 3"),
        (("legend", 8, 3, 2), "embed.order: legend is defined for one rank, got 2"),
        (("beta", 8, 3, 2), "embed.order: beta is defined for one rank, got 2"),
        (("legend", 8, 4), "legend is defined for embed.buffer = 3, got 4; use best"),
    ],
)
def test_shapes_without_an_order(arguments, message):
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        make_order(*arguments)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("best", "best.search", lambda *_: None, "found no order for 9 partitions .*=random"),
        ("random", "random_order._ATTEMPTS", 0, "9 partitions in buffers of 3 on 2 .*=best"),
    ],
)
def test_an_order_that_is_not_found_is_an_error(monkeypatch, name, place, value, message):
    monkeypatch.setattr(f"lsm.embed.orders.{place}", value)
    with pytest.raises(ValueError, match=rf"^embed\.order: .*{message}"):
        make_order(name, 9, 3, 2)
