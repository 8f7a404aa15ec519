"""Sums, edges, and rows that stream by or stay fit in memory, and few rows are read again."""

import numpy as np
import pytest

from lsm.inference import interval_memory
from lsm.inference.interval_memory import IntervalMemory, Needs
from lsm.inference.stage import TooLittleMemoryError

NUM_ROWS, ROW_BYTES, CHUNK = 50_000, 512, 512


def needs(seed=0, at_work=3 << 20):
    """Of a graph with some nodes of many edges."""
    sizes = np.diff(np.append(np.arange(0, NUM_ROWS, CHUNK), NUM_ROWS))
    edges = sizes * 14 + np.random.default_rng(seed).pareto(1.5, len(sizes)).astype(int) * 500
    return Needs(sizes * ROW_BYTES + edges * 8, at_work, NUM_ROWS, ROW_BYTES, CHUNK, True)


def taken(memory, found, of):
    """The most memory at once."""
    sums = max((int(of.costs[a:b].sum()) for a, b in found.intervals), default=0)
    streaming = 0 if found.num_kept == NUM_ROWS else 2 * found.batch_rows * ROW_BYTES
    own = memory.own_reads.max_read_bytes * memory.own_reads.queue_depth
    reads = memory.reads.max_read_bytes * memory.reads.queue_depth + own
    return sums + found.num_kept * ROW_BYTES + max(streaming, of.at_work) + reads


def rows_read(found):
    """Rows that are read, the kept ones once."""
    return found.num_kept + (NUM_ROWS - found.num_kept) * len(found.intervals)


@pytest.mark.parametrize("megabytes", [7, 9, 14, 20, 26, 33, 40, 64, 500])
@pytest.mark.parametrize("some", [False, True])
def test_it_all_fits(megabytes, some):
    of = needs(megabytes)
    units = np.arange(len(of.costs))
    if some:  # the rest was done before a kill, or is another rank's
        units = units[(units > 20) & (units % 9 != 0)]
    memory = IntervalMemory("layer 1", megabytes << 20, of)
    found = memory.divide(units)
    assert taken(memory, found, of) <= megabytes << 20
    assert [u for a, b in found.intervals for u in range(a, b)] == units.tolist()
    assert found.num_kept in (0, NUM_ROWS) or found.num_kept % found.batch_rows == 0


def test_memory_that_is_left_over_keeps_rows():
    of, last = needs(), NUM_ROWS * 100
    units = np.arange(len(of.costs))
    for megabytes in (8, 12, 20, 26, 33, 40, 60):
        memory = IntervalMemory("layer 1", megabytes << 20, of)
        found = memory.divide(units)
        assert rows_read(found) <= last  # never more with more memory
        last = rows_read(found)
        if len(found.intervals) > 1 and found.num_kept < NUM_ROWS:
            # The sums are divided equally, so that much is left.
            sums = [int(of.costs[a:b].sum()) for a, b in found.intervals]
            assert max(sums) < of.costs.sum() / len(sums) + 2 * of.costs.max()
    assert last == NUM_ROWS


def test_enough_memory_suffices_and_less_does_not():
    of = needs()
    with pytest.raises(TooLittleMemoryError) as found:
        IntervalMemory("layer 1", 1000, of)
    enough = IntervalMemory("layer 1", 1 << 40, of).enough_bytes
    assert found.value.missing == enough - 1000
    assert IntervalMemory("layer 1", enough, of).divide(np.arange(len(of.costs))).intervals
    with pytest.raises(TooLittleMemoryError):
        IntervalMemory("layer 1", enough - (200 << 10), of)


def test_reads_in_flight_take_more_memory_the_more_there_is():
    options = interval_memory.StorageOptions(engine="io_uring")
    sizes = [interval_memory.read_options(options, room << 10)[1] for room in range(64, 200_000, 7)]
    assert sizes == sorted(sizes)
    assert sizes[-1] < 12 << 20
