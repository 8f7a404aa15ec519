"""A NeighborLoader in a user's own loop: epochs that go on, arguments, a second iterator, fork."""

import copy
import itertools
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

import lsm
from lsm.cache.options import CacheOptions
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from lsm.storage.options import StorageOptions
from support.engines import QUEUED_ENGINES
from support.forks import exit_status
from support.training import make_store

CACHE = CacheOptions(bytes=400 * 48, window=3)
POSIX, MEMORY = (StorageOptions(engine=name) for name in ("posix", "memory"))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return lsm.GraphStore.open(make_store(tmp_path_factory.mktemp("used") / "store"))


def open_loader(store, **options):
    given = {"num_neighbors": [3, 2], "input_nodes": "train", "batch_size": 64, "storage": POSIX}
    return lsm.NeighborLoader(store, **(given | options))


def seeds_of(batches):
    return [batch.n_id[: batch.batch_size].tolist() for batch in batches]


def test_each_iteration_over_a_loader_is_another_epoch(store):
    with open_loader(store, shuffle=True) as loader:
        expected = [seeds_of(loader.iterate(epoch)) for epoch in range(9)]
        assert [seeds_of(loader) for _ in range(3)] == expected[:3]
        loader.set_epoch(7)
        assert [seeds_of(loader) for _ in range(2)] == expected[7:]
        loader.set_epoch(1)
        first, second = iter(loader), iter(loader)
        assert (seeds_of(first), seeds_of(second)) == (expected[1], expected[2])
    assert len({str(epoch) for epoch in expected}) == len(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, r"seed: expected 0 to 18446744073709551615, got -1"),
        ({"seed": 2**64}, r"seed: expected 0 to .* got 18446744073709551616"),
        ({"seed": 1.5}, r"seed: expected a whole number, got 1\.5"),
        ({"num_neighbors": [1.5]}, r"num_neighbors: expected -1 .all. or 0 to .* got 1\.5"),
        ({"num_neighbors": [2**70]}, r"num_neighbors: expected -1 .all. or 0 to"),
        ({"num_neighbors": [-2]}, r"num_neighbors: expected -1 .all. or 0 to .* got -2"),
        ({"num_neighbors": ["3"]}, r"num_neighbors: expected -1 .all. or 0 to .* got '3'"),
        ({"num_neighbors": 5}, r"num_neighbors: expected a number for each hop, got 5"),
        ({"batch_size": 1.5}, r"batch_size: expected a whole number, got 1\.5"),
        ({"batch_size": 0}, r"batch_size: expected at least 1, got 0"),
        ({"prefetch": 1.5}, r"prefetch: expected a whole number, got 1\.5"),
        ({"num_threads": 0}, r"num_threads: expected 1 to 1024, got 0"),
        ({"timeout_secs": 0}, r"timeout_secs: expected more than 0 seconds, .* got 0"),
        ({"timeout_secs": -1.5}, r"timeout_secs: expected more than 0 seconds, .* got -1\.5"),
        ({"timeout_secs": "5"}, r"timeout_secs: expected more than 0 seconds, .* got '5'"),
        ({"timeout_secs": None}, r"timeout_secs: expected more than 0 seconds, .* got None"),
        ({"timeout_secs": float("inf")}, r"timeout_secs: .* at most 1000000000, got inf"),
        ({"labels": [0] * 599}, r"labels: expected those of all 600 nodes .* got \[599\]"),
        ({"labels": torch.tensor(3)}, r"labels: expected those of all 600 nodes .* got \[\]"),
        ({"world_size": 0}, r"world_size: expected at least 1, got 0"),
        ({"rank": 2, "world_size": 2}, r"rank: expected 0 to 1, got 2"),
        (
            {"input_nodes": torch.ones(599, dtype=torch.bool)},
            r"input_nodes: expected a mask of 600 nodes, got \[599\]",
        ),
        (
            {"input_nodes": torch.ones(600, 1, dtype=torch.bool)},
            r"input_nodes: expected a mask of 600 nodes, got \[600, 1\]",
        ),
        ({"input_nodes": torch.ones(5)}, r"input_nodes: expected \[N\] integers or a mask"),
        (
            {"input_nodes": torch.zeros(2, 3, dtype=torch.int64)},
            r"input_nodes: expected \[N\] integers or a mask, got \[2, 3\] torch.int64",
        ),
        (
            {"input_nodes": [0, 600]},
            r"input_nodes: expected ids in \[0, 600\), got 600 at position 1",
        ),
    ],
)
def test_arguments_out_of_range_are_named(store, options, message):
    with pytest.raises(ValueError, match=message):
        open_loader(store, **options)


def test_numbers_of_numpy_and_the_largest_seed_are_taken(store):
    options = {"num_neighbors": np.array([3, 2]), "batch_size": np.int32(64), "seed": 2**64 - 1}
    with open_loader(store, **options) as got:
        sampler = NeighborSampler(store.topology(), [3, 2])
        batch = next(iter(got))
        expected = sampler.sample(batch.n_id[:64], BatchName(seed=2**64 - 1))
        assert torch.equal(batch.n_id, expected.n_id)


@pytest.mark.parametrize("kind", [lsm.NeighborLoader, lsm.LinkNeighborLoader])
@pytest.mark.parametrize("send", [pickle.dumps, copy.deepcopy])
def test_a_loader_that_is_sent_to_a_process_names_the_remedy(store, kind, send):
    with kind(store, [2]) as loader, pytest.raises(TypeError, match=f"a {kind.__name__} stays in"):
        send(loader)
    assert pickle.loads(pickle.dumps(store)).num_nodes == store.num_nodes  # what it says of stores


@pytest.mark.parametrize("send", [pickle.dumps, copy.deepcopy])
def test_a_batch_is_sent_as_that_of_pyg(store, send):
    with lsm.NeighborLoader(store, [2], "train", 8) as loader:
        batch = next(iter(loader))
    with pytest.raises(TypeError, match=r"a Batch stays in .*; send or copy batch.to_pyg\(\)"):
        send(batch)
    assert copy.copy(batch).e_id.equal(batch.e_id)
    sent = pickle.loads(pickle.dumps(batch.to_pyg()))
    assert torch.equal(sent.x, batch.x)
    assert torch.equal(sent.e_id, batch.e_id)


def test_numbers_of_numpy_are_epochs_too(store):
    with open_loader(store, shuffle=True) as loader:
        loader.set_epoch(np.int64(3))
        assert seeds_of(loader) == seeds_of(loader.iterate(np.uint8(3)))


@pytest.mark.parametrize("epoch", [-1, 2**31, 1.0, "1", None])
def test_an_epoch_that_is_none_is_named_at_once(store, epoch):
    with open_loader(store) as loader:
        for use in (loader.set_epoch, loader.iterate):
            with pytest.raises(ValueError, match=f"epoch: expected .* got '?{epoch}"):
                use(epoch)


@pytest.mark.parametrize("start", [-1, 99, 0.5])
def test_a_first_iteration_out_of_range_is_named_at_once(store, start):
    with open_loader(store) as loader:
        with pytest.raises(ValueError, match=f"start_iteration: expected .* got {start}"):
            loader.iterate(0, start)
        assert not list(loader.iterate(0, len(loader)))


@pytest.mark.parametrize("form", [torch.as_tensor, np.asarray, np.ndarray.tolist])
def test_labels_of_any_form_are_those_of_the_seeds(store, form):
    own = np.arange(600) * 3
    with open_loader(store, labels=form(own)) as loader:
        for batch in loader:
            assert batch.y.tolist() == (3 * batch.n_id[: batch.batch_size]).tolist()


def test_a_second_iterator_over_one_cache_is_an_error_at_once(store):
    with open_loader(store, cache=CACHE) as loader, open_loader(store, storage=MEMORY) as plain:
        expected = list(plain.iterate(0))
        first, unused = loader.iterate(0), loader.iterate(1)
        got = [next(first)]
        with (
            open_loader(store, input_nodes="valid", features=loader.features) as other,
            pytest.raises(RuntimeError, match="another iterator goes through batches of this"),
        ):
            next(iter(other))
        with pytest.raises(RuntimeError, match="another iterator goes through batches of this"):
            next(loader.iterate(1))
        got += list(first)
        for batch, row in zip(got, expected, strict=True):
            assert torch.equal(batch.n_id, row.n_id)
            assert torch.equal(batch.x, row.x)
        assert len(list(unused)) == len(expected)


def test_an_iterator_that_was_left_makes_way_for_the_next(store):
    with open_loader(store, cache=CACHE) as loader:
        for _ in range(3):
            iterator = iter(loader)
            assert len(next(iterator).n_id) > 0
            iterator.close()
            for batch in loader:
                assert batch.iteration == 0
                break
        assert len(list(loader)) == len(loader)


@pytest.mark.parametrize("is_started", [False, True])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_ctrl_c_while_an_iterator_starts_its_threads_makes_way_for_the_next(
    store, monkeypatch, number, is_started
):
    """Ctrl-C in a notebook, whose next cell iterates again."""
    start, count = threading.Thread.start, itertools.count()

    def interrupted(self):
        is_it = next(count) == number
        if is_started or not is_it:
            start(self)
        if is_it:
            raise KeyboardInterrupt

    before = threading.active_count()
    with open_loader(store, cache=CACHE) as loader:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(iter(loader))
        assert threading.active_count() == before
        assert sum(1 for _ in loader) == len(loader)


def test_two_iterators_without_a_cache_do_not_disturb_each_other(store):
    with open_loader(store) as loader:
        expected = seeds_of(loader.iterate(0))
        pairs = list(zip(loader.iterate(0), loader.iterate(0), strict=True))
        assert seeds_of(pair[0] for pair in pairs) == seeds_of(pair[1] for pair in pairs)
        assert seeds_of(pair[0] for pair in pairs) == expected


def says_so(use) -> bool:
    """True if ``use()`` raises the expected error before a time-out would."""
    start = time.monotonic()
    try:
        use()
    except RuntimeError as error:
        said = "threads did not survive the fork; open the loader in the child" in str(error)
        return said and time.monotonic() - start < 60
    return False


@pytest.mark.parametrize("cache", [None, CACHE])
@pytest.mark.parametrize("engine", ["posix", "memory"])
def test_a_forked_child_is_told_to_open_a_loader_of_its_own(store, cache, engine):
    options = StorageOptions(engine=engine, timeout_secs=120)
    with open_loader(store, cache=cache, storage=options) as loader:
        iterator = iter(loader)
        next(iterator)
        ids = torch.arange(5)
        if cache is None:
            pending = loader.features.prefetch(ids)
        pid = os.fork()
        if pid == 0:
            uses = [lambda: next(iterator), lambda: next(iter(loader))]
            uses.append(lambda: loader.features.fetch(ids))
            if cache is None:
                uses.append(lambda: pending.result())
            all_said = all(map(says_so, uses))
            # What is the parent's is left alone, without waiting.
            iterator.close()
            loader.close()
            os._exit(0 if all_said else 1)
        assert exit_status(pid) == 0
        assert len(list(iterator)) == len(loader) - 1
        assert len(list(loader)) == len(loader)


def open_and_count(path, queue):
    with open_loader(lsm.GraphStore.open(path), cache=CACHE) as loader:
        queue.put(len(list(loader)))


def test_a_loader_that_the_child_opens_works(store):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with open_loader(store, cache=CACHE) as loader:
        child = context.Process(target=open_and_count, args=(store.path, queue))
        child.start()
        try:
            assert queue.get(timeout=60) == len(loader)
            child.join(60)
            assert child.exitcode == 0
        finally:
            child.kill()


LETS_GO_IN_A_CHILD = """
import gc, os, sys
import lsm
from lsm.cache.options import CacheOptions

lsm.NeighborLoader  # imports torch
gc.freeze()  # no child searches torch's objects when it ends, but those of the loader
victims = {"mode": "pool", "bytes": 100 * 48}
CACHE = CacheOptions(bytes=200 * 48, window=3, policy="lookahead", victim=victims)

def opened(cache):
    storage = lsm.StorageOptions(engine=sys.argv[2], num_threads=2)
    store = lsm.GraphStore.open(sys.argv[1])
    options = {"input_nodes": "train", "batch_size": 20, "storage": storage, "cache": cache}
    return lsm.NeighborLoader(store, [3, 2], num_threads=2, **options)

for cache in (None, CACHE):
    loader = opened(cache)
    num_batches = len(list(loader))
    for replaces in (True, False):
        pid = os.fork()
        if pid == 0:
            if replaces:
                loader = opened(cache)
                gc.collect()
                assert len(list(loader)) == num_batches
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    print(len(list(loader)) == num_batches)
    loader.close()
"""


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
def test_a_forked_child_can_let_go_of_the_parents_loader(store, engine):
    """Without and with a cache."""
    # Python 3.12 warns of a fork beside threads, which is this test's subject.
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning"]
    command += ["-c", LETS_GO_IN_A_CHILD, str(store.path), engine]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\nTrue\n", "")


LEAVES_AN_ITERATOR = """
import sys
import lsm
from lsm.cache.options import CacheOptions

cache = CacheOptions(bytes=400 * 48, window=3) if sys.argv[2] == "cached" else None
storage = lsm.StorageOptions(engine=sys.argv[3])
options = {"input_nodes": "train", "batch_size": 20, "storage": storage, "cache": cache}
loader = lsm.NeighborLoader(lsm.GraphStore.open(sys.argv[1]), [3, 2], prefetch=2, **options)
batches = iter(loader)
print(next(batches).batch_size)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("cache", "engine"), [("cached", "posix"), ("uncached", "memory")])
def test_a_script_ends_with_an_iterator_left_unfinished(store, cache, engine):
    command = [sys.executable, "-c", LEAVES_AN_ITERATOR, str(store.path), cache, engine]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "20\n", "")


# Variables of Lightning's own launcher on its main process; RANK is not among them.
LIGHTNING = {
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "NODE_RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "2",
}


@pytest.mark.parametrize("env", [LIGHTNING, {"RANK": "x"}, {"SLURM_STEP_ID": "0"}], ids=str)
@pytest.mark.parametrize("cache", [None, CACHE], ids=["plain", "cache"])
def test_a_rank_given_by_arguments_needs_no_environment(store, monkeypatch, env, cache):
    expected = []
    for rank in range(2):
        with open_loader(store, rank=rank, world_size=2, cache=cache) as loader:
            expected.append(seeds_of(loader))
    assert expected[0] != expected[1]
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    for rank in range(2):
        with open_loader(store, rank=rank, world_size=2, cache=cache) as loader:
            assert seeds_of(loader) == expected[rank]
