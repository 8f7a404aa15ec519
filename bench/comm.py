"""What one cache over all ranks is worth in training, against a cache per rank.

``python bench/comm.py --store DIR --worlds 1,2,4 --out bench/results/NAME``

Each run trains GraphSAGE with ``lsm train`` under torchrun, from cold feature files, and is
described by its last epoch (the cache is warm by then): rows delivered, where they came from, bytes
read, and where the time of rank 0 went. At each world size: shared, independent and partition-aware
caches of ``--cache`` bytes (and victim buffers of ``--victim``) per rank; independent ones of
``world`` times as much (larger); and no cache, with all features in memory (memory). Writes
NAME.json and NAME.md.

Feature time is planning, waiting for storage, copying and exchanging, on rank 0. Every row is
copied once, by the rank that has it to where it is wanted, and counts as copying wherever that is;
communication is what ranks add to it: lists of ids, messages, rows sent over sockets. It does not
count waiting for other ranks, which is mostly for their storage. The reads
alone are bytes read / 4 KiB at the device's rate for random 4 KiB reads (``--iops``, from ``lsm
bench storage``).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lsm
from lsm.bench import record
from lsm.units import format_bytes, parse_bytes

REPOSITORY = Path(__file__).resolve().parents[1]
STAGES = ("plan_secs", "read_wait_secs", "replay_secs", "comm_secs")
COLUMNS = (
    "world",
    "caches",
    "bytes/rank",
    "requests",
    "hit ratio",
    "rows read",
    "GB read",
    "epoch s",
    "comm s",
    "share of feature time",
    "waiting for ranks s",
    "MB of ids",
    "GB of rows",
)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--worlds", default="1,2,4")
    parser.add_argument("--cache", type=parse_bytes, default=parse_bytes("64MiB"))
    parser.add_argument("--victim", type=parse_bytes, default=0, help="a pool, per rank")
    parser.add_argument("--modes", default="shared,independent,partition-aware,larger,memory")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--iops", type=float, help="random 4 KiB reads per second of the device")
    parser.add_argument("--settings", nargs="*", default=[], help="key=value for every run")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def drop_cache(store: Path) -> None:
    for path in lsm.GraphStore.open(store).feature_paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def settings_of(mode: str, world: int, args: argparse.Namespace) -> list[str]:
    if mode == "memory":
        return ["storage.engine=memory"]
    comm = "independent" if mode == "larger" else mode
    factor = world if mode == "larger" else 1
    settings = ["cache.policy=lookahead", f"cache.bytes={factor * args.cache}", f"comm.mode={comm}"]
    if args.victim:
        settings += ["cache.victim.mode=pool", f"cache.victim.bytes={factor * args.victim}"]
    return settings


def train(store: Path, world: int, settings: list[str], directory: Path, epochs: int) -> dict:
    """The last epoch's record of a run."""
    drop_cache(store)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={world}", "-m", "lsm", "train", "base"]
    command += [f"data.path={store}", f"run.dir={directory}", f"train.epochs={epochs}"]
    command += ["train.eval_every=0", "train.select=last", "metrics.tensorboard=false"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    subprocess.run(
        [*command, *settings],
        check=True,
        env=environment,
        timeout=900,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return json.loads([line for line in lines if '"kind": "epoch"' in line][-1])


def bytes_read(epoch: dict) -> float:
    """From storage, in this epoch, by all ranks."""
    return epoch["storage_bytes"] * epoch["read_amplification"]


def row_of(result: dict) -> list[str]:
    epoch = result["epoch"]
    feature_secs = sum(epoch[stage] for stage in STAGES) + epoch["comm_wait_secs"]
    return [
        str(result["world"]),
        result["mode"],
        "-" if result["mode"] == "memory" else format_bytes(result["cache_bytes"]),
        f"{epoch['requests']:,}",
        f"{1 - epoch['misses'] / epoch['requests']:.4f}",
        f"{epoch['misses']:,}",
        f"{bytes_read(epoch) / 1e9:.2f}",
        f"{epoch['train_secs']:.2f}",
        f"{epoch['comm_secs']:.2f}",
        f"{epoch['comm_secs'] / feature_secs:.1%}",
        f"{epoch['comm_wait_secs']:.2f}",
        f"{epoch['ids_sent_bytes'] / 1e6:.1f}",
        f"{epoch['rows_sent_bytes'] / 1e9:.2f}",
    ]


def page(results: list[dict], args: argparse.Namespace) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(row_of(result)) + " |" for result in results]
    lines += ["", *verdicts(results, args.iops)]
    return "\n".join(lines) + "\n"


def verdicts(results: list[dict], iops: float | None) -> list[str]:
    by_mode = {(result["world"], result["mode"]): result["epoch"] for result in results}
    lines = []
    for world in sorted({result["world"] for result in results if result["world"] > 1}):
        shared = by_mode.get((world, "shared"))
        if shared is None:
            continue
        ratio = 1 - shared["misses"] / shared["requests"]
        for name, what in (("independent", "as large"), ("larger", f"{world} times as large")):
            if (other := by_mode.get((world, name))) is None:
                continue
            theirs = 1 - other["misses"] / other["requests"]
            lines.append(
                f"- world {world}: hit ratio shared {ratio:.4f}, independent caches {what} "
                f"{theirs:.4f} ({ratio - theirs:+.4f}); GB read {bytes_read(shared) / 1e9:.2f} "
                f"against {bytes_read(other) / 1e9:.2f} "
                f"({bytes_read(shared) / bytes_read(other):.3f})"
            )
        if (memory := by_mode.get((world, "memory"))) and iops:
            floor = bytes_read(shared) / 4096 / iops
            bound = max(memory["train_secs"], floor)
            lines.append(
                f"- world {world}: epoch {shared['train_secs']:.2f} s; from memory "
                f"{memory['train_secs']:.2f} s; its reads alone, at {iops:,.0f} per second, "
                f"{floor:.2f} s: {shared['train_secs'] / bound:.2f} times the larger"
            )
    return lines


def main() -> None:
    args = parse_args()
    results = []
    with tempfile.TemporaryDirectory(dir=args.store.parent) as scratch:
        for world in map(int, args.worlds.split(",")):
            for mode in args.modes.split(","):
                if world == 1 and mode not in ("independent", "memory"):
                    continue
                directory = Path(scratch) / f"{mode}-{world}"
                settings = settings_of(mode, world, args)
                start = time.perf_counter()
                epoch = train(
                    args.store, world, [*settings, *args.settings], directory, args.epochs
                )
                size = args.cache * (world if mode == "larger" else 1)
                result = {"world": world, "mode": mode, "cache_bytes": size, "epoch": epoch}
                results.append(result | {"run_secs": time.perf_counter() - start})
                print(" ".join(row_of(results[-1])), file=sys.stderr, flush=True)
                shutil.rmtree(directory)
    graph = lsm.GraphStore.open(args.store)
    about = {"nodes": graph.num_nodes, "edges": graph.num_edges, "row_bytes": graph.row_bytes}
    config = {key: str(value) for key, value in vars(args).items() if key not in ("out", "store")}
    made = record.make({"graph": about, "runs": results}, config)
    text = page(results, args)
    print(text)
    if args.out:
        args.out.with_suffix(".json").write_text(json.dumps(made, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
