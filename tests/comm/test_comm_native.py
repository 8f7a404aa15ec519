"""Owners, request lists, rows and shared memory, each against NumPy or a few lines of Python."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lsm import native
from lsm.comm.owners import OwnerMap, owners
from lsm.comm.request_lists import merge_lists
from reference import comm as reference
from reference.hashing import mix64, owner

NUM_NODES = 40_000


@pytest.mark.parametrize("hash", ["stride", "mix64"])
@pytest.mark.parametrize("num_ranks", [1, 2, 7, 256])
@pytest.mark.parametrize("count", [0, 1, 16_384, 33_000])
def test_buckets_are_the_ids_by_owner_in_request_order(hash, num_ranks, count):
    ids = torch.randperm(NUM_NODES, generator=torch.Generator().manual_seed(1))[:count]
    owner_of = owners(ids.numpy(), num_ranks, hash)
    order = np.argsort(owner_of, kind="stable")
    owner_map = OwnerMap(NUM_NODES, num_ranks, 0, hash=hash)
    for num_threads in (1, 3):
        threads = native.ThreadPool(num_threads)
        bucketed, positions, starts = owner_map.bucket(ids, threads)
        assert bucketed.tolist() == ids[order].tolist()
        assert positions.tolist() == order.tolist()
        assert starts == np.searchsorted(owner_of[order], range(num_ranks + 1)).tolist()
    assert [owner(node, num_ranks, hash) for node in ids[:50].tolist()] == owner_of[:50].tolist()
    own = owner_map.is_own(NUM_NODES)
    assert own[ids].tolist() == (owner_of == 0).tolist()


def test_owner_and_set_do_not_come_from_the_same_bits():
    ids = np.arange(20_000)
    own = ids[owners(ids, 4, "mix64") == 0]
    sets = np.array([mix64(int(node)) % 64 for node in own])
    counts = np.bincount(sets, minlength=64)
    # 5,000 ids over 64 sets are 78 each, give or take 9; with the same bits for both, 16 sets
    # would hold them all.
    assert counts.min() > 40


def test_a_table_and_replicated_ids_decide_owners():
    table = torch.tensor([1, 0, 1, 2, 2], dtype=torch.uint8)
    threads = native.ThreadPool(1)
    ids = torch.tensor([4, 3, 2, 1, 0])
    owner_map = OwnerMap(5, 3, 1, table=table)
    assert owner_map.bucket(ids, threads)[2] == [0, 1, 3, 5]
    assert owner_map.is_own(5).tolist() == [True, False, True, False, False]
    replicated = OwnerMap(5, 3, 1, table=table, replicated_ids=torch.tensor([4]))
    bucketed, positions, starts = replicated.bucket(ids, threads)
    assert (bucketed.tolist(), starts) == ([1, 4, 2, 0, 3], [0, 1, 4, 5])
    assert positions.tolist() == [3, 0, 2, 4, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OwnerMap(5, 257, 0), "world size: expected 1 to 256 ranks, got 257"),
        (lambda: OwnerMap(5, 2, 2), "rank: expected 0 to 1, got 2"),
        (
            lambda: OwnerMap(5, 2, 0, table=torch.zeros(4, dtype=torch.uint8)),
            "expected one entry for each of 5 nodes, got 4",
        ),
        (
            lambda: OwnerMap(2, 2, 0, table=torch.tensor([0, 2], dtype=torch.uint8)),
            "expected owners 0 to 1, got 2 for node 1",
        ),
        (
            lambda: OwnerMap(5, 2, 0, replicated_ids=torch.tensor([5])),
            r"replicated_ids: expected ids in \[0, 5\), got 5",
        ),
        (
            lambda: OwnerMap(5, 2, 0).bucket(torch.tensor([5]), native.ThreadPool(1)),
            r"ids: expected ids in \[0, 5\), got 5",
        ),
    ],
)
def test_owners_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("seed", range(4))
def test_lists_merge_in_rank_order(seed):
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(0, 2000, (5,), generator=generator).tolist()
    lists = [torch.randperm(3000, generator=generator)[:size] for size in sizes]
    lists[seed] = torch.empty(0, dtype=torch.int64)
    ids, rank_starts, row_of, list_starts = merge_lists(lists)
    expected = reference.merge([part.tolist() for part in lists])
    assert ids.tolist() == expected
    assert ids[row_of].tolist() == torch.cat(lists).tolist()
    assert rank_starts.tolist() == [
        len(reference.merge([part.tolist() for part in lists[:count]])) for count in range(6)
    ]
    assert list_starts == [sum(map(len, lists[:count])) for count in range(6)]


def test_rows_are_delivered_by_either_list_or_both():
    source = torch.arange(30, dtype=torch.int16).view(10, 3)
    threads = native.ThreadPool(2)
    none = torch.empty(0, dtype=torch.int32)
    some = torch.tensor([7, 0, 3], dtype=torch.int32)
    places = torch.tensor([2, 0, 1], dtype=torch.int32)
    packed = torch.zeros(3, 3, dtype=torch.int16)
    native.scatter_rows(source, some, packed, none, threads)
    assert torch.equal(packed, source[[7, 0, 3]])
    unpacked = torch.zeros(3, 3, dtype=torch.int16)
    native.scatter_rows(packed, none, unpacked, places, threads)
    assert torch.equal(unpacked, source[[0, 3, 7]])
    both = torch.zeros(3, 3, dtype=torch.int16)
    native.scatter_rows(source, some, both, places, threads)
    assert torch.equal(both, unpacked)


@pytest.mark.parametrize(
    ("rows", "places", "message"),
    [
        ([10], [0], "source_rows: expected rows 0 to 9, got 10 at position 0"),
        ([0, -1], [0, 1], "source_rows: expected rows 0 to 9, got -1 at position 1"),
        ([0], [3], "target_rows: expected rows 0 to 2, got 3"),
        ([0, 1], [0], "expected the same length, got 2 and 1"),
        ([0, 1, 2, 3], [], "target: expected at least 4 rows, got 3"),
    ],
)
def test_rows_that_do_not_exist_are_not_copied(rows, places, message):
    target = torch.zeros(3, 4)
    lists = [torch.tensor(part, dtype=torch.int32) for part in (rows, places)]
    with pytest.raises(ValueError, match=message):
        native.scatter_rows(torch.ones(10, 4), lists[0], target, lists[1], native.ThreadPool(1))
    assert not target.any()


def write_to(process_id, descriptor, capacity):
    block = native.PeerBlock(process_id, descriptor, capacity)
    native.as_tensor(block, torch.uint8)[:3] = 7


def test_another_process_writes_into_shared_memory():
    pool = native.SharedPool(1 << 20)
    buffer = pool.take(5000)
    data = native.as_tensor(buffer, torch.uint8)
    data.zero_()
    arguments = (os.getpid(), buffer.descriptor, buffer.capacity)
    process = multiprocessing.get_context("forkserver").Process(target=write_to, args=arguments)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert data[:4].tolist() == [7, 7, 7, 0]


TAKES_SHARED_MEMORY = """
from lsm import native

buffer = native.SharedPool(0).take(3_000_000)
print(bytes(memoryview(buffer)) == bytes(3_000_000))
"""


@pytest.mark.slow
def test_a_signal_while_shared_memory_is_allocated(tmp_path):
    """Such as that of a job that is about to be preempted."""
    source, library = Path(__file__).with_name("interrupted_fallocate.c"), tmp_path / "library.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=300)
    ended = subprocess.run(
        [sys.executable, "-c", TAKES_SHARED_MEMORY],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\n", "")


def shared_files():
    """Blocks of shared memory that this process holds."""
    links = [
        file for file in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{file}")
    ]
    return [file for file in links if "lsm-rows" in os.readlink(f"/proc/self/fd/{file}")]


def test_shared_memory_is_used_again_and_given_up_when_it_is_too_much():
    pool = native.SharedPool(100_000)
    first = pool.take(50_000)
    number, num_files = first.number, len(shared_files())
    del first
    again = pool.take(40_000)
    assert again.number == number
    del again
    large = pool.take(60_000)  # does not fit: a new one, and the idle first stays
    assert large.number != number
    del large
    huge = pool.take(500_000)  # the larger idle one stays, the smaller one is given up
    assert pool.take(60_000).number == number + 1
    assert huge.size == 500_000
    assert len(shared_files()) == num_files + 1


def test_memory_of_a_process_that_is_not_there():
    with pytest.raises(OSError, match="shared memory of another process cannot be opened"):
        native.PeerBlock(2**22 + 1, 3, 16)
    buffer = native.SharedPool(0).take(16)
    with pytest.raises(ValueError, match="expected 1000000 bytes of shared memory, got 4096"):
        native.PeerBlock(os.getpid(), buffer.descriptor, 1_000_000)
