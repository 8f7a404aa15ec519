"""A cache that ranks share: rows are those on storage, and a rank that fails is named by all."""

import errno
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from lsm import native
from lsm.distributed.watchdog import PeerError
from lsm.storage.options import StorageOptions
from support.comm_ranks import deliver
from support.shared_features import ROW_BYTES, fetch_case, loader_for, open_loader
from support.training import make_store

NUM_RANKS = 4


def test_what_every_rank_replicates_is_not_asked_of_others(ranks, store):
    def sent_bytes(comm):
        cache = {"score": "in_degree", "bytes": 1200 * ROW_BYTES}
        answers = ranks.check(fetch_case, store, 2, comm, "memory", cache)[:2]
        return sum(stats["cache_rows_sent_bytes"] for _, stats in answers)

    assert sent_bytes({"mode": "shared"}) > 0
    # Half of the cache holds the 600 rows of the graph.
    assert sent_bytes({"mode": "partition-aware"}) == 0


def table_case(context, path, table):
    _, loader = open_loader(context, path, 2, {"owner": "table", "owner_table": table})
    if loader is None:
        return None
    with loader:
        loader.fetch(torch.arange(100))
        return loader.stats()["cache_requests"]


def test_a_table_says_who_owns_what(ranks, store, tmp_path):
    import numpy as np

    table = tmp_path / "owners.npy"
    np.save(table, (np.arange(600) < 30).astype(np.int32))
    # Both ask for 0 to 99; rank 1 owns 30 of them.
    assert ranks.check(table_case, store, table)[:2] == [140, 60]
    for wrong, message in (
        (np.zeros(599, np.int64), "expected an owner for each of 600 nodes, got 599"),
        (np.full(600, 2), "expected owners 0 to 1, .* got 2 to 2"),
        (np.full(600, -1), "got -1 to -1"),
        (np.zeros(600), r"expected integers \[num nodes\], got float64"),
    ):
        np.save(table, wrong)
        for answer in ranks.run(table_case, store, table)[:2]:
            with pytest.raises(ValueError, match=message):
                raise answer


def epochs_case(context, path, taken, comm):
    """Epochs of 4 or 5 iterations (of 20 seeds per rank), left after ``taken`` of them."""
    store, features = open_loader(context, path, context.size, comm, "posix", policy="lookahead")
    plain = loader_for(store, context, None, storage=StorageOptions(engine="memory"))
    with features, plain:
        shared = loader_for(store, context, features, prefetch=2)
        for epoch, count in enumerate(taken):
            count = count[context.rank] if isinstance(count, list) else count
            batches = zip(range(count), shared.iterate(epoch), plain.iterate(epoch), strict=False)
            for _, got, expected in batches:
                assert torch.equal(got.n_id, expected.n_id)
                assert torch.equal(got.x, expected.x), (context.rank, epoch, got.iteration)
        return features.stats()["cache_hits"]


class LettingIn:
    """A lock that lets another thread in whenever ``owner`` releases it."""

    def __init__(self, lock, owner):
        self._lock, self._owner = lock, owner
        self.was_released = threading.Event()

    def acquire(self, *args, **options):
        return self._lock.acquire(*args, **options)

    def release(self):
        self._lock.release()
        if threading.current_thread() is self._owner:
            self.was_released.set()
            time.sleep(0.3)

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_error):
        self.release()


def close_case(context, path):
    """The error of a thread of rank 1 that wants rows just as the loader is closed."""
    comm = {"transport": "shm", "timeout_secs": 3.0}
    _, features = open_loader(context, path, context.size, comm)
    lock = features._replaying = LettingIn(features._replaying, threading.current_thread())
    pending = features.prefetch(torch.arange(100))
    if context.rank != 1:
        features.close()
        return None

    def want():
        lock.was_released.wait()
        return pending.result(10)

    with ThreadPoolExecutor(1) as threads:
        wanted = threads.submit(want)
        features.close()
        return str(wanted.exception())


def test_a_closed_loader_takes_no_rows_from_other_ranks(ranks, store):
    assert ranks.check(close_case, store)[1] == "the feature loader is closed"


@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_epochs_may_be_left_early_by_all_ranks(ranks, store, transport):
    hits = ranks.check(epochs_case, store, [4, 1, 4, 2, 3, 0, 4], {"transport": transport})
    assert all(count > 0 for count in hits)


def test_a_rank_that_leaves_alone_is_an_error_of_the_others(few_ranks, store):
    started = time.monotonic()
    answers = few_ranks.run(epochs_case, store, [[1, 4, 4], 1], {})
    for answer in answers[1:]:
        with pytest.raises(PeerError, match=r"rank \d left the epoch before it sent "):
            raise answer
    assert time.monotonic() - started < 50  # rather than wait for what has left


def fault_case(context, path, fault, transport):
    store, features = open_loader(
        context, path, context.size, {"transport": transport}, "posix", policy="lru", bytes=8 * 48
    )
    if context.rank == 1:
        features.storage.inject_fault(fault, nth=2, value=errno.EIO)
    list(loader_for(store, context, features, prefetch=2).iterate(0))


@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_a_read_error_of_one_owner_surfaces_on_every_rank(few_ranks, store, transport):
    answers = few_ranks.run(fault_case, store, native.Fault.error, transport)
    for rank, answer in enumerate(answers):
        with pytest.raises(OSError if rank == 1 else PeerError, match=r"features\.bin") as caught:
            raise answer
        if rank != 1:
            assert "rank 1: " in str(caught.value)


def silent_case(context, path, how, folder, timeout_secs):
    """Rank 1 takes part in two iterations and then stops until the others have ended, or dies."""
    import os
    import signal

    _, features = open_loader(context, path, context.size, {"timeout_secs": timeout_secs})
    try:
        for t in range(4):
            if t == 2 and context.rank == 1:
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                deadline = time.monotonic() + 50
                while len(list(folder.iterdir())) < 2 and time.monotonic() < deadline:
                    time.sleep(0.01)
                return
            features.fetch(torch.arange(50))
    finally:
        (folder / str(context.rank)).touch()


def test_a_stuck_rank_is_named_with_what_was_awaited(few_ranks, store, tmp_path):
    answers = few_ranks.run(silent_case, store, "sleep", tmp_path, 4.0)
    messages = [str(answers[0]), str(answers[2])]
    expected = r"rank 1 did not send its ids of iteration 2 within 4 s (comm.timeout_secs)"
    assert expected in messages
    # The other one either waited as long, or was told by the first.
    told = [f"rank {rank}: {expected}" for rank in (0, 2)]
    assert all(text in (expected, *told) for text in messages)
    assert answers[1] is None


def test_a_killed_rank_is_named(few_ranks, store, tmp_path):
    started = time.monotonic()
    answers = few_ranks.run(silent_case, store, "kill", tmp_path, 40.0)
    assert isinstance(answers[1], EOFError)
    messages = [str(answers[0]), str(answers[2])]
    assert any("rank 1 ended" in text and "ids of iteration 2" in text for text in messages)
    assert all(isinstance(answers[rank], (PeerError, TimeoutError)) for rank in (0, 2))
    assert time.monotonic() - started < 40  # rather than wait for what is dead


def join_case(context, options, hosts=None):
    import os

    from lsm.comm.group import CacheGroup
    from lsm.comm.open import open_exchange
    from lsm.comm.options import CommOptions
    from lsm.comm.owners import OwnerMap
    from lsm.comm.request import RowFormat

    if hosts:
        os.environ["LSM_HOST"] = hosts[context.rank]
    try:
        own = options[context.rank] if isinstance(options, list) else options
        group = CacheGroup.join(CommOptions(timeout_secs=10, **own))
        owners = OwnerMap(100, group.size, group.rank)
        exchange = open_exchange(group, owners, RowFormat(2, torch.float32))
        ids = torch.arange(context.rank, 100, 3)
        request = exchange.lists.request(ids)
        table = torch.arange(200.0).view(100, 2)
        assert torch.equal(deliver(exchange.rows, request, table[request.ids]), table[ids])
        exchange.flush()
        return group.rank, group.size, exchange.rows.links
    finally:
        os.environ.pop("LSM_HOST", None)


def test_groups_of_a_node_and_of_the_world(ranks):
    hosts = ["a", "b", "a", "a"]
    answers = ranks.check(join_case, {"group": "node"}, hosts)
    shm = "shm"
    assert answers == [
        (0, 3, {1: shm, 2: shm}),
        (0, 1, {}),
        (1, 3, {0: shm, 2: shm}),
        (2, 3, {0: shm, 1: shm}),
    ]
    # Over the world some peers are local and some are not.
    _, size, links = ranks.check(join_case, {"group": "world"}, hosts)[0]
    assert (size, links) == (4, {1: "gloo", 2: shm, 3: shm})


@pytest.mark.parametrize(
    ("options", "hosts", "error", "message"),
    [
        (
            [{"transport": "gloo"}, {"transport": "shm"}, {}, {}],
            None,
            ValueError,
            r"comm\.transport: expected the same .* got 'gloo' on rank 0 and 'shm' on rank 1",
        ),
        ({"transport": "shm"}, ["a", "b", "b", "b"], RuntimeError, r"cannot be shared with rank"),
        ({"transport": "nccl"}, None, RuntimeError, r"comm\.transport=nccl: moves rows between"),
        ({"transport": "ipc"}, None, RuntimeError, r"comm\.transport=ipc: moves rows between"),
        ({"owner": "table"}, None, ValueError, r"comm\.owner_table: expected a \.npy file"),
    ],
)
def test_what_cannot_be_is_an_error_on_every_rank(ranks, options, hosts, error, message):
    for answer in ranks.run(join_case, options, hosts):
        with pytest.raises(error, match=message):
            raise answer


def same_store_case(context, paths):
    from lsm.config.load import load_config
    from lsm.distributed.collectives import World
    from lsm.train.store import open_store
    from lsm.train.tasks.choose import task_of

    config = load_config("base", [f"data.path={paths[context.rank]}"])
    open_store(config, World(context.rank, context.size), task_of(config))


def test_ranks_must_have_the_same_store_wherever_it_is(ranks, store, tmp_path):
    copy, other = tmp_path / "copy", make_store(tmp_path / "other", num_train=260)
    shutil.copytree(store, copy)
    assert ranks.check(same_store_case, [store, copy, store, copy]) == [None] * 4
    for answer in ranks.run(same_store_case, [store, copy, other, store]):
        with pytest.raises(ValueError, match="ranks opened different stores: ") as caught:
            raise answer
        assert f"{store} " in str(caught.value)
        assert f"{other} " in str(caught.value)
        assert "on rank 2" in str(caught.value)


def test_too_many_ranks_for_the_metadata():
    from lsm.comm.group import check_size

    check_size(256)
    with pytest.raises(ValueError, match=r"world size: 257 ranks cannot share a cache"):
        check_size(257)
