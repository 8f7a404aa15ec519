"""Rows per second when the reads of several iterations are planned together.

``python bench/merged_reads.py --dir DIR``

Iterations draw distinct random rows of one file, together ``--share`` of all its rows. Three
options take turns on a cold file: every iteration by itself with one block per read (like a reader
that knows one batch), all together without gaps, and all together with gaps up to ``--gap``.
Medians over rounds; prints one JSON record.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from common import drop_cache, medians, numbers, parser, publish, take_turns
from lsm.core.units import parse_bytes
from lsm.storage.engine import Storage
from lsm.storage.measure import scratch_file
from lsm.storage.options import StorageOptions

BLOCK_BYTES = 4096


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--dir", type=Path, default=Path("."))
    arguments.add_argument("--size", type=parse_bytes, default=parse_bytes("1GiB"))
    arguments.add_argument("--row-bytes", default="1024,4096")
    arguments.add_argument("--iterations", type=int, default=8)
    arguments.add_argument("--share", type=float, default=0.2)
    arguments.add_argument("--gap", type=parse_bytes, default=parse_bytes("16KiB"))
    arguments.add_argument("--max-read", type=parse_bytes, default=parse_bytes("256KiB"))
    arguments.add_argument("--engine", default="io_uring")
    arguments.add_argument("--rounds", type=int, default=5)
    return arguments.parse_args()


def draw_batches(path: Path, row_bytes: int, args, seed: int) -> list[torch.Tensor]:
    num_rows = path.stat().st_size // row_bytes
    rng = np.random.default_rng(seed)
    ids = rng.choice(num_rows, int(args.share * num_rows), replace=False)
    return [torch.from_numpy(part) for part in np.array_split(ids, args.iterations)]


def time_reads(path: Path, row_bytes: int, together: bool, options: dict, args, seed: int) -> dict:
    """Rows/s of reading the batches of ``seed``, each a request."""
    batches = draw_batches(path, row_bytes, args, seed)
    drop_cache(path)
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
    # Two blocks is the shortest "longest read"; random rows rarely fill the second.
    alone = {"max_read_bytes": 2 * BLOCK_BYTES}
    merged = {"max_read_bytes": args.max_read}
    gaps = merged | {"max_gap_bytes": args.gap}
    ways = {
        "one by one": (False, alone),
        "together": (True, merged),
        "together, with gaps": (True, gaps),
    }
    runs = take_turns(
        args.rounds,
        {
            name: partial(time_reads, path, row_bytes, together, options, args)
            for name, (together, options) in ways.items()
        },
    )
    figures = {name: medians(results) for name, results in runs.items()}
    base = figures["one by one"]["rows_per_s"]
    ratios = {name: round(run["rows_per_s"] / base, 2) for name, run in figures.items()}
    return {"row_bytes": row_bytes, "medians": figures, "ratio": ratios}


def main() -> None:
    args = parse_args()
    with scratch_file(args.dir, args.size, ".bin") as path:
        results = [measure(path, row_bytes, args) for row_bytes in numbers(args.row_bytes)]
    publish({"merged_reads": results}, args)


if __name__ == "__main__":
    main()
