"""Random feature rows per second from disk: FeatureLoader, NumPy's memmap, and GraphBolt.

``python bench/features.py --dir DIR --size 8GiB --peer-python /path/to/python``

Every round draws distinct random rows. The file's pages are dropped from the page cache before each
round, so all reads come from the drive, as with a file much larger than memory. The memory map has
MADV_RANDOM (without it, read-ahead fetches megabytes per row). The readers take turns; medians over
rounds are reported. ``--check`` first compares the rows of our engines with the file. GraphBolt
runs in environments of its own (bench/peers/README.md; the option may be repeated), with
MADV_RANDOM where it maps memory. All read one .npy file, whose header is padded to 4 KiB:
GraphBolt's reader finds rows aligned, and ours sees the header as the first rows. Prints one JSON
record.
"""

from __future__ import annotations

import argparse
import json
import mmap
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from common import (
    BENCH,
    HEADER_BYTES,
    drop_cache,
    feature_files,
    num_rows,
    numbers,
    parser,
    publish,
    run_program,
    take_turns,
    write_header,
)
from lsm.core.units import parse_bytes
from lsm.features.loader import FeatureLoader
from lsm.features.open import open_features
from lsm.storage.measure import scratch_file
from lsm.storage.options import StorageOptions

ROWS_AHEAD = 4  # requests in flight, as in a loader


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--dir", type=Path, default=Path("."), help="where the file is made")
    arguments.add_argument("--size", type=parse_bytes, default=parse_bytes("8GiB"))
    arguments.add_argument("--row-bytes", default="1024,4096")
    arguments.add_argument("--rows-per-batch", type=int, default=10_000)
    arguments.add_argument("--batches", type=int, default=8)
    arguments.add_argument("--memmap-batches", type=int, default=2)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--queue-depth", type=int, default=128)
    arguments.add_argument("--engines", default="io_uring")
    arguments.add_argument("--peer-python", action="append", default=[])
    arguments.add_argument("--check", action="store_true")
    return arguments.parse_args()


def open_loader(path: Path, row_bytes: int, engine: str, queue_depth: int) -> FeatureLoader:
    options = StorageOptions(engine=engine, queue_depth=queue_depth)
    return open_features(feature_files(path, row_bytes), storage=options)


def draw_batches(num_rows: int, batches: int, rows_per_batch: int, seed: int) -> list[torch.Tensor]:
    rng = np.random.default_rng(seed)
    ids = rng.choice(num_rows, min(num_rows, batches * rows_per_batch), replace=False)
    return [torch.from_numpy(part) for part in np.array_split(ids, batches)]


def time_loader(path: Path, row_bytes: int, engine: str, args, seed: int) -> float:
    rows = num_rows(path, row_bytes)
    batches = [
        ids + HEADER_BYTES // row_bytes
        for ids in draw_batches(rows, ROWS_AHEAD + args.batches, args.rows_per_batch, seed)
    ]
    drop_cache(path)
    with open_loader(path, row_bytes, engine, args.queue_depth) as loader:
        pending = [loader.prefetch(ids) for ids in batches[:ROWS_AHEAD]]
        for rows in pending:  # warm-up, as the peer does one
            rows.result()
        del pending, rows
        start = time.perf_counter()
        measured = batches[ROWS_AHEAD:]
        pending = [loader.prefetch(ids) for ids in measured[:ROWS_AHEAD]]
        for ids in measured[ROWS_AHEAD:]:
            pending.pop(0).result()
            pending.append(loader.prefetch(ids))
        for rows in pending:
            rows.result()
        seconds = time.perf_counter() - start
    return sum(map(len, measured)) / seconds


def open_memmap(path: Path) -> np.memmap:
    rows = np.load(path, mmap_mode="r")
    rows._mmap.madvise(mmap.MADV_RANDOM)
    return rows


def time_memmap(path: Path, args, seed: int) -> float:
    rows = open_memmap(path)
    batches = draw_batches(len(rows), args.memmap_batches, args.rows_per_batch, seed)
    drop_cache(path)
    start = time.perf_counter()
    for ids in batches:
        torch.from_numpy(rows[ids.numpy()])
    return sum(map(len, batches)) / (time.perf_counter() - start)


def time_graphbolt(python: str, path: Path, row_bytes: int, args, seed: int) -> dict:
    script = BENCH / "peers" / "graphbolt_features.py"
    command = [python, script, "--features", path, "--random-advice", "--seed", seed]
    command += ["--num-rows", num_rows(path, row_bytes), "--dim", row_bytes // 4]
    command += ["--rows-per-batch", args.rows_per_batch, "--batches", args.batches]
    return run_program(command, timeout=600)


def check(path: Path, row_bytes: int, engines: list[str]) -> None:
    expected = open_memmap(path)
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, len(expected), 2000))
    for engine in engines:
        with open_loader(path, row_bytes, engine, queue_depth=128) as loader:
            got = loader.fetch(ids + HEADER_BYTES // row_bytes).view(torch.uint8).numpy()
            if not np.array_equal(got, expected[ids].view(np.uint8)):
                raise SystemExit(f"{engine}: rows differ from the file")


def measure(path: Path, row_bytes: int, engines: list[str], args) -> dict:
    readers = {
        f"FeatureLoader({engine})": partial(time_loader, path, row_bytes, engine, args)
        for engine in engines
    }
    readers["numpy.memmap(MADV_RANDOM)"] = partial(time_memmap, path, args)
    peers = {
        python: partial(time_graphbolt, python, path, row_bytes, args)
        for python in args.peer_python
    }
    runs = take_turns(args.rounds, readers | peers)
    rates: dict[str, list[float]] = {reader: runs[reader] for reader in readers}
    for python in peers:
        name = f"GraphBolt {runs[python][0]['reader']}"
        rates[name] = [run["rows_per_s"] for run in runs[python]]
    medians = {reader: statistics.median(values) for reader, values in rates.items()}
    first = medians[f"FeatureLoader({engines[0]})"]
    return {
        "row_bytes": row_bytes,
        "rows_per_s": {reader: round(value) for reader, value in medians.items()},
        "spread": {reader: [round(min(v)), round(max(v))] for reader, v in rates.items()},
        "ratio": {reader: round(first / value, 2) for reader, value in medians.items()},
    }


def main() -> None:
    args = parse_args()
    engines = args.engines.split(",")
    results = []
    with scratch_file(args.dir, args.size, suffix=".npy") as path:
        for row_bytes in numbers(args.row_bytes):
            write_header(path, row_bytes)
            if args.check:
                check(path, row_bytes, engines)
            results.append(measure(path, row_bytes, engines, args))
            print(json.dumps(results[-1]), file=sys.stderr)
    publish({"file_bytes": args.size, "features": results}, args)


if __name__ == "__main__":
    main()
