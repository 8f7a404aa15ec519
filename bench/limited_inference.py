"""Seconds of inference of all nodes with little memory: ours, and PyG's loop over memory maps.

``python bench/limited_inference.py --peer-python /path/to/python``

A synthetic graph, GraphSAGE and GCN of torch_geometric with three layers, in float32. ``scores``
are written. Every run is a process in a control group (memory_limit.py). Once it has its libraries
and its model, and PyG's also its graph, the group gets ``--share`` of the features' bytes more than
the process holds, and ``--spare``: for rows, and for the page cache. Features are dropped from it
before. ``--spare`` is for small blocks, and is not in our ``--memory-bytes``. PyG's
sampler takes all neighbours (``peers/pyg_inference.py``); its fastest of ``--peer-batch-sizes`` and
``--peer-threads`` counts. ``peak`` is ours, of anonymous memory, against the given
``--memory-bytes``; ``difference`` is the largest one of both scores, relative to their largest
value. ``bytes_ratio`` is against the bound of ``bench/inference.py``. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from inference import MODELS, bound
from memory_limit import MemoryLimit

import lsm
from common import BENCH, about, drop_cache, numbers, parser, publish, run_lsm
from lsm.core import host_memory
from lsm.core.units import parse_bytes

START_BYTES = 8 << 30  # until a process is ready


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, default=100_000)
    arguments.add_argument("--dim", type=int, default=1024)
    arguments.add_argument("--degree", type=float, default=14.0)
    arguments.add_argument("--degree-exponent", type=float, default=2.5, help="lsm data synth's")
    arguments.add_argument("--hidden", type=int, default=128)
    arguments.add_argument("--classes", type=int, default=16)
    arguments.add_argument("--models", default=",".join(MODELS))
    arguments.add_argument("--share", type=float, default=0.125, help="of the features' bytes")
    arguments.add_argument("--spare", type=parse_bytes, default="48MiB")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--rounds", type=int, default=3, help="of ours")
    arguments.add_argument("--peer-python")
    arguments.add_argument("--peer-batch-sizes", default="64")
    arguments.add_argument("--peer-threads", default="2")
    arguments.add_argument("--workdir", type=Path, help="on the disk to measure")
    arguments.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    return arguments.parse_args()


def predict(folder: Path, args: argparse.Namespace) -> None:
    """A run of ours, in a process of its own."""
    store = lsm.GraphStore.open(folder / "store")
    model = make_model(args.models, store, args)
    model.load_state_dict(torch.load(folder / "model.pt", weights_only=True))
    print("ready", flush=True)
    sys.stdin.readline()
    own = host_memory.resident_bytes()["anonymous"]
    memory = own + int(args.share * store.num_nodes * store.row_bytes)
    cpu = time.process_time()
    summary = lsm.predict(
        model,
        store,
        folder / "out",
        outputs=["scores"],
        memory_bytes=memory,
        num_threads=args.threads,
        progress=False,
    )
    moved = summary["bytes_read"] + summary["bytes_written"] + 3 * store.topology().num_bytes
    made = {
        "seconds": summary["seconds"],
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "memory_bytes": memory,
        "bytes_ratio": round(moved / bound(store, model), 3),
    }
    print(json.dumps(made), flush=True)


def make_model(name: str, store: lsm.GraphStore, args: argparse.Namespace) -> torch.nn.Module:
    return MODELS[name](store.feature_dim, args.hidden, 3, args.classes).eval()


def run(command: list[object], store: lsm.GraphStore, args: argparse.Namespace) -> dict:
    """The output of a run in its control group."""
    drop_cache(store.path)
    room = int(args.share * store.num_nodes * store.row_bytes) + args.spare
    with MemoryLimit(START_BYTES) as limit:
        return limit.run_when_ready(command, room)


def run_ours(name: str, folder: Path, store: lsm.GraphStore, args: argparse.Namespace) -> dict:
    command = [sys.executable, __file__, "--child", folder, "--models", name]
    command += ["--share", args.share, "--threads", args.threads]
    command += ["--hidden", args.hidden, "--classes", args.classes]
    made = run(command, store, args)
    made["peak_share"] = round(made["peak_anonymous_bytes"] / made["memory_bytes"], 3)
    return made


def run_peer(name: str, size: int, threads: int, folder: Path, store: lsm.GraphStore, args) -> dict:
    command = [args.peer_python, BENCH / "peers" / "pyg_inference.py", "--model", name]
    command += ["--store", store.path, "--weights", folder / "model.pt", "--out", folder / "peer"]
    command += ["--hidden", args.hidden, "--classes", args.classes]
    command += ["--batch-size", size, "--threads", threads]
    try:
        return run(command, store, args)
    except RuntimeError as error:
        return {"batch_size": size, "threads": threads, "failed": str(error)}


def measure(name: str, store: lsm.GraphStore, folder: Path, args: argparse.Namespace) -> dict:
    torch.manual_seed(0)
    model = make_model(name, store, args)
    torch.save(model.state_dict(), folder / "model.pt")
    peers, ours = [], []
    if args.peer_python:
        settings = itertools.product(numbers(args.peer_batch_sizes), numbers(args.peer_threads))
        for size, threads in settings:
            peers.append(run_peer(name, size, threads, folder, store, args))
            print(json.dumps(peers[-1]), file=sys.stderr, flush=True)
    for _ in range(args.rounds):
        ours.append(run_ours(name, folder, store, args))
        print(json.dumps(ours[-1]), file=sys.stderr, flush=True)
        scores = np.load(folder / "out" / "scores.npy")
        for path in (folder / "out").iterdir():
            path.unlink()
        (folder / "out").rmdir()
    found = {"ours": ours, "peer": peers}
    done = [each for each in peers if "failed" not in each]
    if done:
        expected = np.load(folder / "peer" / "scores.npy")
        seconds = statistics.median(each["seconds"] for each in ours)
        cpu = statistics.median(each["cpu_seconds"] for each in ours)
        found["seconds_ratio"] = round(min(each["seconds"] for each in done) / seconds, 2)
        found["cpu_ratio"] = round(min(each["cpu_seconds"] for each in done) / cpu, 2)
        found["difference"] = float(np.abs(scores - expected).max() / np.abs(expected).max())
    return found


def main() -> None:
    args = parse_args()
    if args.child:
        predict(args.child, args)
        return
    with tempfile.TemporaryDirectory(dir=args.workdir) as folder:
        path = Path(folder) / "store"
        size = ["--nodes", args.nodes, "--dim", args.dim, "--avg-degree", args.degree]
        size += ["--degree-exponent", args.degree_exponent]
        run_lsm("data", "synth", "--out", path, *size, "--no-progress")
        store = lsm.GraphStore.open(path)
        names = args.models.split(",")
        found = {name: measure(name, store, Path(folder), args) for name in names}
        publish({"graph": about(store), **found}, args)


if __name__ == "__main__":
    main()
