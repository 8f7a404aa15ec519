"""Training iterations per second of GraphSAGE through NeighborLoader, from memory or from disk.

``python bench/training.py --store DIR --engine memory,io_uring --fio-iops 75000``

The model is GraphSAGE with mean aggregation, Adam and cross entropy; the loop is that of a user of
the Python interface. Each engine trains the same batches: after a warm-up, rounds of ``--iters``
iterations are timed, and the median round is reported with its spread. The page cache of the
features is dropped first. With ``--fio-iops`` (random reads per second of this drive, from ``lsm
bench storage --fio``) the record also has the time of the storage reads alone. Prints one JSON
record. Memory is that of this process: resident anonymous and file-backed pages.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.nn import functional

import lsm
from common import BATCH_SIZE, FANOUTS, about, drop_cache, numbers, parser, publish, spread
from lsm.cache.options import CacheOptions
from lsm.config.load import parse_config
from lsm.core.units import parse_bytes
from lsm.loader.batch import Batch
from lsm.nn.models import build_model
from lsm.nn.options import ModelOptions
from lsm.storage.disk_profile import load_profile
from lsm.train.read_settings import ReadSettings


def auto_or(parse):
    """``auto``, or the result of ``parse``."""
    return lambda text: text if text == "auto" else parse(text)


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--store", type=Path, required=True)
    arguments.add_argument("--engine", default="memory")
    arguments.add_argument("--fanouts", default=FANOUTS, help="per hop, seeds first")
    arguments.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    arguments.add_argument("--hidden", type=int, default=128)
    arguments.add_argument("--lr", type=float, default=0.003)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--sample-threads", type=int, default=1)
    arguments.add_argument("--profile", type=Path, help="the device's; auto follows from it")
    arguments.add_argument("--prefetch", type=auto_or(int), default=4)
    arguments.add_argument("--merge-iterations", type=auto_or(int), default=1)
    arguments.add_argument("--max-gap-bytes", type=auto_or(parse_bytes), default=0)
    arguments.add_argument("--max-read-bytes", type=auto_or(parse_bytes), default="32KiB")
    arguments.add_argument("--staging-bytes", type=parse_bytes, default=parse_bytes("256MiB"))
    arguments.add_argument("--cache-policy", default="none", help="none: read every row")
    arguments.add_argument("--cache-bytes", type=parse_bytes, default=parse_bytes("512MiB"))
    arguments.add_argument("--victim-bytes", type=parse_bytes, default=0, help="of a pool; 0: none")
    arguments.add_argument("--window", type=int, default=256)
    arguments.add_argument("--iters", type=int, default=50)
    arguments.add_argument("--warmup", type=int, default=10)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--fio-iops", type=float)
    return arguments.parse_args()


def endless(loader: lsm.NeighborLoader) -> Iterator[Batch]:
    epoch = 0
    while True:
        yield from loader.iterate(epoch)
        epoch += 1


def memory_kib() -> dict[str, int]:
    """Resident memory of this process and its peak, in KiB."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    names = {"VmHWM": "peak", "RssAnon": "anonymous", "RssFile": "file_backed"}
    return {name: int(fields[field].split()[0]) for field, name in names.items()}


def read_settings(args: argparse.Namespace) -> ReadSettings:
    """The settings of reads, from the arguments with the names of `lsm train`'s keys."""
    names = ("max_read_bytes", "max_gap_bytes", "merge_iterations")
    storage = {name: getattr(args, name) for name in names}
    sections = {"storage": storage, "cache": {"policy": args.cache_policy}}
    config = parse_config(sections | {"loader": {"prefetch": args.prefetch}})
    return ReadSettings.of(config, load_profile(args.profile) if args.profile else None)


def cache_options(args: argparse.Namespace) -> CacheOptions | None:
    if args.cache_policy == "none":
        return None
    return CacheOptions(
        policy=args.cache_policy,
        bytes=args.cache_bytes,
        window=args.window,
        victim_mode="pool" if args.victim_bytes else "none",
        victim_bytes=args.victim_bytes,
    )


def measure(store: lsm.GraphStore, engine: str, args: argparse.Namespace) -> dict:
    settings = read_settings(args)
    fanouts = numbers(args.fanouts)
    drop_cache(*store.feature_paths)
    torch.manual_seed(0)
    config = ModelOptions(name="graphsage", hidden_dim=args.hidden, dropout=0.0)
    model = build_model(config, store.feature_dim, store.num_classes, len(fanouts))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)

    def step(batch: Batch) -> None:
        loss = functional.cross_entropy(model(batch), batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with lsm.NeighborLoader(
        store,
        fanouts,
        "train",
        args.batch_size,
        shuffle=True,
        drop_last=True,
        storage=settings.options.model_copy(update={"engine": engine}),
        cache=cache_options(args),
        num_threads=args.sample_threads,
        prefetch=settings.read_ahead,
        staging_bytes=args.staging_bytes,
    ) as loader:
        batches = endless(loader)
        for _ in range(args.warmup):
            step(next(batches))
        before, seconds = loader.stats(), []
        for _ in range(args.rounds):
            start = time.perf_counter()
            for _ in range(args.iters):
                step(next(batches))
            seconds.append(time.perf_counter() - start)
        after = loader.stats()
        batches.close()
    grown = {key: after[key] - before[key] for key in ("rows", "reads", "bytes_read", "wait_secs")}
    iterations = args.rounds * args.iters
    result = {
        "engine": engine,
        **spread("iterations_per_s", [args.iters / secs for secs in seconds]),
        "seconds_per_iteration": sum(seconds) / iterations,
        "rows_per_iteration": grown["rows"] / iterations,
        "reads_per_iteration": grown["reads"] / iterations,
        "bytes_read_per_iteration": grown["bytes_read"] / iterations,
        "read_ahead": dataclasses.asdict(settings.read_ahead),
        "storage": settings.options.model_dump(mode="json"),
        "wait_share": grown["wait_secs"] / sum(seconds),
        "memory_kib": memory_kib(),
    }
    if args.cache_policy != "none":
        counted = ("requests", "misses")
        requests, misses = (after[f"cache_{name}"] - before[f"cache_{name}"] for name in counted)
        result["hit_ratio"] = 1 - misses / max(1, requests)
        result["rows_per_iteration"] = requests / iterations
    if args.fio_iops and engine not in ("memory", "mmap"):
        result["read_seconds_per_iteration"] = result["reads_per_iteration"] / args.fio_iops
    return result


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    store = lsm.GraphStore.open(args.store)
    results = [measure(store, engine, args) for engine in args.engine.split(",")]
    publish({"graph": about(store), "training": results}, args)


if __name__ == "__main__":
    main()
