"""Training iterations per second with less memory than features: ours, and GraphBolt over a map.

``python bench/limited_training.py --store DIR --peer-python /path/to/python``

Every run has ``--limit-share`` of the features' size as its memory, which holds its processes and
their page cache (memory_limit.py). The store's pages are dropped before each run. Ours is
``bench/training.py``, once with the options of each ``--ours``. GraphBolt 2.1.0 is
``peers/graphbolt_train.py`` over a memory map with MADV_RANDOM, with each number of OpenMP threads
in ``--peer-threads``. Model, fanouts and batch size are the same. Prints one JSON record.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from memory_limit import MemoryLimit

import lsm
from common import (
    BATCH_SIZE,
    BENCH,
    PEER_MALLOC,
    about,
    drop_cache,
    parser,
    publish,
    run_program,
)

PLANNED = "--cache-policy lookahead --cache-bytes 256MiB --victim-bytes 128MiB --window 64"


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--store", type=Path, required=True)
    arguments.add_argument("--limit", choices=("cgroup", "none"), default="cgroup")
    arguments.add_argument("--limit-share", type=float, default=0.5, help="of the features' bytes")
    arguments.add_argument(
        "--ours", action="append", help="options of one run of bench/training.py"
    )
    arguments.add_argument("--engine", default="io_uring")
    arguments.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    arguments.add_argument("--iters", type=int, default=20)
    arguments.add_argument("--warmup", type=int, default=20)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--peer-python")
    arguments.add_argument("--peer-threads", default="2,8")
    arguments.add_argument("--peer-workers", default="0,1")
    return arguments.parse_args()


def run(command: Sequence[object], limit_bytes: int | None, args: argparse.Namespace) -> dict:
    """The command's output and its peak of charged memory; or its error."""
    drop_cache(args.store)
    environment = PEER_MALLOC if command[0] == args.peer_python else {}
    with MemoryLimit(limit_bytes) if limit_bytes else nullcontext() as limit:
        start = limit.run if limit else subprocess.run
        try:
            made = run_program(command, start, env=environment)
        except RuntimeError as error:
            made = {"failed": str(error)}
        return made | {"charged_peak_bytes": limit.peak_bytes() if limit else None}


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
    limited = {"bytes": limit_bytes, "feature_bytes": feature_bytes, "mechanism": mechanism}
    publish({"graph": about(store), "limit": limited, "training": results}, args)


if __name__ == "__main__":
    main()
