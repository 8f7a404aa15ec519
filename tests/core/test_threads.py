"""Threads without number, and threads that the system refuses: errors that name the setting.

A limit on address space makes the system refuse thread stacks, for root as well.
"""

import re
import subprocess
import sys

import pytest
import torch

import lsm
from lsm import native
from lsm.core.threads import check_startable, starting
from lsm.storage.options import StorageOptions
from support.training import environment

SHORT_OF_MEMORY = """
import resource, sys, threading
import torch
import lsm
from lsm import native
from lsm.storage.options import StorageOptions
from lsm.data.graph_store import GraphStore
from lsm.core.threads import check_startable
threading.stack_size(64 << 20)
store = GraphStore.open(sys.argv[1])
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
resource.setrlimit(resource.RLIMIT_STACK, (64 << 20, 64 << 20))
"""


def error_when_short_of_memory(store, code):
    """The error that ``code`` prints, run where about sixteen threads fit."""
    shell = 'ulimit -s 65536; exec "$@"'
    script = [sys.executable, "-c", SHORT_OF_MEMORY + code, store]
    done = subprocess.run(
        ["bash", "-c", shell, "bash", *map(str, script)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment(),
    )
    assert done.returncode == 1, (done.returncode, done.stderr)
    return done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "setting"),
    [
        ("native.ThreadPool(1000)", "cannot start a thread"),
        ("check_startable('train.num_threads', 1000)", r"train\.num_threads: .*, got 1000"),
    ]
    + [
        (
            f"lsm.open_features(store, storage=StorageOptions(engine='{engine}', "
            "num_threads=1000, queue_depth=1, max_read_bytes=8192))",
            r"storage\.num_threads: .*, got 1000",
        )
        for engine in ("mmap", "posix", "io_uring")
    ]
    + [
        (
            "import time\n"
            "memory = StorageOptions(engine='memory')\n"
            "loader = lsm.NeighborLoader(store, [2], None, 1, storage=memory, num_threads=1000)\n"
            "loader._sample = lambda _: time.sleep(3)\n"
            "next(iter(loader))",
            r"loader\.num_threads: .*, got 1000",
        )
    ],
)
def test_threads_that_cannot_be_started_name_their_setting(store, code, setting):
    if "io_uring" in code and native.io_uring_problem():
        pytest.skip(native.io_uring_problem())
    message = error_when_short_of_memory(store, code)
    assert re.search(setting, message), message


@pytest.mark.parametrize("count", [0, 1025, 2**31, 2**70, 1.5, True])
def test_numbers_of_threads_have_a_range(store, count):
    graph = lsm.GraphStore.open(store)
    is_whole = type(count) is int
    bound = "at least 1" if count == 0 else "at most 1024"
    expected = rf"storage\.num_threads: expected {bound if is_whole else 'an integer'}, got {count}"
    with pytest.raises(ValueError, match=expected):
        StorageOptions(num_threads=count)
    expected = "num_threads: expected " + ("1 to 1024, got " if is_whole else "a whole number")
    with pytest.raises(ValueError, match=expected):
        lsm.NeighborLoader(graph, [2], num_threads=count)


def test_a_pool_of_threads_has_a_range():
    for count in (0, -1, 1025, 2**31 - 1):
        with pytest.raises(ValueError, match=f"num_threads: expected 1 to 1024, got {count}"):
            native.ThreadPool(count)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("queue_depth", 0, "expected at least 1, got 0"),
        ("queue_depth", 2**31, "expected at most 4096, got 2147483648"),
        ("max_read_bytes", 0, "size: expected at least 1 B, got 0 B"),
        ("max_read_bytes", 1 << 40, "size: expected at most 16 MiB, got 1 TiB"),
        ("max_gap_bytes", 1 << 40, "size: expected at most 16 MiB, got 1 TiB"),
        ("max_gap_bytes", -1, "size: expected a number of bytes >= 0, got -1"),
    ],
)
def test_reads_have_a_range(name, value, message):
    with pytest.raises(ValueError, match=rf"^storage\.{name}: {message}$"):
        StorageOptions(**{name: value})


def test_buffers_that_memory_does_not_hold_are_refused(store, monkeypatch):
    monkeypatch.setattr("lsm.distributed.machine_share.available_bytes", lambda: 1 << 30)
    graph = lsm.GraphStore.open(store)
    options = StorageOptions(engine="io_uring", queue_depth=4096, max_read_bytes=1 << 20)
    with pytest.raises(
        ValueError,
        match=r"storage\.max_read_bytes: 5120 buffers of reads of 1 MiB 5 GiB = 5 GiB, and 1 GiB "
        r"of host memory are free; lower it",
    ):
        lsm.open_features(graph, storage=options)


def test_threads_are_probed_and_end():
    before = torch.get_num_threads()
    check_startable("train.num_threads", 100)
    assert torch.get_num_threads() == before


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match=r"^something else$"), starting("key", 1):
        raise RuntimeError("something else")
