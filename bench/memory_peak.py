"""Peak memory of `lsm train` against memory.bytes, for several fanouts and batch sizes.

``python bench/memory_peak.py --dir SCRATCH --memory-bytes 4GiB``

Makes a graph in SCRATCH for each of ``--graphs`` (nodes x dim), trains on it with a cache that
looks 256 iterations ahead, once for each of ``--fanouts`` and ``--batch-sizes``, and deletes it.
Each run stops after ``--steps`` iterations, when the window has long been full. The topology is
read into memory, so that it counts in the budget. The peak is the kernel's high-water mark of the
process (VmHWM), read while it runs. Prints one JSON record.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from common import numbers, parser, publish
from lsm.core.units import parse_bytes
from lsm.data.synth import synthesize
from lsm.data.typed.synth import synthesize_typed

WINDOW = 256
POLL_SECS = 0.05


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--dir", type=Path, required=True, help="scratch; graphs are deleted")
    arguments.add_argument("--graphs", default="5000000x64,4194304x1024", help="nodes x dim")
    arguments.add_argument("--types", type=int, default=1, help="of nodes; several train rsage")
    arguments.add_argument("--avg-degree", type=float, default=10)
    arguments.add_argument("--fanouts", default="10,5;15,10,5")
    arguments.add_argument("--batch-sizes", default="1024,4096")
    arguments.add_argument("--memory-bytes", default="auto", help="a size, or auto")
    arguments.add_argument("--steps", type=int, default=40)
    arguments.add_argument("--timeout-secs", type=float, default=3600)
    arguments.add_argument("--set", action="append", default=[], help="more keys of lsm train")
    return arguments.parse_args()


def count_steps(run_dir: Path) -> int:
    path = run_dir / "metrics.jsonl"
    return path.read_text().count('"kind": "step"') if path.exists() else 0


def peak_bytes(pid: int) -> int:
    """Peak of the process's resident memory; 0 once it has ended. Not ru_maxrss, which exec keeps
    from the parent."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def train(command: list[str], run_dir: Path, args: argparse.Namespace) -> dict:
    """The memory messages of the run, and its peak."""
    log = run_dir.with_suffix(".log")
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    deadline, stopped, peak = time.monotonic() + args.timeout_secs, False, 0
    while process.poll() is None:
        peak = max(peak, peak_bytes(process.pid))
        time.sleep(POLL_SECS)
        if time.monotonic() > deadline:
            process.kill()
        elif not stopped and count_steps(run_dir) >= args.steps:
            process.send_signal(signal.SIGTERM)
            stopped = True
    told = [line for line in log.read_text().splitlines() if line]
    log.unlink()
    said = [line for line in told if line.startswith(("memory", "cache.window"))]
    result = {"steps": count_steps(run_dir), "said": said}
    if not stopped and process.returncode != 0:
        result["failed"] = told[-1] if told else f"exit status {process.returncode}"
    return result | {"peak_bytes": peak}


def measure(store: Path, fanouts: str, batch_size: int, args: argparse.Namespace) -> dict:
    run_dir = args.dir / f"run-{fanouts.replace(',', '-')}-{batch_size}"
    keys = [f"data.path={store}", f"run.dir={run_dir}", f"memory.bytes={args.memory_bytes}"]
    keys += [f"sampler.num_neighbors=[{fanouts}]", f"train.batch_size={batch_size}", "device=cpu"]
    keys += ["data.topology=memory", "cache.policy=lookahead", f"cache.window={WINDOW}"]
    keys += ["metrics.loggers=[]", "metrics.log_every=1", "train.epochs=1"]
    keys += ["model.name=rsage"] * (args.types > 1) + args.set
    shutil.rmtree(run_dir, ignore_errors=True)  # left by a killed measurement
    result = train([sys.executable, "-m", "lsm", "train", "base", *keys], run_dir, args)
    shutil.rmtree(run_dir, ignore_errors=True)
    if args.memory_bytes != "auto":
        result["share_of_budget"] = round(result["peak_bytes"] / parse_bytes(args.memory_bytes), 4)
    return {"fanouts": fanouts, "batch_size": batch_size} | result


def main() -> None:
    args = parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    batch_sizes = numbers(args.batch_sizes)
    results = []
    for graph in args.graphs.split(","):
        nodes, dim = map(int, graph.split("x"))
        store = args.dir / f"graph-{graph}"
        # Enough training nodes for a window and the steps after it.
        seeds = max(batch_sizes) * (WINDOW + args.steps + 8)
        shares = {"train_fraction": min(0.98, seeds / nodes)}
        shares |= {"valid_fraction": 0.01, "test_fraction": 0.01}
        parameters = {"nodes": nodes, "dim": dim, "avg_degree": args.avg_degree}
        make = synthesize if args.types == 1 else partial(synthesize_typed, num_types=args.types)
        make(store, progress=False, **parameters, **shares)
        try:
            for fanouts in args.fanouts.split(";"):
                for batch_size in batch_sizes:
                    results.append({"graph": graph} | measure(store, fanouts, batch_size, args))
                    print(json.dumps(results[-1]), file=sys.stderr)
        finally:
            shutil.rmtree(store)
    publish({"memory_peak": results}, args)


if __name__ == "__main__":
    main()
