"""Feature rows per second from disk behind a cache: our planned one, and GraphBolt's.

``python bench/cached_features.py --trace FILE.npz --dir DIR --peer-python /path/to/python``

Both sides serve the request lists of one trace (``lsm trace``, one rank) from one file, list by
list, as a training loop requests them. Both have the same bytes of cache; ours divides them between
cache and victim buffer (``--victim-share``). Staging memory is reported, but not counted: ours is
up to ``--staging-bytes`` and ``--prefetch`` lists, the peer's the lists in flight. With
``--count-staging`` the peer runs once more with our staging bytes added to its cache. Reads bypass
the page cache on both sides (O_DIRECT), and the file's pages are dropped as well.

The first half of the trace fills the caches. The rate is that of the second half; the rate of the
whole trace is reported, too. The readers take turns; medians over ``--rounds``. ``--check`` first
compares our rows with the file, and makes the peer do the same. GraphBolt runs in an environment of
its own (bench/peers/README.md), with every policy and number of lists in flight that the options
name. Rows lie in a .npy file whose header is padded to 4 KiB: GraphBolt's reader finds them
aligned, and ours sees the header as the first rows. Prints one JSON record.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch

from common import (
    BENCH,
    HEADER_BYTES,
    PEER_MALLOC,
    drop_cache,
    feature_files,
    median_run,
    numbers,
    parser,
    publish,
    run_program,
    take_turns,
    write_header,
)
from lsm.ablation.reads import deliver
from lsm.ablation.trace import Trace
from lsm.cache.options import CacheOptions
from lsm.core.units import parse_bytes
from lsm.features.open import open_features
from lsm.loader.prepared import Prepared
from lsm.storage.options import StorageOptions
from lsm.storage.read_ahead import ReadAhead

CHUNK_ROWS = 16_384


def merge_settings(text: str) -> list[int | str]:
    """Values of storage.merge_iterations, by commas. Raises ValueError for any other."""
    values = [int(word) if word.isdecimal() else word for word in text.split(",")]
    return [StorageOptions(merge_iterations=value).merge_iterations for value in values]


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--trace", type=Path, required=True, help="as written by lsm trace")
    arguments.add_argument("--dir", type=Path, default=Path("."), help="where the file is made")
    arguments.add_argument("--row-bytes", default="1024,4096")
    arguments.add_argument("--cache-share", default="0.05,0.2", help="of all rows, by commas")
    arguments.add_argument("--policy", default="lookahead")
    arguments.add_argument("--victim-share", type=float, default=0.5, help="of the cache's bytes")
    arguments.add_argument("--window", type=int, default=256)
    arguments.add_argument(
        "--merge-iterations",
        type=merge_settings,
        default="1,half",
        help="values of storage.merge_iterations to try, by commas; half: of the lists in flight",
    )
    arguments.add_argument("--max-gap-bytes", type=parse_bytes, default=parse_bytes("16KiB"))
    arguments.add_argument("--max-read-bytes", type=parse_bytes, default=parse_bytes("256KiB"))
    arguments.add_argument("--prefetch", type=int, default=32)
    arguments.add_argument("--staging-bytes", type=parse_bytes, default=parse_bytes("256MiB"))
    arguments.add_argument("--engine", default="io_uring")
    arguments.add_argument("--threads", type=int, default=os.cpu_count())
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--peer-python")
    arguments.add_argument("--peer-policies", default="sieve,s3-fifo")
    arguments.add_argument("--peer-in-flight", default="1,4", help="lists in flight, by commas")
    arguments.add_argument("--count-staging", action="store_true")
    arguments.add_argument("--check", action="store_true")
    return arguments.parse_args()


@contextmanager
def feature_file(folder: Path, num_rows: int, row_bytes: int) -> Iterator[Path]:
    """A temporary .npy file of ``num_rows`` distinct float32 rows."""
    descriptor, name = tempfile.mkstemp(".npy", "lsm-bench-", dir=folder)
    path = Path(name)
    try:
        block = np.random.default_rng(0).random((CHUNK_ROWS, row_bytes // 4), np.float32)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            file.write(bytes(HEADER_BYTES))
            for begin in range(0, num_rows, CHUNK_ROWS):
                rows = block[: num_rows - begin]
                rows.view(np.int64)[:, 0] = np.arange(begin, begin + len(rows))
                file.write(rows.data)
            os.fsync(file.fileno())
        write_header(path, row_bytes)
        yield path
    finally:
        path.unlink()


def open_loader(path: Path, row_bytes: int, cache_bytes: int, merge: int | str, args):
    victim_bytes = int(cache_bytes * args.victim_share)
    cache = CacheOptions(
        policy=args.policy,
        bytes=cache_bytes - victim_bytes,
        window=args.window,
        victim_mode="pool" if victim_bytes else "none",
        victim_bytes=victim_bytes,
    )
    merged = {"max_gap_bytes": args.max_gap_bytes, "max_read_bytes": args.max_read_bytes}
    options = StorageOptions(
        engine=args.engine, merge_iterations=merge, **(merged if merge != 1 else {})
    )
    return open_features(
        feature_files(path, row_bytes),
        cache,
        options,
        num_threads=args.threads,
    )


def time_ours(
    path: Path, row_bytes: int, cache_bytes: int, merge: int | str, lists, args, _round: int
) -> dict:
    expected = None
    if args.check:
        expected = torch.from_numpy(np.load(path, mmap_mode="c"))
    drop_cache(path)

    def compare(batch: Prepared) -> None:
        # Compares bits: row ids read as floats may be NaN.
        wanted = expected[lists[batch.iteration]]
        if not torch.equal(batch.x.view(torch.int32), wanted.view(torch.int32)):
            raise SystemExit(f"rows of list {batch.iteration} differ from the file")

    shifted = [ids + HEADER_BYTES // row_bytes for ids in lists]
    with open_loader(path, row_bytes, cache_bytes, merge, args) as loader:
        secs = deliver(
            loader,
            shifted,
            read_ahead=ReadAhead.fixed(args.prefetch),
            staging_bytes=args.staging_bytes,
            receive=compare if args.check else None,
        )
        stats = loader.stats()
    return rates(secs, lists) | {
        "hit_ratio": 1 - stats["cache_misses"] / stats["cache_requests"],
        "reads": stats["reads"],
        "bytes_read": stats["bytes_read"],
        "read_amplification": stats["read_amplification"],
        "plan_secs": stats["cache_plan_secs"],
        "read_wait_secs": stats["cache_read_wait_secs"],
        "replay_secs": stats["cache_replay_secs"],
    }


def rates(secs: list[float], lists: list[torch.Tensor]) -> dict[str, float]:
    """Rows/s of the second half of the trace, and of all of it. ``secs``: arrival of each list."""
    half = len(lists) // 2
    warm = sum(map(len, lists[half:])) / (secs[-1] - secs[half - 1])
    return {"rows_per_s": warm, "rows_per_s_whole": sum(map(len, lists)) / secs[-1]}


def time_peer(path: Path, cache_bytes: int, policy: str, in_flight: str, args, _round: int) -> dict:
    script = BENCH / "peers" / "graphbolt_cached.py"
    command = [args.peer_python, script, "--features", path]
    command += ["--trace", args.trace, "--cache-bytes", cache_bytes]
    command += ["--policy", policy, "--in-flight", in_flight, "--threads", args.threads]
    command += ["--check"] if args.check else []
    return run_program(command, timeout=900, env=PEER_MALLOC | {"DGLBACKEND": "pytorch"})


def measure(path: Path, row_bytes: int, cache_bytes: int, lists, args) -> dict:
    readers = {}
    for merge in args.merge_iterations:
        name = f"ours, {merge} lists' reads together"
        readers[name] = partial(time_ours, path, row_bytes, cache_bytes, merge, lists, args)
    sizes = {"": cache_bytes}
    if args.count_staging:
        sizes[", cache larger by our staging"] = cache_bytes + args.staging_bytes
    ways = itertools.product(args.peer_policies.split(","), args.peer_in_flight.split(","))
    for (policy, in_flight), (more, size) in itertools.product(ways, sizes.items()):
        if args.peer_python:
            name = f"GraphBolt, {policy}, {in_flight} in flight{more}"
            readers[name] = partial(time_peer, path, size, policy, in_flight, args)
    runs = take_turns(args.rounds, readers)
    return {"cache_bytes": cache_bytes, "row_bytes": row_bytes, "readers": summary(runs)}


def summary(runs: dict[str, list[dict]]) -> dict[str, dict]:
    """The median run of each reader (of two in the middle, the faster one), with the spread of its
    rates and the ``ratio`` of our best rate to its own."""
    out = {}
    for name, results in runs.items():
        rates = [round(run["rows_per_s"]) for run in results]
        spread = [min(rates), max(rates)]
        out[name] = median_run(results, "rows_per_s") | {"spread": spread}
    best = max(run["rows_per_s"] for name, run in out.items() if name.startswith("ours"))
    return {name: run | {"ratio": round(best / run["rows_per_s"], 2)} for name, run in out.items()}


def request_lists(path: Path) -> tuple[list[torch.Tensor], int]:
    trace = Trace.load(path)
    if trace.num_ranks != 1 or trace.num_iterations < 2:
        raise SystemExit("--trace: expected one rank and at least 2 iterations; lsm trace makes it")
    return trace.owner_batches(0), trace.num_nodes


def main() -> None:
    args = parse_args()
    lists, num_nodes = request_lists(args.trace)
    results = []
    for row_bytes in numbers(args.row_bytes):
        with feature_file(args.dir, num_nodes, row_bytes) as path:
            for share in map(float, args.cache_share.split(",")):
                cache_bytes = int(share * num_nodes) * row_bytes
                made = measure(path, row_bytes, cache_bytes, lists, args)
                results.append({"cache_share": share} | made)
                print(json.dumps(results[-1]), file=sys.stderr)
    about = {
        "nodes": num_nodes,
        "lists": len(lists),
        "mean_list": sum(map(len, lists)) / len(lists),
    }
    publish({"trace": about, "cached_features": results}, args)


if __name__ == "__main__":
    main()
