"""Random feature rows per second read from a file by GraphBolt (peer measurement).

Measures: rows per second of `Feature.read(ids)` for uniformly random ids, from a .npy file
that should be several times larger than the memory left for the page cache. The reader is

* disk  `dgl.graphbolt.DiskBasedFeature`, where this DGL has one (2.2 and later; it reads with
        io_uring where the kernel and the build allow it, and else as `mmap` does), or
* mmap  `dgl.graphbolt.TorchBasedFeature` over `numpy.load(file, mmap_mode="r+")`, which
        GraphBolt 2.1.0, the last release on PyPI, builds for an `in_memory: false` feature
        (`TorchBasedFeatureStore`). Each missing page is one page fault.

`--reader auto` takes `disk` where it exists; the output says which one ran. `--random-advice`
gives the mapping MADV_RANDOM, which GraphBolt itself does not do: it turns off the kernel's
read-around, which otherwise fetches a whole read-ahead window for every row that is not cached.
Report both: the first is GraphBolt as it comes, the second the best that this reader can do.

Method: the ids of every batch are drawn in advance from `--seed`. The file's pages are dropped from
the page cache first (posix_fadvise, no privileges needed; `--keep-cache` leaves them). One batch
of other ids warms up the code; then `--batches` batches of `--rows-per-batch` rows are timed. The
rate over all batches is reported, with the median and the extremes over batches, and the bytes
that this process made the kernel fetch from storage (/proc/self/io), which tells apart a cache
from a device. One run has one cold file: repeat the run for a spread.

Input: FILE, a C-ordered array of --num-rows x --dim elements of --dtype, either .npy or raw (only
`mmap` takes a raw file), writable (GraphBolt maps it "r+"). It is not changed. Output: one line of
JSON on stdout.

Needs dgl with the torch its GraphBolt library was built for (dgl 2.1: torch 2.2.1 or older), and
torchdata below 0.8.
"""

import argparse
import json
import mmap
import os
import statistics
import time
from pathlib import Path

import numpy as np


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=Path, required=True, metavar="FILE")
    parser.add_argument("--num-rows", type=int, required=True)
    parser.add_argument("--dim", type=int, required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rows-per-batch", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="OpenMP threads")
    parser.add_argument("--reader", choices=("auto", "disk", "mmap"), default="auto")
    parser.add_argument("--random-advice", action="store_true", help="MADV_RANDOM (mmap only)")
    parser.add_argument("--keep-cache", action="store_true", help="do not drop cached pages")
    return parser.parse_args()


def drop_cache(path):
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def device_bytes():
    """Bytes this process has made the kernel read from storage, or None."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def map_features(args, mode):
    """The feature file as a memory-mapped array."""
    if args.features.suffix == ".npy":
        return np.load(args.features, mmap_mode=mode)
    return np.memmap(args.features, args.dtype, mode, shape=(args.num_rows, args.dim))


def open_feature(gb, torch, args, reader):
    if reader == "disk":
        return gb.DiskBasedFeature(str(args.features))
    array = map_features(args, "r+")
    if args.random_advice:
        array._mmap.madvise(mmap.MADV_RANDOM)
    return gb.TorchBasedFeature(torch.from_numpy(array))


def main():
    args = parse_args()
    # Before the first import of torch: GraphBolt may bring an OpenMP runtime of its own.
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    os.environ.setdefault("DGLBACKEND", "pytorch")

    import dgl
    import dgl.graphbolt as gb
    import torch

    torch.set_num_threads(args.threads)
    has_disk = hasattr(gb, "DiskBasedFeature")
    reader = args.reader if args.reader != "auto" else ("disk" if has_disk else "mmap")
    if reader == "disk" and not has_disk:
        raise SystemExit(f"dgl {dgl.__version__} has no graphbolt.DiskBasedFeature")

    header = map_features(args, "r")
    expected = (args.num_rows, args.dim), np.dtype(args.dtype)
    if (header.shape, header.dtype) != expected:
        raise SystemExit(f"{args.features} is {header.shape} {header.dtype}, not {expected}")
    del header

    rng = np.random.default_rng(args.seed)
    batches = [
        torch.from_numpy(rng.integers(args.num_rows, size=args.rows_per_batch))
        for _ in range(args.batches + 1)
    ]
    if not args.keep_cache:
        drop_cache(args.features)
    feature = open_feature(gb, torch, args, reader)
    feature.read(batches.pop())

    bytes_before = device_bytes()
    seconds = []
    for ids in batches:
        start = time.perf_counter()
        rows = feature.read(ids)
        seconds.append(time.perf_counter() - start)
    bytes_after = device_bytes()
    if rows.shape != (args.rows_per_batch, args.dim):
        raise SystemExit(f"read {tuple(rows.shape)}")

    total = args.batches * args.rows_per_batch
    row_bytes = args.dim * np.dtype(args.dtype).itemsize
    result = {
        "reader": {"disk": "DiskBasedFeature", "mmap": "TorchBasedFeature(mmap)"}[reader],
        "has_disk_based_feature": has_disk,
        "rows_per_s": total / sum(seconds),
        "rows_per_s_batch_median": args.rows_per_batch / statistics.median(seconds),
        "rows_per_s_batch_min": args.rows_per_batch / max(seconds),
        "rows_per_s_batch_max": args.rows_per_batch / min(seconds),
        "useful_bytes": total * row_bytes,
        "device_bytes": None if bytes_before is None else bytes_after - bytes_before,
        "row_bytes": row_bytes,
        "file_bytes": args.features.stat().st_size,
        "versions": {"dgl": dgl.__version__, "torch": torch.__version__, "numpy": np.__version__},
        "threads": args.threads,
        "random_advice": args.random_advice and reader == "mmap",
        "cache_dropped": not args.keep_cache,
        "rows_per_batch": args.rows_per_batch,
        "batches": args.batches,
        "seed": args.seed,
    }
    if reader == "disk" and hasattr(torch.ops.graphbolt, "detect_io_uring"):
        result["io_uring"] = bool(torch.ops.graphbolt.detect_io_uring())
    print(json.dumps(result))


if __name__ == "__main__":
    main()
