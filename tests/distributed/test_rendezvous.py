"""Ranks that cannot form a job learn why, all of them, in bounded time. Ranks are threads here."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lsm.distributed.environment import Launch, World
from lsm.distributed.rendezvous import (
    differences,
    meet,
)
from support.training import free_port

TIMEOUT_SECS = 30.0  # of those who meet


def place(rank, size, port, job="test"):
    return Launch(World(rank, size, rank, size), "torchrun", "127.0.0.1", port, job)


def gather(*launches, settings=None, timeout_secs=TIMEOUT_SECS):
    """The result of ``meet`` on every rank, or the error that it raises."""

    def run(index):
        try:
            values = (settings or [{}] * len(launches))[index]
            return meet(launches[index], timeout_secs, values)
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(launches)) as pool:
        return list(pool.map(run, range(len(launches))))


def check_errors(results, kind, *parts):
    for result in results:
        assert type(result) is kind, result
        for part in parts:
            assert part in str(result)


def test_all_ranks_see_each_other():
    port = free_port()
    results = gather(*(place(rank, 3, port) for rank in range(3)))
    for rank, (_, members) in enumerate(results):
        assert [member.rank for member in members] == [0, 1, 2]
        assert members[rank].host == socket.gethostname()
    results[0][0].set("key", "value")
    assert results[2][0].get("key") == b"value"


def test_other_settings_are_named_with_both_ranks_everywhere():
    port = free_port()
    settings = [{"train.lr": 0.1, "cache.ways": 32}] * 3
    settings[2] = {"train.lr": 0.2, "cache.ways": 32, "extra": None}
    results = gather(*(place(rank, 3, port) for rank in range(3)), settings=settings)
    check_errors(
        results, ValueError, "rank 0 (", "rank 2 (", "train.lr (0.1 on rank 0, 0.2 on rank 2)"
    )
    assert "cache.ways" not in str(results[0])


def test_worlds_of_different_size_are_named_everywhere():
    port = free_port()
    start = time.monotonic()
    results = gather(place(0, 3, port), place(1, 2, port))  # rank 0 would wait for a rank 2
    check_errors(results, ValueError, "is one of 3 processes", "rank 1", "one of 2")
    assert time.monotonic() - start < TIMEOUT_SECS


def test_a_rank_that_never_comes_is_named_everywhere():
    port = free_port()
    results = gather(*(place(rank, 4, port) for rank in (0, 2)), timeout_secs=3)
    check_errors(results, RuntimeError, "these did not come: 1, 3", "dist.timeout_secs")


def test_a_rank_that_is_there_twice_is_an_error_everywhere():
    port = free_port()
    results = gather(*(place(rank, 3, port) for rank in (0, 1, 1)))
    check_errors(results, RuntimeError, "two processes say they are rank 1")


def test_nobody_at_the_address():
    results = gather(place(1, 2, free_port()), timeout_secs=0.5)
    check_errors(results, RuntimeError, "nobody answers at 127.0.0.1", "MASTER_PORT")


def test_a_host_that_does_not_exist():
    launch = Launch(World(1, 2), "slurm", "no-such-host.invalid", 20_000, "test")
    check_errors(
        gather(launch, timeout_secs=0.5), RuntimeError, "no-such-host.invalid", "MASTER_ADDR"
    )


@pytest.fixture
def other_program():
    """A port on which something listens that is no store, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_in_use_is_an_error_everywhere(other_program):
    results = gather(place(0, 2, other_program), place(1, 2, other_program), timeout_secs=1)
    check_errors(results[:1], RuntimeError, f"port {other_program} is in use", "MASTER_PORT")
    check_errors(results[1:], RuntimeError, f"the process at 127.0.0.1:{other_program} is not")


def test_jobs_that_share_a_port_do_not_mix():
    port = free_port()
    arrived = threading.Event()

    def host():
        result = meet(place(0, 2, port, job="a"), TIMEOUT_SECS, {})
        arrived.set()
        return result

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(host)
        stranger = pool.submit(gather, place(1, 2, port, job="b"), timeout_secs=3)
        check_errors(stranger.result(), RuntimeError, "rank 0 did not come")
        assert not arrived.is_set()
        second = pool.submit(meet, place(1, 2, port, job="a"), TIMEOUT_SECS, {})
        assert [m.rank for m in first.result()[1]] == [m.rank for m in second.result()[1]]


def test_differences_are_short():
    many = {str(key): 0 for key in range(9)}
    text = differences((0, many), (3, dict.fromkeys(many, 1)))
    assert text.startswith("0 (0 on rank 0, 1 on rank 3), 1 (0 on rank 0, 1 on rank 3), 2 (")
    assert text.endswith(" and 4 more")
    assert differences((0, many), (1, {})).startswith("0 (0 on rank 0, None on rank 1)")
    assert differences((0, many), (1, dict(many))) == ""
