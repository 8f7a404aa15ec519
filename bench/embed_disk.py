"""An epoch of embeddings from disk with little memory: ``python bench/embed_disk.py --dir DIR``.

Embeddings and optimiser state take ``1 / --limit-share`` times the memory that each run has, its
page cache included (memory_limit.py). The graph is synthetic, ``DIR/store``; it is made if it is
not there, and runs leave nothing else. The forms take turns: the order ``best`` with and without
prefetching, and the orders ``legend`` and ``beta``.

``epoch_secs`` is of one epoch without the initial fill of the buffer; ``moved_bytes`` what it read
and wrote. The disk's rate, for as many bytes read as written, is the best of two: of the form
without prefetching between its batches, and of the same engine that moves partitions of the same
size after each run. ``compute_secs`` is the
time in batches of that form, where nothing moves meanwhile. ``against_bound`` is ``epoch_secs``
against the larger of ``compute_secs`` and ``moved_bytes`` at the disk's rate. Needs root, or a
delegated group.
"""

from __future__ import annotations

import argparse
import json
import mmap
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from memory_limit import MemoryLimit

from common import drop_cache, parser, publish, spread, take_turns
from lsm.data.triples.store import TripleStore
from lsm.embed.table.layout import PartitionLayout
from lsm.storage.transfers import TransferOptions, Transfers

UNHIDDEN = "best, not prefetched"
FORMS = {
    "best": ("embed.order=best",),
    UNHIDDEN: ("embed.order=best", "storage.prefetch=false"),
    "legend": ("embed.order=legend",),
    "beta": ("embed.order=beta",),
}
TIMED_FRAMES = 8


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--dir", type=Path, required=True, help="for the store and the runs")
    arguments.add_argument("--nodes", type=int, default=3_000_000)
    arguments.add_argument("--edges-per-node", type=float, default=0.5)
    arguments.add_argument("--relations", type=int, default=100)
    arguments.add_argument("--dim", type=int, default=100)
    arguments.add_argument("--partitions", type=int, default=30)
    arguments.add_argument("--buffer", type=int, default=3)
    arguments.add_argument("--batch-size", type=int, default=4000)
    arguments.add_argument("--chunk", type=int, default=1000)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--queue-depth", type=int, default=TransferOptions().queue_depth)
    arguments.add_argument("--limit", choices=("cgroup", "none"), default="cgroup")
    arguments.add_argument("--limit-share", type=float, default=0.25, help="of the table")
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--form", action="append", choices=[*FORMS], help="default: all")
    return arguments.parse_args()


def lsm(*words: object) -> list[str]:
    return [sys.executable, "-m", "lsm", *map(str, words)]


def make_store(args: argparse.Namespace) -> Path:
    path = args.dir / "store"
    if not path.exists():
        command = lsm("data", "synth", "--kind", "triples", "--out", path, "--nodes", args.nodes)
        command += ["--avg-degree", str(args.edges_per_node), "--relations", str(args.relations)]
        command += ["--valid-fraction", "0", "--test-fraction", "0"]
        subprocess.run(command, check=True, capture_output=True, timeout=600)
    return path


def run(form: str, store: Path, layout: PartitionLayout, args: argparse.Namespace) -> dict:
    """One epoch; its times, bytes, and the disk's rate after it."""
    run_dir = args.dir / "run"
    settings = {
        "data.path": store,
        "run.dir": run_dir,
        "embed.model": "complex",
        "embed.dim": args.dim,
        "embed.partitions": args.partitions,
        "embed.buffer": args.buffer,
        "embed.chunk": args.chunk,
        "embed.regularizer": "none",
        "embed.rounds": 1,
        "train.eval_every": 0,
        "train.epochs": 1,
        "train.batch_size": args.batch_size,
        "train.num_threads": args.threads,
        "storage.queue_depth": args.queue_depth,
        "checkpoint.resume": "never",
        "metrics.loggers": "[]",
    }
    command = lsm("embed", "train", "embed/base", *(f"{k}={v}" for k, v in settings.items()))
    drop_cache(store)
    try:
        with limited(layout, args) as limit:
            start = limit.run if limit else subprocess.run
            done = start([*command, *FORMS[form]], capture_output=True, text=True, timeout=900)
            peak = limit.peak_bytes() if limit else None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"{form}: exit status {done.returncode}: {last}")
        lines = (run_dir / "metrics.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        rate = disk_rate(run_dir / "partitions.bin", layout, args)
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)
    epoch = next(record for record in records if record["kind"] == "epoch")
    steps = [record for record in records if record["kind"] == "step"]
    initial = layout.partitions + args.buffer  # written; read to fill the buffer
    moved = epoch["bytes_read"] + epoch["bytes_written"] - initial * layout.frame_bytes
    return {
        "epoch_secs": epoch["train_secs"],
        "batch_secs": sum(step["step_secs"] + step["wait_secs"] for step in steps),
        "moved_bytes": moved,
        "disk_bytes_per_s": rate,
        "charged_peak_bytes": peak,
    }


def limited(
    layout: PartitionLayout, args: argparse.Namespace
) -> AbstractContextManager[MemoryLimit | None]:
    return nullcontext() if args.limit == "none" else MemoryLimit(limit_bytes(layout, args))


def limit_bytes(layout: PartitionLayout, args: argparse.Namespace) -> int:
    return int(args.limit_share * layout.num_entities * layout.row_bytes)


def idle_secs(run: dict) -> float:
    """Outside of batches: without prefetching, while partitions move."""
    return run["epoch_secs"] - run["batch_secs"]


def disk_rate(path: Path, layout: PartitionLayout, args: argparse.Namespace) -> float:
    """Bytes per second, of as many read as written: the best of some depths."""
    # Transfers take memory that starts at a page.
    frame = torch.frombuffer(mmap.mmap(-1, layout.frame_bytes), dtype=torch.float32)
    rates = []
    for depth in {args.queue_depth, 32}:
        with Transfers(path, TransferOptions(queue_depth=depth)) as transfers:
            start = time.perf_counter()
            for number in range(TIMED_FRAMES):
                partition = number % layout.partitions
                to, source = (layout.slot_offset(partition, slot) for slot in (0, 1))
                transfers.swap(frame, write_to=to, read_from=source)
            elapsed = time.perf_counter() - start
        rates.append(2 * TIMED_FRAMES * layout.frame_bytes / elapsed)
    return max(rates)


def main() -> None:
    args = parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    store = make_store(args)
    starts = TripleStore.open(store).partition_starts(args.partitions)
    layout = PartitionLayout.of(starts.tolist(), 2 * args.dim)

    def measured(form: str, turn: int) -> dict:
        made = run(form, store, layout, args)
        print(json.dumps({"round": turn, "form": form, **made}), file=sys.stderr)
        return made

    wanted = [form for form in FORMS if form in {UNHIDDEN, *(args.form or FORMS)}]
    runs = take_turns(
        args.rounds, {form: lambda turn, form=form: measured(form, turn) for form in wanted}
    )
    compute = statistics.median(each["batch_secs"] for each in runs[UNHIDDEN])
    alone = statistics.median(each["disk_bytes_per_s"] for form in runs.values() for each in form)
    rate = max([alone, *(each["moved_bytes"] / idle_secs(each) for each in runs[UNHIDDEN])])
    forms = {}
    for form, results in runs.items():
        moved = results[0]["moved_bytes"]
        bound = max(compute, moved / rate)
        secs = [each["epoch_secs"] for each in results]
        forms[form] = {
            "moved_bytes": moved,
            "moved_secs_at_disk_rate": moved / rate,
            **spread("epoch_secs", secs),
            "against_bound": statistics.median(secs) / bound,
            "charged_peak_bytes": max(each["charged_peak_bytes"] or 0 for each in results),
        }
    with limited(layout, args) as limit:
        mechanism = limit.mechanism if limit else "none"
    table_bytes = layout.num_entities * layout.row_bytes
    publish(
        {
            "bench": "embed_disk",
            "table_bytes": table_bytes,
            "limit": {"bytes": limit_bytes(layout, args), "mechanism": mechanism},
            "frame_bytes": layout.frame_bytes,
            "compute_secs": compute,
            "disk_bytes_per_s": rate,
            "forms": forms,
        },
        args,
    )


if __name__ == "__main__":
    main()
