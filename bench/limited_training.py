"""Training iterations per second with less memory than features: ours, and GraphBolt over a map.

``python bench/limited_training.py --store DIR --peer-python /path/to/python``

Every run has ``--limit-share`` of the features' size for all that it holds: its processes and what
they have in the page cache (lsm.core.memory_limit). The store's pages are dropped before each run.
Ours is ``bench/training.py`` with the options after ``--ours``, once for each; GraphBolt 2.1.0 is
``peers/graphbolt_train.py`` over a memory map with MADV_RANDOM, tried with each number of OpenMP
threads in ``--peer-threads``. Same model, fanouts and batch size. Prints one JSON record.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import lsm
from lsm.core import record
from lsm.core.memory_limit import MemoryLimit

BENCH = Path(__file__).parent
PEER_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
PLANNED = "--cache-policy lookahead --cache-bytes 256MiB --victim-bytes 128MiB --window 64"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--limit", choices=("cgroup", "none"), default="cgroup")
    parser.add_argument("--limit-share", type=float, default=0.5, help="of the features' bytes")
    parser.add_argument("--ours", action="append", help="options of one run of bench/training.py")
    parser.add_argument("--engine", default="io_uring")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--iters", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-python")
    parser.add_argument("--peer-threads", default="2,8")
    parser.add_argument("--peer-workers", default="0,1")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def drop_cache(store: Path) -> None:
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(command: Sequence[object], limit_bytes: int | None, args: argparse.Namespace) -> dict:
    """What the command prints, with the most memory it was charged for; or why it failed."""
    drop_cache(args.store)
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 1800}
    options["env"] = os.environ | (PEER_MALLOC if command[0] == args.peer_python else {})
    words = list(map(str, command))
    with MemoryLimit(limit_bytes) if limit_bytes else nullcontext() as limit:
        done = limit.run(words, **options) if limit else subprocess.run(words, **options)
        peak = limit.peak_bytes() if limit else None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"failed": f"exit status {done.returncode}: {last}", "charged_peak_bytes": peak}
    return json.loads(done.stdout.strip().splitlines()[-1]) | {"charged_peak_bytes": peak}


def run_ours(options: str, limit_bytes: int | None, args: argparse.Namespace) -> dict:
    command = [sys.executable, BENCH / "training.py", "--store", args.store]
    command += ["--engine", args.engine, "--batch-size", args.batch_size, "--iters", args.iters]
    command += ["--warmup", args.warmup, "--rounds", args.rounds, *shlex.split(options)]
    made = run(command, limit_bytes, args)
    result = made.pop("training", [{}])[0]
    peak = {"charged_peak_bytes": made["charged_peak_bytes"]}
    failed = {"failed": made["failed"]} if "failed" in made else {}
    return {"reader": "ours", "options": options} | result | peak | failed


def run_peer(threads: str, limit_bytes: int | None, args: argparse.Namespace) -> list[dict]:
    results = []
    for workers in args.peer_workers.split(","):
        command = [args.peer_python, BENCH / "peers" / "graphbolt_train.py", "--store", args.store]
        command += ["--features", "mmap", "--threads", threads, "--num-workers", workers]
        command += ["--batch-size", args.batch_size, "--iters", args.iters]
        command += ["--warmup", args.warmup, "--repeats", args.rounds]
        about = {"reader": "GraphBolt", "threads": threads, "workers": workers}
        results.append(about | run(command, limit_bytes, args))
    return results


def main() -> None:
    args = parse_args()
    store = lsm.GraphStore.open(args.store)
    feature_bytes = store.num_nodes * store.row_bytes
    limit_bytes = int(args.limit_share * feature_bytes) if args.limit == "cgroup" else None
    mechanism = "none"
    if limit_bytes:
        with MemoryLimit(limit_bytes) as limit:
            mechanism = limit.mechanism
    results = []
    for options in args.ours or ["", PLANNED]:
        results.append(run_ours(options, limit_bytes, args))
        print(json.dumps(results[-1]), file=sys.stderr)
    if args.peer_python:
        for threads in args.peer_threads.split(","):
            results += run_peer(threads, limit_bytes, args)
            print(json.dumps(results[-1]), file=sys.stderr)
    graph = {"nodes": store.num_nodes, "edges": store.num_edges, "row_bytes": store.row_bytes}
    limited = {"bytes": limit_bytes, "feature_bytes": feature_bytes, "mechanism": mechanism}
    hidden = ("json", "store", "peer_python")
    settings = {key: str(value) for key, value in vars(args).items() if key not in hidden}
    made = record.make({"graph": graph, "limit": limited, "training": results}, settings)
    print(json.dumps(made))
    if args.json:
        args.json.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
