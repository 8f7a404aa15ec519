"""Host memory of sampled graphs, and of the threads that sample them."""

from __future__ import annotations

from collections.abc import Mapping
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


def graph_bytes(batch: BatchSize) -> int:
    """Memory of a batch's graph in training."""
    return 16 * batch.edges + 8 * (batch.nodes + batch.expanded)


def packed_bytes(batch: BatchSize) -> int:
    """Memory of a batch's graph while it waits in the window."""
    return 4 * batch.edges + 8 * (batch.nodes + batch.expanded)


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
    return int(HEADROOM * output) + 16 * (batch.nodes + batch.edges)


def largest_batch(
    sampler: Any, schedule: SeedSource, row_bytes: Mapping[str, int]
) -> tuple[BatchSize, tuple[Any, SampledGraph] | None]:
    """The size of the largest batch of ``schedule``, judged by its first ones, and seeds with their
    graph, whose rows, of ``row_bytes`` by node type, are small enough to try a step on; None
    without iterations."""
    seeds_at = schedule.epoch(0)
    size, smaller = BatchSize(), None
    for iteration in range(min(_NUM_SAMPLED, schedule.num_iterations)):
        seeds = seeds_at(iteration)
        graph = sampler.sample(*seeds.arguments)
        own = size_of(graph, row_bytes)
        size = size.at_least(own)
        if smaller is None:
            is_typed = graph.types is not None
            rows_bytes = own.mixed_bytes if is_typed else own.nodes * row_bytes[NODE]
            parts = max(1, -(-rows_bytes // _TRIAL_BYTES))
            fewer = seeds.first(max(1, len(seeds.input_id) // parts))
            smaller = fewer, sampler.sample(*fewer.arguments)
    return size.scaled(_MORE), smaller


def size_of(graph: SampledGraph, row_bytes: Mapping[str, int]) -> BatchSize:
    """The size of a sampled graph with rows of ``row_bytes`` by node type."""
    mixed = 0
    if graph.types is not None:
        counts = graph.types.num_sampled_nodes
        mixed = sum(sum(counts[name]) * each for name, each in row_bytes.items())
    num_expanded = len(graph.indptr) - 1
    return BatchSize(len(graph.n_id), graph.edge_index.size(1), num_expanded, mixed)
