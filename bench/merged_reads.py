"""Rows per second when the reads of several iterations are planned together.

``python bench/merged_reads.py --dir DIR``

Iterations draw distinct random rows of one file, together ``--share`` of all its rows. They are
read from a cold file three ways, in turn: every iteration by itself with one block per read (what a
reader does that knows one batch), all together without gaps, and all together with gaps up to
``--gap``. Medians over rounds; prints one JSON record.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from lsm.core import record
from lsm.core.units import parse_bytes
from lsm.storage.engine import Storage, StorageOptions
from lsm.storage.measure import scratch_file

BLOCK_BYTES = 4096


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, default=Path("."))
    parser.add_argument("--size", type=parse_bytes, default=parse_bytes("1GiB"))
    parser.add_argument("--row-bytes", default="1024,4096")
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--gap", type=parse_bytes, default=parse_bytes("16KiB"))
    parser.add_argument("--max-read", type=parse_bytes, default=parse_bytes("256KiB"))
    parser.add_argument("--engine", default="io_uring")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def time_reads(path: Path, batches: list[torch.Tensor], args, **options) -> dict:
    """Rows/s of reading ``batches``, each a request; together if ``options`` say so."""
    together, row_bytes = options.pop("together"), options.pop("row_bytes")
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    outputs = [torch.zeros(len(ids), row_bytes, dtype=torch.uint8) for ids in batches]
    reads = [(ids, out, None) for ids, out in zip(batches, outputs, strict=True)]
    with Storage(
        [path],
        num_rows=path.stat().st_size // row_bytes,
        row_bytes=row_bytes,
        engine=args.engine,
        options=StorageOptions(**options),
    ) as storage:
        start = time.perf_counter()
        tickets = (
            storage.submit_together(reads)
            if together
            else [storage.submit(ids, out) for ids, out, _ in reads]
        )
        for ticket in tickets:
            ticket.wait()
        seconds = time.perf_counter() - start
        stats = storage.stats()
    rows = sum(map(len, batches))
    return {
        "rows_per_s": rows / seconds,
        "reads": stats["reads"],
        "read_amplification": stats["read_amplification"],
    }


def measure(path: Path, row_bytes: int, args) -> dict:
    num_rows = path.stat().st_size // row_bytes
    # Two blocks is the shortest "longest read"; random rows rarely fill the second.
    alone = {"together": False, "max_read_bytes": 2 * BLOCK_BYTES}
    together = {"together": True, "max_read_bytes": args.max_read}
    ways = {
        "one by one": alone,
        "together": together,
        "together, with gaps": together | {"max_gap_bytes": args.gap},
    }
    runs: dict[str, list[dict]] = {name: [] for name in ways}
    for seed in range(args.rounds):
        rng = np.random.default_rng(seed)
        ids = rng.choice(num_rows, int(args.share * num_rows), replace=False)
        batches = [torch.from_numpy(part) for part in np.array_split(ids, args.iterations)]
        for name, options in ways.items():
            runs[name].append(time_reads(path, batches, args, row_bytes=row_bytes, **options))
    medians = {
        name: {key: statistics.median(run[key] for run in results) for key in results[0]}
        for name, results in runs.items()
    }
    base = medians["one by one"]["rows_per_s"]
    ratios = {name: round(median["rows_per_s"] / base, 2) for name, median in medians.items()}
    return {"row_bytes": row_bytes, "medians": medians, "ratio": ratios}


def main() -> None:
    args = parse_args()
    with scratch_file(args.dir, args.size, ".bin") as path:
        results = [measure(path, int(row_bytes), args) for row_bytes in args.row_bytes.split(",")]
    settings = {key: str(value) for key, value in vars(args).items() if key not in ("json", "dir")}
    made = record.make({"merged_reads": results}, settings)
    print(json.dumps(made))
    if args.json:
        args.json.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
