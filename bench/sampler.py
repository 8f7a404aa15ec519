"""Edges sampled per second: ``python bench/sampler.py --fanouts 10,5``; prints one JSON line.

The graph is a store's topology, read into memory or with ``--mapped`` as the loader maps it by
default, or a synthetic power-law graph. Each of ``--threads`` Python threads samples batches of
its own, as the loader does. After a warm-up round, every round samples the same batches; the median
over rounds is reported with its spread. ``--check`` first compares a few batches with the slow
reference.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from common import BATCH_SIZE, BENCH, FANOUTS, numbers, parser, publish, spread
from lsm.graph.topology import Topology
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler


def power_law_graph(num_nodes: int, num_edges: int, seed: int = 1) -> Topology:
    """Both ends of every edge drawn with weight 1 / rank^0.75 over shuffled ranks."""
    rng = np.random.default_rng(seed)
    weight = 1 / np.arange(10, num_nodes + 10) ** 0.75
    rng.shuffle(weight)
    cumulative = np.cumsum(weight) / weight.sum()
    ends = [
        np.minimum(np.searchsorted(cumulative, rng.random(num_edges)), num_nodes - 1)
        for _ in range(2)
    ]
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(np.bincount(ends[0], minlength=num_nodes), out=indptr[1:])
    indices = torch.from_numpy(ends[1].astype(np.int32))
    return Topology(indptr=torch.from_numpy(indptr), indices=indices)


def load_graph(options: argparse.Namespace) -> Topology:
    if options.store:
        from lsm.data.graph_store import GraphStore

        return GraphStore.open(options.store).topology(in_memory=not options.mapped)
    return power_law_graph(options.nodes, options.edges)


def seed_batches(num_nodes: int, options: argparse.Namespace) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    size = options.batch_size
    draws = (torch.randperm(num_nodes, generator=generator)[:size] for _ in range(options.batches))
    return list(draws)


def time_round(sampler: NeighborSampler, batches: list[torch.Tensor], num_threads: int) -> dict:
    def work(first: int) -> tuple[int, float]:
        edges, start = 0, time.thread_time()
        for i in range(first, len(batches), num_threads):
            edges += sum(sampler.sample(batches[i], BatchName(iteration=i)).num_sampled_edges)
        return edges, time.thread_time() - start

    with ThreadPoolExecutor(num_threads) as executor:
        start = time.perf_counter()
        edges, cpu_secs = zip(*executor.map(work, range(num_threads)), strict=True)
        secs = time.perf_counter() - start
    return {"edges": sum(edges), "secs": secs, "cpu_secs": sum(cpu_secs)}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--mapped", action="store_true", help="memory-map the store's topology")
    arguments.add_argument("--store", help="a store directory; default: a synthetic graph")
    arguments.add_argument("--nodes", type=int, default=1_000_000)
    arguments.add_argument("--edges", type=int, default=12_000_000)
    arguments.add_argument("--fanouts", default=FANOUTS)
    arguments.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    arguments.add_argument("--batches", type=int, default=200, help="batches per round")
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--threads", type=int, default=1, help="batches sampled at once")
    arguments.add_argument("--threads-per-batch", type=int, default=1)
    arguments.add_argument("--check", action="store_true")
    options = arguments.parse_args()

    fanouts = numbers(options.fanouts)
    graph = load_graph(options)
    sampler = NeighborSampler(graph, fanouts, num_threads=options.threads_per_batch)
    batches = seed_batches(len(graph.indptr) - 1, options)
    if options.check:
        sys.path.append(str(BENCH.parent / "tests"))
        import reference

        for i, seeds in enumerate(batches[:2]):
            sampled = sampler.sample(seeds, BatchName(iteration=i))
            reference.check_sample(graph.indptr, graph.indices, seeds, fanouts, sampled)
    time_round(sampler, batches, options.threads)
    rounds = [time_round(sampler, batches, options.threads) for _ in range(options.rounds)]
    rates = [r["edges"] / r["secs"] for r in rounds]
    results = {
        "bench": "sampler",
        "nodes": len(graph.indptr) - 1,
        "edges": len(graph.indices),
        "fanouts": fanouts,
        "batch_size": options.batch_size,
        "threads": options.threads,
        "threads_per_batch": options.threads_per_batch,
        "batches": options.batches,
        "checked": options.check,
        "edges_per_batch": rounds[0]["edges"] / options.batches,
        **spread("edges_per_s", rates),
        # Does not include threads other than the callers (--threads-per-batch).
        "edges_per_cpu_s": statistics.median(r["edges"] / r["cpu_secs"] for r in rounds),
    }
    publish(results, options)


if __name__ == "__main__":
    main()
