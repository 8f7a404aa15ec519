"""One cache over all ranks in training, against a cache per rank.

``python bench/comm.py --store DIR --worlds 1,2,4 --out bench/results/NAME``

Each run trains GraphSAGE with ``lsm train`` under torchrun, from cold feature files. Its last
epoch, when the cache is warm, describes it: delivered rows and their tiers, bytes read, and the
time of rank 0 by span. At each world size: shared, independent and partition-aware caches of
``--cache`` bytes (and victim buffers of ``--victim``) per rank; independent ones of ``world`` times
as much (larger); and no cache, with all features in memory (memory). Writes NAME.json and NAME.md.

Feature time is planning, waiting for storage, copying and exchanging, on rank 0. Every row is
copied once, from its owner to its place in a batch, which counts as copying. Communication is the
rest: lists of ids, messages, rows sent over sockets, without waiting for other ranks, which is
mostly for their storage. The time of reads alone is bytes read / 4 KiB at the drive's rate of
random 4 KiB reads, which is measured before every turn. Each of ``--repeats`` turns has every kind
of run once. The run of median epoch time is shown; ratios are medians over the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import lsm
from common import about, drop_cache, numbers, parser, publish_page
from lsm.core.units import format_bytes, parse_bytes
from lsm.storage.engine import select_engine
from lsm.storage.measure import measure_engine
from lsm.storage.measure_profile import feature_source

SPANS = ("plan_secs", "read_wait_secs", "replay_secs", "comm_secs")
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


@dataclass(frozen=True)
class Turn:
    """One run of each kind, and the drive's rate before them."""

    iops: float
    runs: dict[tuple[int, str], dict]  # by world size and mode


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__, record="out")
    arguments.add_argument("--store", type=Path, required=True)
    arguments.add_argument("--worlds", default="1,2,4")
    arguments.add_argument("--cache", type=parse_bytes, default=parse_bytes("64MiB"))
    arguments.add_argument("--victim", type=parse_bytes, default=0, help="a pool, per rank")
    arguments.add_argument("--modes", default="shared,independent,partition-aware,larger,memory")
    arguments.add_argument("--epochs", type=int, default=2)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--settings", nargs="*", default=[], help="key=value for every run")
    return arguments.parse_args()


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
    drop_cache(*lsm.GraphStore.open(store).feature_paths)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={world}", "-m", "lsm", "train", "base"]
    command += [f"data.path={store}", f"run.dir={directory}", f"train.epochs={epochs}"]
    command += ["train.eval_every=0", "train.select=last", "metrics.loggers=[]"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    ended = subprocess.run(
        [*command, *settings], env=environment, timeout=900, capture_output=True, text=True
    )
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(settings)}: {ended.stderr[-2000:]}")
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return json.loads([line for line in lines if '"kind": "epoch"' in line][-1])


def bytes_read(epoch: dict) -> float:
    """Bytes from storage in this epoch, over all ranks."""
    return epoch["storage_bytes"] * epoch["read_amplification"]


def row_of(result: dict) -> list[str]:
    epoch = result["epoch"]
    feature_secs = sum(epoch[span] for span in SPANS) + epoch["comm_wait_secs"]
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


def reads_per_sec(store: Path) -> float:
    """The drive's rate of random 4 KiB reads of the store's features, 128 in flight."""
    engine = select_engine("auto")[0]
    return measure_engine(feature_source(store), engine, 4096, 128, seconds=2.0, seed=0)["iops"]


def page(turns: list[Turn]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    for kind in turns[0].runs:
        runs = sorted(
            (turn.runs[kind] for turn in turns), key=lambda run: run["epoch"]["train_secs"]
        )
        lines.append("| " + " | ".join(row_of(runs[(len(runs) - 1) // 2])) + " |")
    for world in sorted({world for world, _ in turns[0].runs if world > 1}):
        lines += ["", *verdicts(turns, world)]
    rates = [turn.iops for turn in turns]
    lines += ["", f"- random 4 KiB reads per second: {min(rates):,.0f} to {max(rates):,.0f}"]
    return "\n".join(lines) + "\n"


def verdicts(turns: list[Turn], world: int) -> list[str]:
    """The shared cache at ``world`` against the others."""
    if (world, "shared") not in turns[0].runs:
        return []
    lines = []
    for mode, what in (("independent", "as large"), ("larger", f"{world} times as large")):
        if (world, mode) in turns[0].runs:
            (ours, theirs), read = hit_ratios(turns[0], world, mode)
            lines.append(
                f"- world {world}: hit ratio shared {ours:.4f}, independent caches {what} "
                f"{theirs:.4f} ({ours - theirs:+.4f}); bytes read {read:.3f} of theirs"
            )
    if (world, "memory") in turns[0].runs:
        bounds = [epoch_bounds(turn, world) for turn in turns]
        epoch, memory, reads, ratio = (
            statistics.median(part) for part in zip(*bounds, strict=True)
        )
        lines.append(
            f"- world {world}: epoch {epoch:.2f} s; from memory {memory:.2f} s; its reads alone "
            f"{reads:.2f} s: {ratio:.2f} times the larger"
        )
    return lines


def hit_ratios(turn: Turn, world: int, mode: str) -> tuple[tuple[float, float], float]:
    """(hit ratios of shared caches, hit ratios of caches of ``mode``, ratios of the former's bytes
    read to the latter's)."""
    ours, theirs = (turn.runs[world, name]["epoch"] for name in ("shared", mode))
    ratios = tuple(1 - epoch["misses"] / epoch["requests"] for epoch in (ours, theirs))
    return ratios, bytes_read(ours) / bytes_read(theirs)


def epoch_bounds(turn: Turn, world: int) -> tuple[float, float, float, float]:
    """Seconds of an epoch with shared caches, of one from memory, and of the former's reads alone;
    and the ratio of the first to the larger of the others."""
    shared = turn.runs[world, "shared"]["epoch"]
    memory = turn.runs[world, "memory"]["epoch"]["train_secs"]
    reads = bytes_read(shared) / 4096 / turn.iops
    return shared["train_secs"], memory, reads, shared["train_secs"] / max(memory, reads)


def take_turn(args: argparse.Namespace, scratch: Path) -> Turn:
    turn = Turn(reads_per_sec(args.store), {})
    for world in numbers(args.worlds):
        for mode in args.modes.split(","):
            if world == 1 and mode not in ("independent", "memory"):
                continue
            directory = scratch / f"{mode}-{world}"
            settings = [*settings_of(mode, world, args), *args.settings]
            epoch = train(args.store, world, settings, directory, args.epochs)
            size = args.cache * (world if mode == "larger" else 1)
            run = {"world": world, "mode": mode, "cache_bytes": size, "epoch": epoch}
            turn.runs[world, mode] = run
            print(" ".join(row_of(run)), file=sys.stderr, flush=True)
            shutil.rmtree(directory)
    return turn


def main() -> None:
    args = parse_args()
    with tempfile.TemporaryDirectory(dir=args.store.parent) as scratch:
        turns = [take_turn(args, Path(scratch)) for _ in range(args.repeats)]
    graph = lsm.GraphStore.open(args.store)
    listed = [{"iops": turn.iops, "runs": list(turn.runs.values())} for turn in turns]
    publish_page({"graph": about(graph), "turns": listed}, args, lambda _made: page(turns))


if __name__ == "__main__":
    main()
