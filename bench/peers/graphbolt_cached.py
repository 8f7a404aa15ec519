"""Feature rows per second from disk behind GraphBolt's CPU cache (peer measurement).

Measures: `CPUCachedFeature` over `DiskBasedFeature` (GraphBolt after 2.1.0; it reads with
io_uring and O_DIRECT) on the request lists of a trace in order, with a cache of
`--cache-bytes` and the eviction policy `--policy` (sieve, s3-fifo, lru, clock). With `--in-flight
1` every list is read with `read()`; with more, that many lists are in flight in `read_async()`,
stage by stage, as GraphBolt's own data loader overlaps them. A cache must hold the lists in flight
several times over, or GraphBolt waits for ever; a smaller one is refused here.

Method: the file's pages are dropped from the page cache first. The first half of the trace fills
the cache; the rate is that of the second half; the rate of the whole trace is reported, too.
`--check` compares every row with the file; its rates mean nothing.

Input: FILE, a C-ordered .npy array of rows (its header padded to 4 KiB gives the reader its best
case: rows that do not straddle a block), writable (GraphBolt maps it "r+"; it is not changed), and
TRACE, an .npz with `ids` and `offsets` int64 (list t is ids[offsets[t]:offsets[t + 1]]). Output:
one line of JSON on stdout.

Allocate large tensors from the heap (MALLOC_MMAP_THRESHOLD_=1073741824,
MALLOC_TRIM_THRESHOLD_=4294967296 in the environment) for the peer's best rate.
"""

import argparse
import json
import os
import time
from collections import deque
from pathlib import Path

import numpy as np


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=Path, required=True, metavar="FILE")
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--cache-bytes", type=int, required=True)
    parser.add_argument("--policy", default="sieve", choices=("sieve", "s3-fifo", "lru", "clock"))
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="OpenMP threads")
    parser.add_argument("--disk-threads", type=int, help="threads that drive io_uring")
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


def drop_cache(path):
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_lists(feature, lists, in_flight, receive):
    """Calls receive(t, rows) for every list, in order."""
    if in_flight == 1:
        for t, ids in enumerate(lists):
            receive(t, feature.read(ids))
        return
    stages = feature.read_async_num_stages(lists[0].device)
    running = deque()  # (list, generator, stages done), the oldest first
    for t, ids in enumerate(lists):
        running.append([t, feature.read_async(ids), 0, None])
        # One stage further for each list in flight, until the oldest has to be delivered.
        while True:
            for entry in running:
                if entry[2] < stages:
                    entry[3] = next(entry[1])
                    entry[2] += 1
            if len(running) < in_flight:
                break
            if running[0][2] == stages:
                done = running.popleft()
                receive(done[0], done[3].wait())
                break
    while running:
        t, generator, stage, future = running.popleft()
        for _ in range(stage, stages):
            future = next(generator)
        receive(t, future.wait())


def main():
    args = parse_args()
    # Before the first import of torch: GraphBolt may bring an OpenMP runtime of its own.
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    os.environ.setdefault("DGLBACKEND", "pytorch")

    import dgl
    import dgl.graphbolt as gb
    import torch

    torch.set_num_threads(args.threads)
    if not (hasattr(gb, "DiskBasedFeature") and torch.ops.graphbolt.detect_io_uring()):
        raise SystemExit(f"dgl {dgl.__version__}: no DiskBasedFeature that reads with io_uring")
    with np.load(args.trace) as trace:
        bounds, ids = trace["offsets"], torch.from_numpy(trace["ids"])
    lists = [ids[a:b] for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
    expected = np.load(args.features, mmap_mode="r")
    row_bytes = expected.strides[0]
    needed = 2 * args.in_flight * max(map(len, lists)) * row_bytes
    if args.cache_bytes < needed:
        raise SystemExit(f"a cache of {args.cache_bytes} bytes may hang; give it {needed}")

    drop_cache(args.features)
    disk = gb.DiskBasedFeature(str(args.features), num_threads=args.disk_threads)
    feature = gb.cpu_cached_feature(disk, args.cache_bytes, policy=args.policy)
    secs = []

    def receive(t, rows):
        if args.check and not np.array_equal(
            rows.numpy().view(np.int32), expected[lists[t].numpy()].view(np.int32)
        ):
            raise SystemExit(f"rows of list {t} differ from the file")
        secs.append(time.perf_counter() - start)

    half = len(lists) // 2
    start = time.perf_counter()
    read_lists(feature, lists, args.in_flight, receive)
    result = {
        "reader": "CPUCachedFeature over DiskBasedFeature",
        "rows_per_s": sum(map(len, lists[half:])) / (secs[-1] - secs[half - 1]),
        "rows_per_s_whole": len(ids) / secs[-1],
        "hit_ratio": float(1 - feature.miss_rate),
        "cache_bytes": feature.cache_size_in_bytes,
        "policy": args.policy,
        "in_flight": args.in_flight,
        "threads": args.threads,
        "disk_threads": args.disk_threads,
        "row_bytes": row_bytes,
        "versions": {"dgl": dgl.__version__, "torch": torch.__version__, "numpy": np.__version__},
        "malloc": {k: v for k, v in os.environ.items() if k.startswith("MALLOC_")},
    }
    print(json.dumps(result), flush=True)
    os._exit(0)  # GraphBolt's threads may abort the process when Python takes it down


if __name__ == "__main__":
    main()
