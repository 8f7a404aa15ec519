"""A cache changes the reads from storage, and never a delivered row."""

import errno
import gc
import time
from collections import Counter
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lsm
import lsm.cache.planner
from lsm import native
from lsm.cache.planner import ONLINE_POLICIES
from lsm.cache.tier_sizes import TierSizes, hottest
from lsm.core.counters import COUNTERS
from lsm.distributed import machine_share
from lsm.features.cached import CachedFeatureLoader
from lsm.features.open import open_features
from lsm.loader.pipeline import Pipeline
from lsm.loader.prepared import IdsAlone
from lsm.loader.rows_in_flight import RunAhead
from lsm.storage.options import StorageOptions
from lsm.storage.read_ahead import ReadAhead
from reference.hashing import mix64
from support.cached_features import (
    NUM_NODES,
    ROW_BYTES,
    batches,
    deliver,
    open_loader,
    options,
)

ENGINES = ("memory", "posix", "io_uring")
POSIX = StorageOptions(engine="posix")
TIERS = ("hits", "static_hits", "victim_hits", "constant_hits", "misses")
# One set; less than a batch; more than a batch; more than the graph.
SIZES = (8 * ROW_BYTES, 40 * ROW_BYTES, 200 * ROW_BYTES, 1000 * ROW_BYTES)


@pytest.fixture(scope="module")
def store(row_store):
    return row_store


def check(loader, requests, rows, ahead: int = 3) -> dict[str, float]:
    """Every row right, every row counted once; the sums of the counters."""
    sums, before = {}, loader.stats()
    for ids, pending, got in deliver(loader, requests, ahead):
        assert np.array_equal(got, rows[ids.numpy()])
        assert pending.stats["requests"] == len(ids)
        assert sum(pending.stats[tier] for tier in TIERS) == len(ids)
        for name, value in pending.stats.items():
            sums[name] = sums.get(name, 0) + value
    assert loader.stats()["cache_misses"] - before["cache_misses"] == sums["misses"]
    return sums


def test_a_feature_loader_with_a_cache_keeps_rows(store, rows):
    requests = batches(12)
    with open_features(store, cache=options(), storage=POSIX, num_threads=2) as loader:
        assert type(loader) is CachedFeatureLoader
        assert loader.window == 6
        sums = check(loader, requests, rows)
    with open_features(store, storage=POSIX) as plain:
        assert type(plain) is lsm.FeatureLoader
        for ids in requests:
            assert np.array_equal(plain.fetch(ids), rows[ids.numpy()])
    assert sums["hits"] > 0


def test_rows_in_gpu_memory_need_a_cache(store):
    storage = StorageOptions(engine="nvme", read_to="gpu")
    with pytest.raises(ValueError, match=r"^storage\.read_to=gpu: expected a cache.*read_to=host"):
        open_features(store, storage=storage)


@pytest.mark.parametrize("policy", ONLINE_POLICIES)
@pytest.mark.parametrize("num_bytes", SIZES, ids=["set", "small", "middle", "all"])
@pytest.mark.parametrize("victim_mode", ["none", "queues", "pool"])
def test_rows_are_those_of_the_file(store, rows, policy, num_bytes, victim_mode):
    requests = batches(20)
    cache = {"policy": policy, "bytes": num_bytes, "victim_mode": victim_mode}
    with open_loader(store, **cache, victim_bytes=60 * ROW_BYTES, score="hot") as loader:
        sums = check(loader, requests, rows)
        assert loader.stats()["rows"] == sums["misses"]
    distinct = len(torch.cat(requests).unique())
    assert distinct <= sums["misses"] < sums["requests"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_every_engine_and_every_tier(store, rows, engine, num_threads):
    tiers = {"victim_mode": "pool", "victim_bytes": 30 * ROW_BYTES, "score": "hot"}
    tiers |= {"constant_bytes": 20 * ROW_BYTES, "static_bytes": 10 * ROW_BYTES}
    with open_loader(store, engine, num_threads=num_threads, **tiers) as loader:
        sums = check(loader, batches(30), rows)
        assert all(sums[tier] > 0 for tier in TIERS)
        # Static and constant rows were read at the start.
        assert loader.stats()["rows"] == sums["misses"] + 30


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_cache_any_requests(store, rows, data):
    draw = data.draw
    cache = {
        "policy": draw(st.sampled_from(ONLINE_POLICIES)),
        "bytes": draw(st.integers(1, 100)) * ROW_BYTES,
        "ways": draw(st.sampled_from([1, 2, 8, 32])),
        "window": draw(st.integers(1, 9)),
        "victim_mode": draw(st.sampled_from(["none", "queues", "pool"])),
        "victim_bytes": draw(st.integers(9, 60)) * ROW_BYTES,
        "constant_bytes": draw(st.integers(0, 30)) * ROW_BYTES,
        "static_bytes": draw(st.integers(0, 30)) * ROW_BYTES,
        "score": "hot",
    }
    requests = batches(12, draw(st.integers(0, 150)), draw(st.integers(0, 99)))
    with open_loader(store, num_threads=draw(st.sampled_from([1, 2])), **cache) as loader:
        check(loader, requests, rows, ahead=draw(st.integers(0, 5)))


@pytest.mark.parametrize("mode", ["queues", "pool"])
def test_rows_are_prefetched_from_the_victim_buffer(store, rows, mode):
    """Between two batches there is time; that it is used shows in a counter, not in a row."""
    requests = batches(30)

    def prefetched(ahead, pause_secs):
        cache = {"victim_mode": mode, "victim_bytes": 90 * ROW_BYTES, "victim_prefetch": ahead}
        with open_loader(store, **cache) as loader:
            victim_hits = 0
            for ids, pending, got in deliver(loader, requests):
                assert np.array_equal(got, rows[ids.numpy()])
                victim_hits += pending.stats["victim_hits"]
                time.sleep(pause_secs)
            count = loader.stats()["cache_victim_prefetched"]
        assert 0 < victim_hits >= count
        return count

    assert prefetched(0, 0.002) == 0
    # A busy machine may give the thread no turn in so short a time.
    assert any(prefetched(4, pause_secs) > 0 for pause_secs in (0.002, 0.02, 0.2, 1.0))


def test_fetch_alone_needs_no_announcements(store, rows):
    with open_loader(store, bytes=1000 * ROW_BYTES) as loader:
        for _ in range(2):
            for ids in ([5, 0, 499, 5, 17], [], [17, 17], range(NUM_NODES)):
                ids = torch.tensor(ids, dtype=torch.int64)
                assert np.array_equal(loader.fetch(ids), rows[ids.numpy()])
        assert loader.stats()["rows"] == NUM_NODES  # each once


def test_rows_may_be_asked_for_in_any_order_or_not_at_all(store, rows):
    requests = batches(9)
    with open_loader(store) as loader:
        pending = [loader.prefetch(ids) for ids in requests]
        assert np.array_equal(pending[4].result(), rows[requests[4]])
        assert np.array_equal(pending[1].result(), rows[requests[1]])
        kept = pending[7]
        del pending
        gc.collect()
        assert np.array_equal(kept.result(), rows[requests[7]])
        assert np.array_equal(kept.result(), rows[requests[7]])  # again
        assert np.array_equal(loader.fetch(requests[0]), rows[requests[0]])
        assert loader.stats()["cache_requests"] == sum(map(len, requests)) + len(requests[0])


def test_the_cache_reads_less(store, rows):
    requests = batches(40)
    with open_loader(store, bytes=150 * ROW_BYTES, window=30) as loader:
        sums = check(loader, requests, rows)
        cached = loader.stats()["bytes_requested"]
    assert cached == sums["misses"] * ROW_BYTES
    assert cached < 0.6 * sums["requests"] * ROW_BYTES


@pytest.mark.parametrize("engine", ["posix", "io_uring"])
@pytest.mark.parametrize("nth", [0, 5, 30])
def test_a_read_error_surfaces_and_no_stale_row_follows(store, rows, engine, nth):
    with open_loader(store, engine) as loader:
        loader.storage.inject_fault(native.Fault.error, nth=nth, value=errno.EIO)
        requests = batches(40)
        with pytest.raises(OSError, match=r"features\.bin") as caught:
            check(loader, requests, rows)
        assert caught.value.errno == errno.EIO
        for call in (loader.fetch, loader.prefetch, loader.announce):
            with pytest.raises(RuntimeError, match=r"lost rows in an earlier failure .*features"):
                call(requests[0])
        loader.forget_announced()  # as a pipeline that closes; the rows stay lost
        with pytest.raises(RuntimeError, match=r"lost rows in an earlier failure"):
            loader.fetch(requests[0])
        assert loader.storage.stats()["errors"] == 1


def test_no_rows_follow_a_plan_that_failed(store, rows, monkeypatch):
    """Later plans may count on its moves."""
    requests = batches(3)
    with open_loader(store) as loader:
        assert np.array_equal(loader.fetch(requests[0]), rows[requests[0]])
        with monkeypatch.context() as patch:
            patch.setattr(loader.planner, "plan", Mock(side_effect=MemoryError("no room")))
            with pytest.raises(MemoryError, match="no room"):
                loader.prefetch(requests[1])
        with pytest.raises(RuntimeError, match=r"lost rows in an earlier failure \(no room\)"):
            loader.prefetch(requests[2])


def test_an_error_of_rows_that_nobody_took_reaches_the_next(store):
    one_by_one = StorageOptions(engine="posix", num_threads=1)
    with open_features(store, options(), one_by_one) as loader:
        loader.storage.inject_fault(native.Fault.error, value=errno.EIO)
        first, second = (loader.prefetch(ids) for ids in batches(2))
        with pytest.raises(OSError, match="features"):
            second.result()
        for pending in (first, second):
            with pytest.raises(RuntimeError, match="lost rows"):
                pending.result()


@pytest.mark.parametrize("engine", ["posix", "io_uring"])
def test_a_lost_read_is_a_time_out(store, engine):
    with open_loader(store, engine, timeout_secs=0.5) as loader:
        loader.storage.inject_fault(native.Fault.stall)
        with pytest.raises(TimeoutError, match=r"reading .* rows"):
            loader.fetch(batches(1)[0])
        with pytest.raises(RuntimeError, match="lost rows"):
            loader.fetch(batches(1)[0])


@pytest.mark.parametrize("engine", ["posix", "io_uring"])
def test_short_reads_continue(store, rows, engine):
    with open_loader(store, engine) as loader:
        loader.storage.inject_fault(native.Fault.short, nth=2, value=50)
        check(loader, batches(10), rows)
        assert loader.storage.stats()["short_reads"] == 1


def test_announced_batches_come_as_announced(store, rows):
    first, second, third = batches(3)
    with open_loader(store) as loader:
        for ids in (first, second):
            loader.announce(ids)
        with pytest.raises(ValueError, match=r"oldest batch that was announced, got 2 others"):
            loader.prefetch(torch.tensor([1, 2]))
        assert np.array_equal(loader.fetch(first.clone()), rows[first])
        with pytest.raises(ValueError, match="oldest batch"):
            loader.fetch(third)
        assert np.array_equal(loader.fetch(second), rows[second])
        assert np.array_equal(loader.fetch(third), rows[third])


def test_announced_batches_start_once_and_in_their_order(store, rows):
    requests = batches(4)
    with open_loader(store) as loader:
        first, second, third = (loader.announce(ids) for ids in requests[:3])
        with pytest.raises(RuntimeError, match="batches start in their order"):
            second.start()
        pending = first.start()
        with pytest.raises(RuntimeError, match="started before, or forgotten"):
            first.start()
        assert np.array_equal(second.start().result(), rows[requests[1]])
        assert np.array_equal(pending.result(), rows[requests[0]])
        loader.forget_announced()
        with pytest.raises(RuntimeError, match="started before, or forgotten"):
            third.start()
        assert np.array_equal(loader.announce(requests[3]).start().result(), rows[requests[3]])
    with open_features(store, storage=POSIX) as plain:
        first, second = (plain.announce(ids) for ids in requests[:2])
        assert np.array_equal(second.start().result(), rows[requests[1]])
        assert np.array_equal(first.start().result(), rows[requests[0]])


def test_what_was_announced_can_be_forgotten(store, rows):
    requests = batches(6)
    with open_loader(store) as loader:
        for ids in requests[:4]:
            loader.announce(ids)
        assert np.array_equal(loader.fetch(requests[0]), rows[requests[0]])
        dropped = loader.prefetch(requests[1])
        loader.forget_announced()
        with pytest.raises(RuntimeError, match="dropped"):
            dropped.result()
        check(loader, requests, rows)
        kept = loader.prefetch(requests[0])
        loader.forget_announced()  # nothing is announced, so nothing is forgotten
        assert np.array_equal(kept.result(), rows[requests[0]])


@pytest.mark.parametrize("bad", [-1, NUM_NODES, 2**40])
def test_an_id_out_of_range_does_no_harm(store, rows, bad):
    with open_loader(store) as loader:
        for call in (loader.fetch, loader.announce):
            with pytest.raises(ValueError, match=rf"ids in \[0, 500\), got {bad}"):
                call(torch.tensor([3, bad]))
        with pytest.raises(ValueError, match=r"\[N\] integers"):
            loader.fetch(torch.zeros(3))
        check(loader, batches(5), rows)


@pytest.mark.parametrize("policy", ["lru", "lookahead"])
def test_announced_batches_may_say_that_ids_repeat(store, rows, policy):
    requests = [torch.cat([ids, ids.flip(0), ids[:3]]) for ids in batches(8)]
    with open_loader(store, policy=policy) as loader:
        for ids in requests:
            pending = loader.announce(ids, repeats=True).start()
            assert np.array_equal(pending.result(), rows[ids])
            assert pending.stats["requests"] == len(ids.unique())
        loader.announce(requests[0], repeats=True)
        assert np.array_equal(loader.fetch(requests[0]), rows[requests[0]])


def test_announced_batches_have_no_repeats(store, rows):
    with open_loader(store) as loader:
        with pytest.raises(ValueError, match=r"distinct ids .* got 3"):
            loader.announce(torch.tensor([3, 4, 3]))
        check(loader, batches(5), rows)


def test_closing(store, rows):
    ids = batches(1)[0]
    with open_features(store, options(), storage=POSIX) as loader:
        got, pending = loader.fetch(ids), loader.prefetch(ids)
    assert np.array_equal(got, rows[ids.numpy()])
    for call in (lambda: loader.fetch(ids), pending.result, loader.storage.stats):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    loader.close()


def test_counters_are_those_of_the_planner():
    assert COUNTERS == lsm.cache.planner.COUNTERS


def test_the_hottest_rows():
    scores = torch.tensor([1.0, 5, 3, 5, 0])
    assert [ids.tolist() for ids in hottest(scores, 2, 1)] == [[1, 3], [2]]
    assert [ids.tolist() for ids in hottest(scores, 0, 9)] == [[], [1, 3, 2, 0, 4]]
    assert [ids.tolist() for ids in hottest(scores, 4, 9)] == [[1, 3, 2, 0], [4]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": "mru"}, r"cache\.policy: expected one of .*lookahead.*, got 'mru'"),
        ({"policy": "belady"}, r"cache\.policy: expected one of .*, got 'belady'"),
        ({"bytes": 0}, r"cache\.bytes: expected more than 0 bytes"),
        ({"policy": "none"}, r"cache\.policy: expected the policy of a cache, got 'none'"),
        ({"bytes": 99}, r"cache\.bytes: expected room for a row of 100 bytes, got 99"),
        ({"bytes": -1}, r"cache\.bytes: size: expected a number of bytes >= 0, got -1"),
        ({"bytes": 2**50}, r"cache\.bytes: .* of host memory are free"),
        (
            {"victim_mode": "pool", "victim_bytes": 2**50},
            r"cache\.victim\.bytes: .* of host memory are free",
        ),
        (
            {"victim_mode": "queues", "victim_bytes": 599},
            r"cache\.victim\.bytes: .* row of 100 bytes for each of 6 iterations .*, got 599",
        ),
        ({"victim_mode": "heap"}, r"cache\.victim\.mode: expected one of 'auto', .*, got 'heap'"),
        ({"window": 0}, r"cache\.window: expected at least 1, got 0"),
        ({"victim_prefetch": -1}, r"cache\.victim\.prefetch: expected at least 0, got -1"),
        ({"window": 65_536}, r"cache\.window: expected at most 65535, got 65536"),
        ({"static_bytes": 100}, r"cache\.static\.bytes: .* set cache\.score"),
        (
            {"constant_bytes": 2**50, "score": "hot"},
            r"cache\.constant\.bytes: .* of host memory are free",
        ),
    ],
)
def test_options_that_cannot_be(store, changes, message):
    with pytest.raises(ValueError, match=message):
        open_loader(store, **changes)


@pytest.mark.parametrize("num_ranks", [1, 4])
def test_the_ranks_of_a_machine_share_its_memory(monkeypatch, num_ranks):
    """Each rank's cache and victim buffer would fit alone."""
    monkeypatch.setattr(machine_share, "available_bytes", lambda: 4 * 3000 * ROW_BYTES)
    job = {"RANK": 1, "WORLD_SIZE": 8, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": num_ranks}
    for name, value in (job | {"MASTER_ADDR": "localhost", "MASTER_PORT": 1}).items():
        monkeypatch.setenv(name, str(value))
    cache = {"victim_mode": "pool", "victim_bytes": 1000 * ROW_BYTES}
    assert TierSizes.of(options(bytes=2000 * ROW_BYTES, **cache), ROW_BYTES).victim_slots == 1000
    too_large = options(bytes=2001 * ROW_BYTES, **cache)
    if num_ranks == 1:
        TierSizes.of(too_large, ROW_BYTES)
        return
    with pytest.raises(ValueError, match=r"cache\.bytes: .* are free for each of 4 ranks; make"):
        TierSizes.of(too_large, ROW_BYTES)


def test_bytes_become_rows_of_each_tier():
    cache = options(bytes=4096, ways=8, window=4, victim_mode="queues", victim_bytes=1000)
    tiers = TierSizes.of(cache, row_bytes=100)
    assert (tiers.planner.num_lines, tiers.planner.ways) == (40, 8)
    assert (tiers.planner.victim_rows, tiers.victim_slots) == (2, 8)
    one_set = TierSizes.of(options(bytes=500, ways=8), row_bytes=100)
    assert (one_set.planner.num_lines, one_set.planner.ways) == (5, 5)
    unused = TierSizes.of(options(policy="lru", window=100), row_bytes=100)
    assert unused.planner.window == 1


def test_sets_have_more_lines_in_host_memory_than_a_warp_has_threads():
    cache = options(bytes=100 * 640, ways="auto")
    assert TierSizes.of(cache, 100).planner.ways == 64
    assert TierSizes.of(cache, 100, in_gpu_memory=True).planner.ways == 32
    few = TierSizes.of(options(bytes=100 * 40, ways="auto"), 100).planner
    assert (few.num_lines, few.ways) == (40, 40)


@pytest.mark.parametrize(("num_nodes", "ways"), [(5, 32), (600, 32), (5000, 32), (600, 4)])
def test_lines_that_no_row_could_take_are_left_out(num_nodes, ways):
    """The graph fits as before: no set has more rows than ways."""
    tiers = TierSizes.of(options(bytes=100 * 20 * num_nodes * ways, ways=ways), row_bytes=100)
    usable = tiers.within(num_nodes)
    assert usable.planner.num_lines < tiers.planner.num_lines
    num_sets, rest = divmod(usable.planner.num_lines, ways)
    loads = Counter(mix64(node) % num_sets for node in range(num_nodes))
    assert rest == 0
    assert max(loads.values()) <= ways
    if ways == 32:  # or hardly more lines than that takes
        assert usable.planner.num_lines <= max(ways, 3.5 * num_nodes)
    replaced = {"num_lines": tiers.planner.num_lines}
    assert usable.planner.model_copy(update=replaced) == tiers.planner


@pytest.mark.parametrize("lines", [32, 600, 1184])
def test_lines_that_rows_might_want_are_kept(lines):
    """Up to twice the nodes, some set may need all of its ways."""
    tiers = TierSizes.of(options(bytes=100 * lines, ways=32), row_bytes=100)
    assert tiers.within(600) == tiers


@pytest.mark.parametrize("policy", ["lookahead", "random", "sieve"])
def test_a_cache_larger_than_the_graph_reads_every_row_once(store, rows, policy):
    requests = batches(12)
    with open_loader(store, policy=policy, bytes=64 << 20) as loader:
        assert loader.tiers.num_lines < 4 * NUM_NODES
        sums = check(loader, requests, rows)
    assert sums["misses"] == len(torch.cat(requests).unique())
    assert sums["bypasses"] == sums["evictions"] == 0


@pytest.mark.parametrize("victim_mode", ["none", "pool"])
def test_batches_read_ahead_take_room_for_what_is_read(store, rows, victim_mode):
    requests = batches(20)
    cache = {"bytes": 150 * ROW_BYTES, "victim_mode": victim_mode, "window": 20}
    cache |= {"victim_bytes": 90 * ROW_BYTES, "victim_prefetch": 2}
    with open_loader(store, **cache) as loader:
        for ids in requests:
            loader.announce(ids)
        pending = [loader.prefetch(ids) for ids in requests]
        # The batch that is due next is there as a whole, and those whose rows may be prefetched.
        num_whole = 3 if victim_mode == "pool" else 1
        for i, each in enumerate(pending):
            whole = len(requests[i]) * ROW_BYTES if i < num_whole else 0
            assert each.num_bytes == whole + each.stats["misses"] * ROW_BYTES
        for ids, each in zip(requests, pending, strict=True):
            assert np.array_equal(each.result(), rows[ids.numpy()])
            assert each.num_bytes == len(ids) * ROW_BYTES


def test_what_is_held_stays_within_the_staging(store, rows):
    """Complete batches take more memory than their reads."""
    requests = batches(40)
    largest = max(map(len, requests)) * ROW_BYTES
    with open_loader(store, bytes=400 * ROW_BYTES, window=10) as loader:
        for ids in requests[:4]:  # most of what comes is in memory then
            loader.fetch(ids)
        pipeline = Pipeline(
            requests.__getitem__,
            IdsAlone,
            loader,
            first=0,
            last=len(requests),
            policy=RunAhead(ReadAhead.fixed(39), 6 * largest, timeout_secs=20),
        )
        try:
            for loaded in pipeline:
                assert np.array_equal(loaded.x, rows[requests[loaded.iteration].numpy()])
                deadline = time.monotonic() + 20
                while loaded.iteration == 0 and len(pipeline._flight) <= 6:
                    assert time.monotonic() < deadline, "no more than whole batches have room"
                    time.sleep(0.001)
                # Whole ones have come since there was room for another: two, and the next.
                assert pipeline._flight.row_bytes <= 9 * largest
        finally:
            pipeline.close()
