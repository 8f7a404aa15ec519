"""A forked child has none of the parent's threads, and locks that they held stay locked. It uses
and lets go of its copies without a wait for either."""

import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from lsm import native
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.typed_neighbor import TypedNeighborSampler
from lsm.storage.engine import Storage
from support.engines import QUEUED_ENGINES
from support.executor_plans import open_rows
from support.forks import in_child
from support.gpu_executor import open_gpu_executor
from support.graphs import assert_same, random_graph
from support.typed_topologies import random_typed_graph

FORKS = 60
"""Of which several met a lock that was held, where a child waited for it."""
SEEDS = torch.arange(8)


def samplers(num_threads):
    yield NeighborSampler(random_graph(3000, 30_000), [5, 5], num_threads)
    graph = random_typed_graph(np.random.default_rng(0), np.int32, 3000, 30_000)
    yield TypedNeighborSampler(graph, [5, 5], num_threads, input_type="paper")


@contextmanager
def at_work(work):
    """Three threads that call ``work`` all the time."""
    ends = threading.Event()

    def run():
        while not ends.is_set():
            work()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join(60)


def same(a, b):
    assert_same(a, b)
    return True


def test_a_child_lets_go_of_samplers_with_threads():
    kept = list(samplers(num_threads=3))

    def let_go():
        kept.clear()
        return True

    assert in_child(let_go) == 0


@pytest.mark.slow
@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_child_samples_while_threads_of_the_parent_do(num_threads):
    for sampler in samplers(num_threads):
        expected = sampler.sample(SEEDS, BatchName(iteration=7))
        with at_work(lambda sampler=sampler: sampler.sample(SEEDS, BatchName())):
            for _ in range(FORKS):
                status = in_child(
                    lambda sampler=sampler, expected=expected: same(
                        sampler.sample(SEEDS, BatchName(iteration=7)), expected
                    )
                )
                assert status == 0


@pytest.mark.slow
def test_a_child_lets_go_of_memory_of_a_pool_that_threads_use():
    pool = native.BufferPool(1 << 20)
    kept = [pool.take(4096)]

    def let_go():
        kept.clear()
        return True

    with at_work(lambda: pool.take(4096)):
        for _ in range(FORKS):
            assert in_child(let_go) == 0


@pytest.mark.slow
@pytest.mark.parametrize("engine", QUEUED_ENGINES)
@pytest.mark.parametrize("scheduled", [False, True])
def test_a_child_lets_go_of_reads_in_flight(tmp_path, engine, scheduled):
    num_rows, row_bytes = 20_000, 512
    path = tmp_path / "rows.bin"
    path.write_bytes(bytes(num_rows * row_bytes))
    ids = torch.randint(0, num_rows, (num_rows,))
    out = torch.empty(num_rows, row_bytes, dtype=torch.uint8)
    with Storage([path], num_rows=num_rows, row_bytes=row_bytes, engine=engine) as storage:
        scheduler = native.ReadScheduler(1)
        for _ in range(FORKS):
            if scheduled:
                reads = [scheduler.submit(storage.handle(), ids, out)]
            else:
                reads = storage.handle().submit([(ids, out, None)])

            def let_go(reads=reads):
                reads.clear()
                return True

            assert in_child(let_go) == 0
            reads[0].wait(60)


def test_a_child_lets_go_of_an_executor_with_a_thread(tmp_path):
    _, storage = open_rows(tmp_path, 8)
    with storage:
        kept = [open_gpu_executor(storage, prefetch_rows=2)]

        def let_go():
            kept.clear()
            return True

        assert in_child(let_go) == 0
