"""Rows of several sizes in caches that ranks share: they are those on storage, and a rank that
fails is named by all."""

import errno
import os
import signal
import time
from unittest import mock

import pytest
import torch

from lsm import native
from lsm.cache.planner import ONLINE_POLICIES as POLICIES
from lsm.distributed.watchdog import PeerError
from lsm.features.typed import open_feature_sets
from support.shared_sets import (
    WIDTHS,
    batches_of,
    epochs_case,
    loader_for,
    make_typed_store,
    open_sets,
    rows_case,
)

NUM_RANKS = 4
SIZES = (1, 2, 4)
ENGINES = ("posix", "io_uring", "memory")
VICTIMS = ("none", "pool", "queues")
COMM = ({}, {"mode": "partition-aware", "transport": "gloo", "owner": "stride"})
TIERS = ("hits", "static_hits", "victim_hits", "constant_hits", "misses", "duplicates")


@pytest.fixture(scope="module")
def typed_store(tmp_path_factory):
    return make_typed_store(tmp_path_factory.mktemp("typed") / "store")


def all_tiers(size, victim):
    return {
        "victim": {"mode": victim, "bytes": 24000 // size},
        "static": {"bytes": 3000 // size},
        "constant": {"bytes": 3000 // size},
    }


def check_rows(ranks, store, size, comm, engine, cache, *, gpu=False):
    answers = ranks.check(rows_case, store, size, comm, engine, cache, gpu)[:size]
    stats = [each for _, each in answers]
    for name in WIDTHS:
        asked = sum(delivered[name] for delivered, _ in answers)
        assert sum(each[f"cache_requests/{name}"] for each in stats) == asked
    unused = {"duplicates"} if size == 1 else set()
    if cache["victim"]["mode"] == "none":
        unused.add("victim_hits")
    for tier in TIERS:
        assert (sum(each[f"cache_{tier}"] for each in stats) == 0) == (tier in unused), tier
    return stats


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("size", SIZES)
def test_rows_are_those_on_storage(ranks, typed_store, size, policy):
    """Every policy meets every engine, mode of the victim buffer and way to share at some size."""
    number = POLICIES.index(policy)
    engine = ENGINES[(size + number) % 3]
    if engine == "io_uring" and native.io_uring_problem():
        engine = "posix"
    cache = {"policy": policy, **all_tiers(size, VICTIMS[(size + number // 3) % 3])}
    check_rows(ranks, typed_store, size, COMM[(size + number) % 2], engine, cache)


@pytest.mark.parametrize("transport", ["ipc", "gloo"])
@pytest.mark.parametrize("mode", ["shared", "partition-aware"])
def test_rows_in_the_memory_of_gpus_are_those_on_storage(ranks, typed_store, mode, transport):
    comm = {"mode": mode, "transport": transport}
    cache = {"policy": "lookahead", **all_tiers(2, "pool")}
    on_gpus = check_rows(ranks, typed_store, 2, comm, "posix", cache, gpu=True)
    on_hosts = check_rows(ranks, typed_store, 2, {"mode": mode}, "posix", cache)
    for name in ("requests", *TIERS):
        assert [each[f"cache_{name}"] for each in on_gpus] == [
            each[f"cache_{name}"] for each in on_hosts
        ]


def links_case(context, path):
    """The number of times that links between GPUs were sought, and the links of each set."""
    import lsm.comm.open

    sought = mock.Mock(side_effect=lsm.comm.open.find_links)
    with mock.patch.object(lsm.comm.open, "find_links", sought):
        _, sets = open_sets(context, path, 2, {"transport": "gloo"}, gpu=True)
    if sets is None:
        return None
    with sets:
        return sought.call_count, [each.rows.exchange.rows.links for each in sets.sets]


def test_all_sets_use_the_links_that_the_first_one_found(ranks, typed_store):
    """A communicator of NCCL for each of them would take GPU memory."""
    first, second = ranks.check(links_case, typed_store)[:2]
    assert first == (1, [{1: "gloo"}] * 3)
    assert second == (1, [{0: "gloo"}] * 3)


def division_case(context, path):
    """The lines of each set. Requests differ between ranks."""
    _, sets = open_sets(context, path, 2)
    if sets is None:
        return None
    lines = [each.rows.planner.config.num_lines for each in sets.sets]
    sets.close()
    return lines


def test_every_rank_divides_the_cache_alike(ranks, typed_store):
    first, second = ranks.check(division_case, typed_store)[:2]
    assert first == second


def table_case(context, path, table):
    """Requests that reach this rank, of three that each rank makes."""
    comm = {"owner": "table", "owner_table": table}
    store, sets = open_sets(context, path, 2, comm)
    if sets is None:
        return None
    space = store.node_space
    ids = [space.to_global(name, torch.arange(3)) for name in ("paper", "author", "venue")]
    announced = sets.announce(torch.cat(ids))
    announced.start().result()
    stats = sets.stats()
    sets.close()
    return stats["cache_requests"]


def test_a_table_of_owners_is_over_the_space_of_all_types(ranks, typed_store, tmp_path):
    import numpy as np

    from lsm.data.graph_store import GraphStore

    space = GraphStore.open(typed_store).node_space
    owners = np.zeros(space.num_nodes, np.uint8)
    owners[space.offsets["author"] : space.offsets["venue"]] = 1
    np.save(tmp_path / "owners.npy", owners)
    assert ranks.check(table_case, typed_store, tmp_path / "owners.npy")[:2] == [12, 6]


@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_epochs_may_be_left_early_by_all_ranks(ranks, typed_store, transport):
    hits = ranks.check(epochs_case, typed_store, [4, 1, 3, 2, 0, 4], {"transport": transport})
    assert all(count > 0 for count in hits)


@pytest.mark.parametrize("transport", ["shm", "gloo"])
@pytest.mark.parametrize(("prefetch", "idle_secs"), [((2, 2, 2), 0), ((5, 1, 1), 0.5)])
def test_a_rank_that_leaves_alone_is_an_error_of_the_others(
    few_ranks, typed_store, transport, prefetch, idle_secs
):
    """Also while it waits, far ahead, for ids of ranks that wait for its rows."""
    case = typed_store, [[1, 4, 4], 1], {"transport": transport}, prefetch, idle_secs
    answers = few_ranks.run(epochs_case, *case)
    for answer in answers[1:]:
        with pytest.raises(PeerError, match=r"rank \d left the epoch before it sent "):
            raise answer


def fault_case(context, path, number, transport):
    """A read of a set fails on rank 1. Returns the errors of the epoch, and of an announcement
    after it."""
    comm = {"transport": transport}
    store, sets = open_sets(context, path, context.size, comm, policy="lru", bytes=3000)
    if context.rank == 1:
        storage = sets.sets[number].rows.storage
        storage.inject_fault(native.Fault.error, nth=1, value=errno.EIO)
    errors = []
    for run in (
        lambda: list(loader_for(store, context, sets).iterate(0)),
        lambda: sets.announce(batches_of(store, 1)[1]),
    ):
        try:
            run()
        except (OSError, RuntimeError) as error:
            errors.append(error)
    sets.close()
    return errors


@pytest.mark.parametrize(("transport", "number"), [("shm", 2), ("gloo", 0), ("gloo", 2)])
def test_a_read_error_of_one_set_surfaces_on_every_rank(few_ranks, typed_store, transport, number):
    answers = few_ranks.check(fault_case, typed_store, number, transport)
    for rank, (error, after) in enumerate(answers):
        assert isinstance(error, OSError if rank == 1 else PeerError), error
        assert "features.bin" in str(error)
        assert rank == 1 or "rank 1: " in str(error)
        assert isinstance(after, RuntimeError)


def silent_case(context, path, how, folder, timeout_secs):
    """Rank 1 takes part in two iterations and in the first set of the third one. Then it stops
    until the others have ended, or dies."""
    comm = {"timeout_secs": timeout_secs}
    store, sets = open_sets(context, path, context.size, comm, policy="lru")
    try:
        for t, ids in enumerate(batches_of(store, context.rank, count=4)):
            if t == 2 and context.rank == 1:
                sets.sets[0].rows.announce(torch.empty(0, dtype=torch.int64))
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                deadline = time.monotonic() + 50
                while len(list(folder.iterdir())) < 2 and time.monotonic() < deadline:
                    time.sleep(0.01)
                return
            sets.announce(ids).start().result()
    finally:
        (folder / str(context.rank)).touch()


def test_a_rank_that_is_stuck_between_sets_is_named(few_ranks, typed_store, tmp_path):
    folder = tmp_path / "ended"
    folder.mkdir()
    answers = few_ranks.run(silent_case, typed_store, "sleep", folder, 4.0)
    messages = [str(answers[0]), str(answers[2])]
    expected = "rank 1 did not send its ids of iteration 2 within 4 s (comm.timeout_secs)"
    assert expected in messages
    # The other one either waited as long, or was told by the first.
    told = [f"rank {rank}: {expected}" for rank in (0, 2)]
    assert all(text in (expected, *told) for text in messages)
    assert answers[1] is None


def test_a_rank_that_is_killed_between_sets_is_named(few_ranks, typed_store, tmp_path):
    folder = tmp_path / "ended"
    folder.mkdir()
    answers = few_ranks.run(silent_case, typed_store, "kill", folder, 40.0)
    assert isinstance(answers[1], EOFError)
    messages = [str(answers[0]), str(answers[2])]
    assert any("rank 1 ended" in text and "ids of iteration 2" in text for text in messages)
    assert all(isinstance(answers[rank], (PeerError, TimeoutError)) for rank in (0, 2))


def uncached_case(context, path):
    from lsm.data.graph_store import GraphStore

    group = context.group(2)
    return None if group is None else open_feature_sets(GraphStore.open(path), share=group)


def test_rows_without_a_cache_are_not_shared(ranks, typed_store):
    for answer in ranks.run(uncached_case, typed_store)[:2]:
        with pytest.raises(ValueError, match="share: ranks share a cache, and there is none"):
            raise answer
