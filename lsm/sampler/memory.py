"""Host memory of sampled graphs, and of the threads that sample them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from lsm.core.memory import HEADROOM, BatchSize, Shape, Terms
from lsm.graph.types import NODE
from lsm.sampler.neighbor import SampledGraph
from lsm.sampler.neighbor_gpu import TOPOLOGY_SHARE
from lsm.sampler.options import TopologyOptions
from lsm.sampler.seeds import SeedSource

_NUM_SAMPLED = 3
_MORE = 1.05  # the largest of many batches against the largest of a few
_TRIAL_BYTES = 64 << 20  # of rows in the step that is tried
_NUM_PARTS = 5  # of a batch's seeds: a 1024th, a 256th, ... and a quarter
_MARGIN = 2  # a batch may be smaller than its parts let expect
_LEAST_GROWTH = 2.0  # of a part by the next, where the first seeds happen to have many neighbours


def graph_bytes(batch: BatchSize) -> int:
    """Memory of a batch's graph in training."""
    return 16 * batch.edges + 8 * (batch.nodes + batch.expanded) + batch.value_bytes


def packed_bytes(batch: BatchSize) -> int:
    """Memory of a batch's graph while it waits in the window."""
    return 4 * batch.edges + 8 * (batch.nodes + batch.expanded) + batch.value_bytes


def terms(num_threads: int, shape: Shape) -> Terms:
    """The graphs that ``num_threads`` sample, each with the one that the thread sampled before."""
    return Terms({"sampling": 2 * num_threads * _sampling_bytes(shape.batch)})


def gpu_bytes(options: TopologyOptions, shape: Shape, free: int) -> int:
    """GPU memory of a topology that goes there, where ``free`` bytes are free."""
    fits = shape.topology_bytes <= TOPOLOGY_SHARE * free
    is_there = options.placement == "device" or (options.placement == "auto" and fits)
    return shape.topology_bytes if is_there else 0


def _sampling_bytes(batch: BatchSize) -> int:
    """The growing output of one sample, and a table of ids."""
    output = 8 * (batch.nodes + batch.edges) + 2 * 16 * batch.edges + 8 * batch.expanded
    output += batch.value_bytes
    return int(HEADROOM * output) + 16 * (batch.nodes + batch.edges)


def largest_batch(
    sampler: Any,
    schedule: SeedSource,
    row_bytes: Mapping[str, int],
    *,
    num_threads: int = 1,
    most_bytes: float = math.inf,
    go_on: Callable[[], None] = lambda: None,
) -> tuple[BatchSize, tuple[Any, SampledGraph] | None]:
    """The size of the largest batch of ``schedule``, judged by its first ones, and seeds with their
    graph, whose rows, of ``row_bytes`` by node type, are small enough to try a step on; None
    without iterations.

    A batch whose parts show that its rows and ``num_threads`` that sample take more than
    ``most_bytes`` is not sampled; its size is that of a part, extrapolated. Calls ``go_on`` between
    samples; it may raise.
    """
    seeds_at = schedule.epoch(0)
    size, smaller = BatchSize(), None

    def fits(own: BatchSize) -> bool:
        needed = _rows_bytes(own, row_bytes) + 2 * num_threads * _sampling_bytes(own)
        return needed <= _MARGIN * most_bytes

    for iteration in range(min(_NUM_SAMPLED, schedule.num_iterations)):
        seeds = seeds_at(iteration)
        own = _size_of_batch(sampler, seeds.arguments, row_bytes, fits, go_on)
        size = size.at_least(own)
        if smaller is None:
            count = len(seeds.input_id)
            parts = max(1, -(-_rows_bytes(own, row_bytes) // _TRIAL_BYTES))
            while parts < count and not fits(own.scaled(1 / parts)):
                parts *= 2
            fewer = seeds.first(max(1, count // parts))
            smaller = fewer, sampler.sample(*fewer.arguments)
    return size.scaled(_MORE), smaller


def _rows_bytes(batch: BatchSize, row_bytes: Mapping[str, int]) -> int:
    return batch.mixed_bytes or batch.nodes * row_bytes.get(NODE, 0)


def _size_of_batch(
    sampler: Any,
    arguments: tuple[Any, ...],
    row_bytes: Mapping[str, int],
    fits: Callable[[BatchSize], bool],
    go_on: Callable[[], None],
) -> BatchSize:
    """The size of the sample of ``arguments``: of all of it, unless its parts show that it does not
    fit. Four times the seeds have at most four times the nodes, of which some are the same."""
    before = None
    for left in range(_NUM_PARTS, 0, -1):
        go_on()
        part = size_of(sampler.sample(*_every(4**left, arguments)), row_bytes)
        growth = 4.0 if before is None else min(4.0, max(_LEAST_GROWTH, part.ratio(before)))
        whole = part.scaled(growth**left)
        if fits(whole):
            break
        if left == 1 or not fits(part.scaled(_LEAST_GROWTH if before is None else growth)):
            return whole
        before = part
    go_on()
    return size_of(sampler.sample(*arguments), row_bytes)


def _every(number: int, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments of a sampler with one of ``number`` seeds, and its time."""

    def some(values: Any) -> Any:
        if isinstance(values, Mapping):
            return {name: own[::number].contiguous() for name, own in values.items()}
        return None if values is None else values[::number].contiguous()

    seeds, name, *times_and_others = arguments
    return some(seeds), name, *map(some, times_and_others[:1]), *times_and_others[1:]


def size_of(graph: SampledGraph, row_bytes: Mapping[str, int]) -> BatchSize:
    """The size of a sampled graph with rows of ``row_bytes`` by node type."""
    mixed = 0
    if graph.types is not None:
        counts = graph.types.num_sampled_nodes
        mixed = sum(sum(counts[name]) * each for name, each in row_bytes.items())
    num_expanded = len(graph.indptr) - 1
    values = sum(each.nbytes for each in (graph.batch, graph.edge_weight) if each is not None)
    return BatchSize(len(graph.n_id), graph.edge_index.size(1), num_expanded, mixed, values)
