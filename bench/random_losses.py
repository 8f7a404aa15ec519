"""Random trainings whose losses must be equal, bit for bit: ``python bench/random_losses.py -h``.

A seed draws a graph, a task, a way of sampling, a network and a number of ranks, which decide the
losses; the losses of a run from memory are the reference. Runs of the same training follow, with an
engine, a cache, its tiers, links between ranks, threads and budgets of their own, some of them
killed on the way and continued. A difference or an error is printed with the keys that repeat it.
Exit status 1 if there is one.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from losses import ROOT, environment_of, losses_of, run_lsm

from common import parser, publish

FIXED = [
    *("device=cpu", "train.num_threads=1", "model.hidden_dim=16", "metrics.loggers=[]"),
    *("storage.profile=none", "dist.timeout_secs=60", "comm.timeout_secs=60"),
]
GRAPHS = {
    "plain": "--nodes 4001 --dim 37 --classes 6 --avg-degree 9",
    "wide": "--nodes 3011 --dim 1030 --classes 4 --dtype float16 --stripes 3",
    "typed": "--nodes 5003 --dim 20 --classes 5 --types 3",
}
LINKED = {"plain": (), "typed": ("--edge-type", "type1,of_type1,target")}
MODELS = dict.fromkeys(("plain", "wide"), ("graphsage", "gcn", "gat"))
MODELS["typed"] = ("rsage", "rgcn", "rgat", "hgt")
# Keys that decide the losses, and their values.
TRAINING = {
    "train.seed": range(100),
    "train.accumulate": (1, 1, 3),
    "train.eval_every": (1, 1, 2),
    "train.schedule": ("constant", "cosine"),
    "sampler.num_neighbors": ("[4]", "[5, 3]", "[3, 2, 2]", "[-1, 2]"),
}
KINDS = {
    "neighbor": {"sampler.disjoint": ("true", "false", "false")},
    "labor": {
        "sampler.layer_dependency": ("true", "false"),
        "sampler.batch_dependency": (1, 3, 8),
    },
    "ladies": {"sampler.num_neighbors": ("[128, 90]",), "model.name": ("graphsage",)},
}
NODES = {"train.batch_size": (33, 64, 200, 500), "train.epochs": (3,)}
NEGATIVES = {
    **dict.fromkeys(("uniform", "degree", "joint"), ("infonce", "bce", "bpr")),
    **dict.fromkeys(("inbatch", "resident"), ("infonce",)),
}
LINKS = {
    "links.num_negatives": (7, 32),
    "links.eval_candidates": (100,),
    "links.scorer": ("dot", "distmult", "mlp"),
    "links.resident_iterations": (2, 8),
    "train.batch_size": (500, 1000, 3000),
    "train.epochs": (2,),
    "sampler.disjoint": ("false",),
}
# Keys that move no loss.
ENGINES = ("memory", "mmap", "posix", "io_uring", "io_uring", "nvme", "auto")
READS = {
    "data.topology": ("auto", "mmap", "memory"),
    "storage.max_gap_bytes": ("auto", 0, "4KiB", "20KiB"),
    "storage.max_read_bytes": ("auto", "8KiB", "64KiB"),
    "storage.merge_iterations": ("auto", "half", 3),
    "storage.direct": ("auto", "off"),
    "storage.queue_depth": (1, 8, 128),
    "loader.num_threads": (1, 2, 4),
    "loader.prefetch": ("auto", 1, 2, 7, 20),
    "loader.staging_bytes": ("auto", "1MiB", "20MiB"),
    "checkpoint.every_steps": (0, 3, 5),
}
CACHE = {
    "cache.policy": (
        *("round_robin", "random", "lru", "clock", "sieve", "s3fifo", "lfu", "window", "static"),
        *("dynamic", "hybrid", "lookahead", "lookahead", "auto"),
    ),
    "cache.ways": (1, 2, 8, 32, 64),
    "cache.window": (1, 2, 8, 33, 256),
    "cache.bytes": ("auto", "40KiB", "300KiB", "2MiB"),
    "cache.victim.mode": ("auto", "none", "pool", "pool", "queues"),
    "cache.victim.bytes": ("auto", "60KiB", "1MiB"),
    "cache.victim.prefetch": (0, 1, 4, 9),
    "cache.score": ("auto", "in_degree", "reverse_pagerank"),
    "cache.constant.bytes": (0, 0, "64KiB"),
    "cache.static.bytes": (0, 0, "32KiB"),
    "memory.bytes": ("auto", "auto", "2GiB"),
}
SHARED = {
    "comm.mode": ("shared", "shared", "independent", "partition-aware"),
    "comm.owner": ("mix64", "stride"),
    "comm.transport": ("auto", "shm", "gloo"),
    "comm.group": ("world", "node"),
}
KILL_SECS = 60
RUN_SECS = 600


def parse_args() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--seed", type=int, default=0, help="of the first training")
    options.add_argument("--trainings", type=int, default=10, help="number of seeds")
    options.add_argument("--runs", type=int, default=3, help="of a training, next to the reference")
    options.set_defaults(tree=ROOT, python=sys.executable, timeout_secs=RUN_SECS)
    return options.parse_args()


def make_stores(args: argparse.Namespace, folder: Path) -> None:
    """Small graphs, and splits of the links of some."""
    for name, shape in GRAPHS.items():
        run_lsm(args, 1, "data", "synth", *shape.split(), "--out", folder / name)
    for name, options in LINKED.items():
        run_lsm(args, 1, "data", "split-links", folder / name, *options)


def chosen(draw: random.Random, table: Mapping[str, Any]) -> dict[str, Any]:
    """A value of each key."""
    return {key: draw.choice(values) for key, values in table.items()}


def training(draw: random.Random, folder: Path) -> dict[str, Any]:
    """The keys that decide the losses, but for the number of ranks."""
    is_link = draw.random() < 0.4
    graph = draw.choice([*(LINKED if is_link else GRAPHS)])
    may_be_ladies = graph != "typed" and not is_link
    kind = draw.choice(("neighbor", "neighbor", "labor", "ladies" if may_be_ladies else "labor"))
    keys = {"data.path": folder / graph, "train.lr": 0.01, "sampler.kind": kind}
    keys |= {"model.name": draw.choice(MODELS[graph])}
    keys |= chosen(draw, TRAINING) | chosen(draw, KINDS[kind])
    if not is_link:
        return keys | chosen(draw, NODES)
    negatives = draw.choice([*NEGATIVES])
    keys |= {"train.task": "link", "links.negatives": negatives}
    return keys | {"links.loss": draw.choice(NEGATIVES[negatives])} | chosen(draw, LINKS)


def way(draw: random.Random, ranks: int) -> dict[str, Any]:
    """Keys that move no loss."""
    engine = draw.choice(ENGINES)
    keys = {"storage.engine": engine} | chosen(draw, READS)
    if engine == "memory" or draw.random() < 0.15:
        return keys
    keys |= chosen(draw, CACHE)
    return keys | chosen(draw, SHARED) if ranks > 1 else keys


def run(
    args: argparse.Namespace,
    draw: random.Random,
    ranks: int,
    keys: list[str],
    run_dir: Path,
    stops: int,
) -> dict:
    """The losses of one training, stopped and continued ``stops`` times, if it is not done
    before."""
    command = ["train", "base", *keys, f"run.dir={run_dir}"]
    result = run_dir / "result.json"
    for _ in range(stops):
        if not result.exists():
            stop(args, draw, ranks, command, run_dir / "metrics.jsonl")
    if not result.exists():
        run_lsm(args, ranks, *command)
    return losses_of(run_dir)


def stop(
    args: argparse.Namespace, draw: random.Random, ranks: int, command: list[str], metrics: Path
) -> None:
    """Starts a run, and ends it by SIGTERM or SIGKILL some time after its first new record."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    size = _size(metrics)
    job = subprocess.Popen(
        [args.python, *launcher, "-m", "lsm", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment_of(args.tree),
    )
    try:
        for _ in every(0.05, RUN_SECS):
            if job.poll() is not None or _size(metrics) > size:
                break
        for _ in every(0.02, draw.uniform(0, 6)):
            if job.poll() is not None:
                break
        if draw.random() < 0.5:
            job.send_signal(signal.SIGTERM)
            job.wait(KILL_SECS)
    finally:
        kill(job)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def every(secs: float, limit_secs: float) -> Iterator[None]:
    """Yields every ``secs`` until ``limit_secs`` are over."""
    end = time.monotonic() + limit_secs
    while time.monotonic() < end:
        yield
        time.sleep(secs)


def kill(job: subprocess.Popen) -> None:
    """Ends a job with all of its processes, which may have sessions of their own."""
    try:
        processes = psutil.Process(job.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        processes = []
    job.kill()
    job.wait(KILL_SECS)
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def faults_of(args: argparse.Namespace, seed: int, stores: Path) -> Iterator[str]:
    """The runs of a training whose losses differ from the reference, and those that fail."""
    draw = random.Random(seed)
    ranks = draw.choice((1, 1, 2, 2, 3))
    decided = training(draw, stores)
    expected: dict = {}
    for number in range(args.runs + 1):
        own = way(draw, ranks) if number else {"storage.engine": "memory"}
        stops = draw.choice((0, 0, 1, 2)) if number else 0
        run_dir = stores / f"run-{seed}-{number}"
        keys = [f"{key}={value}" for key, value in (decided | own).items()]
        try:
            found = run(args, draw, ranks, [*FIXED, *keys], run_dir, stops)
            expected = expected or found
            fault = "" if found == expected else "other losses"
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            fault = str(error)
        shutil.rmtree(run_dir, ignore_errors=True)
        print(f"{seed}.{number}: {fault or 'equal'}", file=sys.stderr, flush=True)
        if fault:
            yield f"{seed}.{number}: {ranks} ranks, {stops} stops, {' '.join(keys)}: {fault}"
        if not expected:
            return


def main() -> int:
    args = parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stores = Path(folder)
        make_stores(args, stores)
        seeds = range(args.seed, args.seed + args.trainings)
        faults = [fault for seed in seeds for fault in faults_of(args, seed, stores)]
    publish({"faults": faults}, args, "tree", "python")
    print(*faults, f"{len(faults)} faults", sep="\n", file=sys.stderr)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
