"""GPU kernels against the hardware's ceiling: ``python bench/gpu.py``; prints one JSON record.

gather: random rows of a cache in GPU memory, against a copy of as many bytes within it; without
locks, as plans allow, and with a reference count per line at device and at system scope. cold: rows
in page-locked memory through the executor, against a copy of as many bytes to the GPU. planner: ids
per second with the sets on the host and on the GPU (the next-use chain is the host's in both).
sample: a batch's edges per second on the GPU, the topology in its memory and read over UVA, against
host threads. Medians over ``--rounds`` with their spread, after one that is not counted.
``--check`` first compares every result with the host's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import torch

from lsm import native
from lsm.bench import record
from lsm.cache import Planner, PlannerConfig
from lsm.device import gpu_problem
from lsm.device_sampler import DeviceNeighborSampler, place_topology
from lsm.sampler import NeighborSampler
from lsm.storage import Storage

GPU = torch.device("cuda", 0)


def timed(work: Callable[[], None], rounds: int) -> dict[str, float]:
    """Seconds of ``work``, which leaves nothing queued, or only in the current stream."""
    seconds = []
    for _ in range(rounds + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    seconds = seconds[1:]
    return {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds)}


def rates(amount: float, seconds: dict[str, float], unit: str) -> dict[str, float]:
    return {
        unit: amount / seconds["median"],
        f"{unit}_min": amount / seconds["max"],
        f"{unit}_max": amount / seconds["min"],
    }


def bench_gather(options: argparse.Namespace) -> dict:
    """Bytes read and written, as for the copy, so that the two compare."""
    words = options.row_bytes // 4
    lines = torch.empty(options.lines, words, dtype=torch.int32, device=GPU).random_()
    ids = torch.randint(options.lines, (options.rows,), device=GPU)
    out = torch.empty(options.rows, words, dtype=torch.int32, device=GPU)
    source, target = torch.empty_like(out), torch.empty_like(out)
    references = torch.zeros(options.lines, dtype=torch.int32, device=GPU)
    stream = torch.cuda.current_stream().cuda_stream
    gb = 2 * out.numel() * 4 / 1e9
    results = {"copy": rates(gb, timed(lambda: target.copy_(source), options.rounds), "gb_per_s")}
    for locks in ("none", "device", "system"):

        def gather(locks: str = locks) -> None:
            native.gather_on(lines, ids, out, references, locks, GPU.index, stream)

        if options.check:
            out.zero_()
            gather()
            if not torch.equal(out, lines[ids]) or references.any():
                raise RuntimeError(f"the gather with locks={locks} is wrong")
        results[f"locks_{locks}"] = rates(gb, timed(gather, options.rounds), "gb_per_s")
    ours, copy = results["locks_none"]["gb_per_s"], results["copy"]["gb_per_s"]
    return results | {"ratio": ours / copy}


def bench_cold(options: argparse.Namespace, directory: Path) -> dict:
    """All rows from storage: what is timed is their way from page-locked memory."""
    path = directory / "row.bin"  # the executor asks for a storage; nothing is read from it
    path.write_bytes(bytes(-(-options.row_bytes // 4096) * 4096))
    storage = Storage([path], num_rows=1, row_bytes=options.row_bytes, engine="posix")
    words = options.row_bytes // 4
    none = torch.empty(0, dtype=torch.int64)
    executor = native.DeviceExecutor(
        storage.handle(),
        num_lines=0,
        victim_slots=0,
        prefetch_rows=0,
        static_ids=none,
        constant_ids=none,
        timeout_secs=60.0,
        device=GPU.index,
    )
    staged = torch.empty(options.cold_rows, words, dtype=torch.int32, pin_memory=True).random_()
    out = torch.empty(staged.shape, dtype=torch.int32, device=GPU)
    names = ("evict_line", "evict_slot", "evict_word", "insert_position", "insert_line")
    moves = dict.fromkeys((*names, "spill_position", "spill_slot", "spill_word"), none)
    source = torch.full((options.cold_rows,), 4, dtype=torch.uint8)  # storage
    slot = torch.full((options.cold_rows,), -1)

    def replay() -> None:
        executor.replay(iteration=0, source=source, slot=slot, **moves, staged=staged, out=out)
        executor.synchronize()

    def copy() -> None:
        out.copy_(staged, non_blocking=True)

    if options.check:
        out.zero_()
        torch.cuda.synchronize()
        replay()
        if not torch.equal(out.cpu(), staged):
            raise RuntimeError("the rows from page-locked memory are wrong")
    gb = staged.numel() * 4 / 1e9
    results = {
        name: rates(gb, timed(work, options.rounds), "gb_per_s")
        for name, work in (("copy", copy), ("replay", replay))
    }
    return results | {"ratio": results["replay"]["gb_per_s"] / results["copy"]["gb_per_s"]}


def distinct_lists(num_nodes: int, num_ids: int, count: int) -> list[torch.Tensor]:
    rng = np.random.default_rng(1)
    lists = []
    for _ in range(count):
        drawn = (num_nodes * rng.random(2 * num_ids) ** 3).astype(np.int64)
        ids, _ = native.unique_relabel(torch.from_numpy(drawn))
        lists.append(ids[:num_ids].clone())
    return lists


def bench_planner(options: argparse.Namespace) -> dict:
    window = 16
    config = PlannerConfig(options.planner_lines, window=window)
    lists = distinct_lists(options.nodes, options.ids, window + 2 * options.rounds)
    planners = {sets: Planner(config, sets=sets) for sets in ("host", "device")}
    seconds = {sets: [] for sets in planners}
    counters = {sets: [] for sets in planners}
    for sets, planner in planners.items():
        for t in range(2 * options.rounds):
            for ids in lists[planner.num_pushed : t + window]:
                planner.push(ids)
            start = time.perf_counter()
            counters[sets].append(planner.plan().counters)
            seconds[sets].append(time.perf_counter() - start)
    if options.check and counters["host"] != counters["device"]:
        raise RuntimeError("the plans of host and device differ")
    results = {}
    for sets, spent in seconds.items():
        spent = spent[options.rounds :]  # the first half fills the cache
        median = {"median": statistics.median(spent), "min": min(spent), "max": max(spent)}
        results[sets] = rates(statistics.mean(map(len, lists)), median, "plan_ids_per_s")
    return results


def random_topology(num_nodes: int, num_edges: int) -> SimpleNamespace:
    rng = np.random.default_rng(2)
    degrees = rng.multinomial(num_edges, np.full(num_nodes, 1 / num_nodes))
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(degrees, out=indptr[1:])
    indices = rng.integers(num_nodes, size=num_edges, dtype=np.int32)
    return SimpleNamespace(indptr=torch.from_numpy(indptr), indices=torch.from_numpy(indices))


def bench_sample(options: argparse.Namespace) -> dict:
    graph = random_topology(options.nodes, options.edges)
    fanouts = [10, 5]
    rng = np.random.default_rng(3)  # a permutation of all nodes each would take minutes
    seeds = [
        torch.from_numpy(rng.choice(options.nodes, 1024, replace=False))
        for _ in range(options.rounds * options.host_threads)
    ]
    host = NeighborSampler(graph, fanouts)
    results, expected = {}, host.sample(seeds[0], epoch=0, iteration=0)
    for placement in ("uva", "device"):
        placed = place_topology(graph, placement, GPU)
        sampler = DeviceNeighborSampler(graph, placed, fanouts, device=GPU.index, output=GPU)
        sampled = sampler.sample(seeds[0], epoch=0, iteration=0)
        if options.check and not torch.equal(sampled.edge_index.cpu(), expected.edge_index):
            raise RuntimeError(f"the samples of host and GPU ({placement}) differ")

        def sample(sampler: DeviceNeighborSampler = sampler) -> None:
            sampler.sample(seeds[0], epoch=0, iteration=0)

        spent = timed(sample, options.rounds)
        results[placement] = rates(expected.edge_index.size(1), spent, "edges_per_s")
    with ThreadPoolExecutor(options.host_threads) as threads:

        def sample_all() -> None:
            graphs = threads.map(lambda i: host.sample(seeds[i], epoch=0, iteration=i), every)
            counts.append(sum(graph.edge_index.size(1) for graph in graphs))

        counts, every = [], range(len(seeds))
        spent = timed(sample_all, 3)
    results["host"] = rates(counts[-1], spent, "edges_per_s") | {"threads": options.host_threads}
    host_rate = results["host"]["edges_per_s"]
    return results | {"uva_ratio": results["uva"]["edges_per_s"] / host_rate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--row-bytes", type=int, default=4096)
    parser.add_argument("--lines", type=int, default=1_000_000, help="of the cache, for gather")
    parser.add_argument("--rows", type=int, default=400_000, help="per gather")
    parser.add_argument("--cold-rows", type=int, default=100_000)
    parser.add_argument("--planner-lines", type=int, default=1_000_000)
    parser.add_argument("--ids", type=int, default=100_000, help="per list that is planned")
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--edges", type=int, default=120_000_000)
    parser.add_argument("--host-threads", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=["gather", "cold", "planner", "sample"])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    problem = gpu_problem(GPU.index)
    if problem:
        parser.error(f"no GPU to measure: {problem}")

    chosen = options.only or ["gather", "cold", "planner", "sample"]
    results = {"bench": "gpu", "gpu": torch.cuda.get_device_name(GPU)}
    if "gather" in chosen:
        results["gather"] = bench_gather(options)
    if "cold" in chosen:
        with TemporaryDirectory() as directory:
            results["cold"] = bench_cold(options, Path(directory))
    if "planner" in chosen:
        results["planner"] = bench_planner(options)
    if "sample" in chosen:
        results["sample"] = bench_sample(options)
    print(json.dumps(record.make(results, vars(options))))


if __name__ == "__main__":
    main()
