"""GPU code against the hardware's ceiling: ``python bench/gpu.py``; prints one JSON record.

gather: random rows of a cache in GPU memory, of 256 bytes to 4 KiB, against a copy of as many bytes
within it; without locks, as plans allow, and with a reference count per line at device and at
system scope. cold: rows
in page-locked memory through the executor, by both ways of ``storage.staging``, against a copy of
as many bytes to the GPU. planner: ids per second with the sets on the host and on the GPU, plans
alone and with the pushes that go before. sample: edges per second on the GPU, the topology in its
memory and read over UVA, one batch at a time and several, against host threads. training: see
gpu_training.py. embed: see gpu_embed.py. Medians over ``--rounds`` with their spread, after one
that is not counted.
``--count`` measures nothing: it counts launches, waits and bytes on the emulated GPU.
``--check`` compares every result with the host's. ``reach`` in the record has what is aimed at. A
part that fails says so in the record, and the others are measured all the same.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from common import make_record, parser, spread
from lsm import native
from lsm.cache.planner import Planner, PlannerConfig, Source
from lsm.cache.staging import OPTIONS
from lsm.core.device import gpu_problem
from lsm.embed.models.models import MODELS
from lsm.graph.topology import Topology
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler, place_topology
from lsm.storage.engine import Storage

GATHER_SETS = 3  # of ids, in turn
GPU = torch.device("cuda", 0)  # tests set the host, where twins replace kernels


def number() -> int:
    """The number of that device in native code."""
    return GPU.index if GPU.type == "cuda" else native.TWIN


def on_gpu() -> bool:
    return GPU.type == "cuda"


def synchronize() -> None:
    if on_gpu():
        torch.cuda.synchronize()


def timed(work: Callable[[], None], rounds: int, repeats: int = 1) -> list[float]:
    """Seconds of ``work``, which queues nothing, or only to the current stream. With ``repeats``,
    the mean over that many in a row, without waiting between launches."""
    seconds = []
    for _ in range(rounds + 1):
        synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        synchronize()
        seconds.append((time.perf_counter() - start) / repeats)
    return seconds[1:]


def rates(amount: float, seconds: list[float], unit: str) -> dict[str, float]:
    return spread(unit, [amount / secs for secs in seconds])


def bench_gather(options: argparse.Namespace) -> dict:
    """Rows of each size, out of as many bytes. Counts bytes read and written, as for the copy, so
    that the two compare."""
    copy = rate_of_copies(options)
    results: dict = {"copy": copy}
    for row_bytes in options.gather_bytes:
        rows = bench_gather_of(options, row_bytes)
        ratio = rows["locks_none"]["gb_per_s"] / copy["gb_per_s"]
        results[f"{row_bytes}_bytes"] = rows | {"ratio": ratio}
    return results


def rate_of_copies(options: argparse.Namespace) -> dict[str, float]:
    source = torch.empty(options.rows * 1024, dtype=torch.int32, device=GPU).random_()
    target = torch.empty_like(source)
    seconds = timed(lambda: target.copy_(source), options.rounds, 5)
    return rates(2 * source.numel() * 4 / 1e9, seconds, "gb_per_s")


def bench_gather_of(options: argparse.Namespace, row_bytes: int) -> dict:
    """``--lines`` and ``--rows`` are numbers of 4 KiB rows: of smaller ones there are more."""
    words, per_row = row_bytes // 4, 4096 // row_bytes
    lines = torch.empty(options.lines * per_row, words, dtype=torch.int32, device=GPU).random_()
    ids = [
        torch.randint(len(lines), (options.rows * per_row,), device=GPU) for _ in range(GATHER_SETS)
    ]
    out = torch.empty(len(ids[0]), words, dtype=torch.int32, device=GPU)
    references = torch.zeros(len(lines), dtype=torch.int32, device=GPU)
    stream = torch.cuda.current_stream().cuda_stream if on_gpu() else 0
    gb, turns, results = 2 * out.numel() * 4 / 1e9, itertools.count(), {}
    for locks in ("none", "device", "system"):

        def gather(locks: str = locks) -> None:
            wanted = ids[next(turns) % GATHER_SETS]
            native.gather_on(lines, wanted, out, references, locks, number(), stream)

        if options.check:
            out.zero_()
            native.gather_on(lines, ids[0], out, references, locks, number(), stream)
            if not torch.equal(out, lines[ids[0]]) or references.any():
                raise RuntimeError(f"the gather with locks={locks} is wrong")
        results[f"locks_{locks}"] = rates(gb, timed(gather, options.rounds, 5), "gb_per_s")
    return results


def bench_cold(options: argparse.Namespace, directory: Path) -> dict:
    """All rows come from storage; the time is that of their transfer from page-locked memory."""
    path = directory / "row.bin"  # the executor asks for a storage; nothing is read from it
    path.write_bytes(bytes(-(-options.row_bytes // 4096) * 4096))
    storage = Storage([path], num_rows=1, row_bytes=options.row_bytes, engine="posix")
    words = options.row_bytes // 4
    none = torch.empty(0, dtype=torch.int64)
    executor = native.GpuExecutor(
        storage.handle(),
        num_lines=0,
        victim_slots=0,
        prefetch_rows=0,
        static_rows=none,
        constant_rows=none,
        timeout_secs=60.0,
        device=number(),
    )
    staged = torch.empty(options.cold_rows, words, dtype=torch.int32, pin_memory=on_gpu()).random_()
    out = torch.empty(staged.shape, dtype=torch.int32, device=GPU)
    plan = native.Plan(
        iteration=0,
        source=torch.full((options.cold_rows,), Source.STORAGE, dtype=torch.uint8),
        moves={"slot": torch.full((options.cold_rows,), -1)},
    )

    def replay(staging: str) -> None:
        executor.set_staging(staging)
        executor.replay(plan, staged=staged, out=out)
        executor.synchronize()

    ways = {"copy_alone": lambda: out.copy_(staged, non_blocking=True)}
    ways |= {f"staging_{way}": partial(replay, way) for way in OPTIONS}
    gb = staged.numel() * 4 / 1e9
    results = {}
    for name, work in ways.items():
        if options.check:
            out.zero_()
            synchronize()
            work()
            if not torch.equal(out.cpu(), staged):
                raise RuntimeError(f"{name}: the rows from page-locked memory are wrong")
        results[name] = rates(gb, timed(work, options.rounds), "gb_per_s")
    best = max(results[f"staging_{way}"]["gb_per_s"] for way in OPTIONS)
    return results | {"ratio": best / results["copy_alone"]["gb_per_s"]}


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
    config = PlannerConfig(num_lines=options.planner_lines, window=window)
    lists = distinct_lists(options.nodes, options.ids, window + 2 * options.rounds)
    results, counters = {}, {}
    for sets in ("host", "device"):
        place = "twin" if sets == "device" and not on_gpu() else sets
        planner = Planner(config, sets=place, num_threads=options.host_threads)
        plan_secs, push_secs, counters[sets] = [], [], []
        for t in range(2 * options.rounds):
            start = time.perf_counter()
            for ids in lists[planner.num_pushed : t + window]:
                planner.push(ids)
            pushed = time.perf_counter()
            counters[sets].append(planner.plan().counters)
            plan_secs.append(time.perf_counter() - pushed)
            push_secs.append(pushed - start)
        # The first half fills the cache.
        both = [push + plan for push, plan in zip(push_secs, plan_secs, strict=True)]
        num_ids = statistics.mean(map(len, lists))
        results[sets] = {"threads": options.host_threads}
        for name, spent in (("plan_ids_per_s", plan_secs), ("ids_per_s", both)):
            results[sets] |= rates(num_ids, spent[options.rounds :], name)
    if options.check and counters["host"] != counters["device"]:
        raise RuntimeError("the plans of host and device differ")
    return results


def random_topology(num_nodes: int, num_edges: int) -> Topology:
    rng = np.random.default_rng(2)
    degrees = rng.multinomial(num_edges, np.full(num_nodes, 1 / num_nodes))
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(degrees, out=indptr[1:])
    indices = rng.integers(num_nodes, size=num_edges, dtype=np.int32)
    return Topology(indptr=torch.from_numpy(indptr), indices=torch.from_numpy(indices))


def bench_sample(options: argparse.Namespace) -> dict:
    graph = random_topology(options.nodes, options.edges)
    fanouts = [10, 5]
    rng = np.random.default_rng(3)  # a permutation of all nodes each would take minutes
    seeds = [
        torch.from_numpy(rng.choice(options.nodes, 1024, replace=False))
        for _ in range(options.rounds * options.host_threads)
    ]
    host = NeighborSampler(graph, fanouts)
    expected = host.sample(seeds[0], BatchName())

    def sample_all(sampler, threads: ThreadPoolExecutor, counts: list[int]) -> None:
        graphs = threads.map(
            lambda i: sampler.sample(seeds[i], BatchName(iteration=i)), range(len(seeds))
        )
        counts.append(sum(graph.edge_index.size(1) for graph in graphs))

    def measure(sampler, num_threads: int) -> dict:
        counts: list[int] = []
        with ThreadPoolExecutor(num_threads) as threads:
            spent = timed(lambda: sample_all(sampler, threads, counts), 3)
        return rates(counts[-1], spent, "edges_per_s") | {"threads": num_threads}

    results = {"host": measure(host, options.host_threads)}
    for placement in ("uva", "device"):
        placed = place_topology(graph, placement, GPU) if on_gpu() else graph
        for lanes in (1, options.sample_lanes):
            sampler = DeviceNeighborSampler(
                *(graph, placed, fanouts), device=number(), num_slots=lanes
            )
            sampled = sampler.sample(seeds[0], BatchName())
            if options.check and not torch.equal(sampled.edge_index, expected.edge_index):
                raise RuntimeError(f"the samples of host and GPU ({placement}) differ")
            results[f"{placement}_{lanes}"] = measure(sampler, lanes)
    best = max(results[f"uva_{lanes}"]["edges_per_s"] for lanes in (1, options.sample_lanes))
    return results | {"ratio": best / results["host"]["edges_per_s"]}


def reach(results: dict) -> dict:
    """Targets and measurements of the parts that were measured."""
    aims = {
        **{
            f"gather of hits of {key.replace('_', ' ')}, against a copy": ("gather", key, 0.85)
            for key in results.get("gather", {})
            if key.endswith("_bytes")
        },
        "cold rows, against a copy": ("cold", "ratio", 0.9),
        "ids pushed and planned per second": ("planner", "device", 200e6),
        "sampling over UVA, against host threads": ("sample", "ratio", 3),
        "training, against all features in GPU memory": ("training", "ratio", 0.9),
        **{
            f"embeddings, {name}: batches per second": (
                "embed",
                f"fastest_{name}",
                250 if model.comparator.is_distance else 500,
            )
            for name, model in MODELS.items()
        },
    }
    lines = {}
    for what, (part, key, least) in aims.items():
        if key not in results.get(part, {}):
            continue
        value = results[part][key]
        if isinstance(value, dict):
            value = value[{"planner": "ids_per_s", "gather": "ratio"}.get(part, "batches_per_s")]
        lines[what] = {"measured": value, "at_least": least, "reached": value >= least}
    return lines


def gpu_facts() -> dict:
    """The GPU, its driver and the toolkit of this build."""
    if not on_gpu():
        return {"name": "twin"}
    info, gpu = native.find_cuda(), torch.cuda.get_device_properties(GPU)
    return {
        "name": gpu.name,
        "capability": f"{gpu.major}.{gpu.minor}",
        "memory_gib": round(gpu.total_memory / 2**30),
        "driver_cuda": info.driver_version,
        "toolkit": info.toolkit_version,
    }


def training(options: argparse.Namespace, directory: Path) -> dict:
    from gpu_training import bench_training  # the other parts need no torch_geometric

    return bench_training(options, GPU, directory)


def embed(options: argparse.Namespace, _directory: Path) -> dict:
    from gpu_embed import bench_embed

    return bench_embed(options, GPU, timed, rates)


def run(parts: list[str], options: argparse.Namespace) -> dict:
    """The record, also written to ``--json`` after every part, in case a later one takes too
    long."""
    results = {"bench": "gpu", "gpu": gpu_facts()}
    for part in parts:
        start = time.perf_counter()
        try:
            with TemporaryDirectory() as directory:
                results[part] = PARTS[part](options, Path(directory))
        except Exception as error:
            traceback.print_exc()
            results[part] = {"error": f"{type(error).__name__}: {error}"}
        results[part]["seconds"] = time.perf_counter() - start
        results["reach"] = reach(results)
        made = make_record(results, options)
        if options.json:
            options.json.write_text(json.dumps(made, indent=1) + "\n")
        if on_gpu():
            torch.cuda.empty_cache()
    return made


PARTS = {
    "gather": lambda options, _directory: bench_gather(options),
    "cold": bench_cold,
    "planner": lambda options, _directory: bench_planner(options),
    "sample": lambda options, _directory: bench_sample(options),
    "training": training,
    "embed": embed,
}


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--row-bytes", type=int, default=4096, help="of cold rows")
    sizes = [256, 512, 1024, 2048, 4096]
    options.add_argument("--gather-bytes", type=int, nargs="+", default=sizes, help="of rows")
    options.add_argument("--lines", type=int, default=1_000_000, help="of 4 KiB, for gather")
    options.add_argument("--rows", type=int, default=400_000, help="of 4 KiB, per gather")
    options.add_argument("--cold-rows", type=int, default=100_000)
    options.add_argument("--planner-lines", type=int, default=1_000_000)
    options.add_argument("--ids", type=int, default=100_000, help="per list that is planned")
    options.add_argument("--nodes", type=int, default=10_000_000)
    options.add_argument("--edges", type=int, default=120_000_000)
    options.add_argument("--host-threads", type=int, default=16)
    options.add_argument("--sample-lanes", type=int, default=8, help="batches sampled at a time")
    options.add_argument("--train-nodes", type=int, default=4_000_000)
    options.add_argument("--train-dim", type=int, default=256, help="float32 values per row")
    options.add_argument("--skew", type=float, default=2.0)
    options.add_argument("--iterations", type=int, default=100, help="of training, per round")
    options.add_argument("--train-rounds", type=int, default=5)
    options.add_argument("--embed-edges", type=int, default=100_000, help="of a batch")
    options.add_argument("--embed-negatives", type=int, default=1000, help="of a chunk")
    options.add_argument("--embed-dim", type=int, default=100)
    options.add_argument("--embed-nodes", type=int, default=1_000_000)
    options.add_argument("--embed-relations", type=int, default=1000)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--only", nargs="+", choices=PARTS)
    options.add_argument("--check", action="store_true")
    options.add_argument("--count", action="store_true", help="on the emulated GPU; needs no other")
    return options.parse_args(arguments)


def main() -> None:
    options = parse_args()
    if options.count:  # a process of its own, with another native module
        command = [sys.executable, str(Path(__file__).with_name("gpu_counts.py"))]
        command += ["--json", str(options.json)] if options.json else []
        raise SystemExit(subprocess.run(command, check=False).returncode)
    problem = gpu_problem(GPU.index)
    if problem:
        raise SystemExit(f"no GPU to measure: {problem}")
    made = run(options.only or list(PARTS), options)
    print(json.dumps(made))
    if any("error" in made[part] for part in PARTS if part in made):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
