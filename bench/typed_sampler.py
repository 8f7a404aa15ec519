"""Edges sampled per second of a graph with types: ``python bench/typed_sampler.py``.

A synthetic graph of four node types and six edge types with power-law degrees. One thread samples
the same batches in turn by every way of drawing: any neighbours in one subgraph; with a subgraph
for each seed; with times, any or the latest; in proportion to weights. The median over ``--rounds``
is reported, after a round to warm up, in CPU seconds too: other load changes these less. With
``--peer-python``, an environment with DGL 2.1, DGL and GraphBolt then sample the same batches.
Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import BATCH_SIZE, BENCH, FANOUTS, numbers, parser, publish, run_program
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType, NodeSpace, TypedMap
from lsm.sampler.name import BatchName
from lsm.sampler.typed_neighbor import TypedNeighborSampler, TypedTopology

RELATIONS: list[EdgeType] = [
    ("paper", "cites", "paper"),
    ("author", "writes", "paper"),
    ("paper", "written_by", "author"),
    ("institute", "employs", "author"),
    ("topic", "of", "paper"),
    ("paper", "has", "topic"),
]
SHARES = {"paper": 0.6, "author": 0.35, "institute": 0.01, "topic": 0.04}
INPUT_TYPE = "paper"
WAYS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "disjoint": {"disjoint": True},
    "temporal uniform": {"disjoint": True, "temporal_strategy": "uniform"},
    "temporal last": {"disjoint": True, "temporal_strategy": "last"},
    "weighted": {},
}


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, default=1_000_000)
    arguments.add_argument("--edges", type=int, default=16_000_000)
    arguments.add_argument("--fanouts", default=FANOUTS)
    arguments.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    arguments.add_argument("--batches", type=int, default=50)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--peer-python", help="the python of an environment with DGL 2.1")
    return arguments.parse_args()


def power_law(count: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """``size`` of ``count`` nodes, drawn with weight 1 / rank^0.75 over shuffled ranks."""
    weight = 1 / np.arange(10, count + 10) ** 0.75
    rng.shuffle(weight)
    cumulative = np.cumsum(weight) / weight.sum()
    return np.minimum(np.searchsorted(cumulative, rng.random(size)), count - 1)


def make_graph(num_nodes: int, num_edges: int) -> TypedTopology:
    """The graph, with times and weights of edges."""
    rng = np.random.default_rng(0)
    counts = {name: max(1, int(num_nodes * share)) for name, share in SHARES.items()}
    topologies, times, weights = TypedMap[EdgeType, Topology](), {}, {}
    for each in RELATIONS:
        size = num_edges // len(RELATIONS)
        sources = power_law(counts[each[0]], size, rng)
        ends = power_law(counts[each[2]], size, rng)
        stamps = rng.integers(0, 1000, size)
        order = np.lexsort((stamps, ends))
        indptr = np.zeros(counts[each[2]] + 1, np.int64)
        np.cumsum(np.bincount(ends, minlength=counts[each[2]]), out=indptr[1:])
        topologies[each] = Topology(
            torch.from_numpy(indptr), torch.from_numpy(sources[order].astype(np.int32))
        )
        times[each] = torch.from_numpy(stamps[order])
        weights[each] = torch.from_numpy(rng.random(size).astype(np.float32) + 0.01)
    return TypedTopology(NodeSpace(counts), topologies, weights, times)


def measure_peers(
    graph: TypedTopology, batches: list[torch.Tensor], args: argparse.Namespace
) -> dict:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        facts = {
            "counts": graph.space.counts,
            "edge_types": list(graph.topologies),
            "input_type": INPUT_TYPE,
        }
        (folder / "graph.json").write_text(json.dumps(facts))
        for number, topology in enumerate(graph.topologies.values()):
            np.save(folder / f"{number}-indptr.npy", topology.indptr)
            np.save(folder / f"{number}-indices.npy", topology.indices)
        np.save(folder / "seeds.npy", torch.stack(batches))
        script = BENCH / "peers" / "dgl_typed_sampler.py"
        options = ["--fanouts", args.fanouts, "--repeats", args.rounds]
        return run_program([args.peer_python, script, "--graph", folder, *options])


def main() -> None:
    args = parse_args()
    graph = make_graph(args.nodes, args.edges)
    num_papers = graph.space.counts[INPUT_TYPE]
    generator = torch.Generator().manual_seed(0)
    batches = [
        torch.randperm(num_papers, generator=generator)[: args.batch_size]
        for _ in range(args.batches)
    ]
    seed_times = torch.full((args.batch_size,), 900)  # of 1,000: a tenth of the edges is later
    samplers = {
        way: TypedNeighborSampler(
            TypedTopology(
                graph.space,
                graph.topologies,
                graph.weights if way == "weighted" else None,
                graph.times if way.startswith("temporal") else None,
            ),
            numbers(args.fanouts),
            input_type=INPUT_TYPE,
            **options,
        )
        for way, options in WAYS.items()
    }
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    cpu_rates: dict[str, list[float]] = {way: [] for way in WAYS}
    edges_per_batch = {}
    for round_number in range(args.rounds + 1):
        for way, sampler in samplers.items():
            times = seed_times if way.startswith("temporal") else None
            start, cpu_start, num_edges = time.perf_counter(), time.thread_time(), 0
            for number, seeds in enumerate(batches):
                sampled = sampler.sample(seeds, BatchName(iteration=number), times)
                num_edges += sampled.edge_index.size(1)
            edges_per_batch[way] = num_edges / args.batches
            if round_number > 0:
                rates[way].append(num_edges / (time.perf_counter() - start))
                cpu_rates[way].append(num_edges / (time.thread_time() - cpu_start))
    results: dict[str, Any] = {
        way: {
            "edges_per_s": statistics.median(rates[way]),
            "edges_per_cpu_s": statistics.median(cpu_rates[way]),
            "edges_per_batch": edges_per_batch[way],
        }
        for way in WAYS
    }
    if args.peer_python:
        results["peers"] = measure_peers(graph, batches, args)
    publish(results, args)


if __name__ == "__main__":
    main()
