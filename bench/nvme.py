"""The NVMe queue code over emulated controllers: reads per second, CPU time, doorbells, faults.

``python bench/nvme.py --dir DIR``

1. Queue code: one thread submits and completes random reads on one queue of a controller that
   another thread emulates over memory; batches (contiguous) and groups of 32 (sparse).
2. Engines: the same random rows of one file in the page cache by ``nvme`` and a peer, io_uring
   unless told otherwise, at the same depth, in turn.
3. Faults: reads under error statuses, delays, disorder and lost completions; how each one ended.
4. Transfers: frames of a file in the page cache are written and read in swaps, as partitions of
   embeddings are, by ``nvme`` and the peer; commands for each doorbell.
5. On a GPU, where there is one: waves of reads over 64 queues against the number of thread blocks,
   split into submit and complete kernels (ours) and synchronous (as BaM does it), on the same
   controller, into page-locked memory and into the GPU's. ``--only-gpu`` and
   ``--only-transfers``: nothing else.

Medians over rounds; prints one JSON record. Fails if any read delivers a wrong byte.
"""

from __future__ import annotations

import argparse
import mmap
import time
from collections import Counter, deque
from functools import partial
from pathlib import Path

import numpy as np
import torch

from common import medians, parser, publish, take_turns
from lsm import native
from lsm.core.device import gpu_problem
from lsm.core.units import parse_bytes
from lsm.storage.engine import Storage
from lsm.storage.measure import scratch_file
from lsm.storage.options import StorageOptions
from lsm.storage.transfers import BLOCK_BYTES, TransferOptions, Transfers

READ_BYTES = 4096
ROWS_PER_REQUEST = 1024
FRAMES = 8
CHUNKS = {"64KiB": 64 << 10, "2MiB": 2 << 20}
TRANSFER_DEPTH = 8  # the default of embeddings


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--dir", type=Path, default=Path("."))
    arguments.add_argument("--size", type=parse_bytes, default=parse_bytes("256MiB"))
    arguments.add_argument("--memory", type=parse_bytes, default=parse_bytes("64MiB"))
    arguments.add_argument("--reads", type=int, default=1_000_000)
    arguments.add_argument("--depth", type=int, default=128, help="of the engines")
    arguments.add_argument("--peer", default="io_uring", help="engine to compare with nvme")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--gpu-reads", type=int, default=32_768, help="of a wave")
    arguments.add_argument("--only-gpu", action="store_true")
    arguments.add_argument("--only-transfers", action="store_true")
    return arguments.parse_args()


def queue_code(args, shape: str, file: str) -> dict:
    """One queue of 1,024 entries, kept full: reads/s, CPU time, doorbell writes."""
    measured = native.measure_nvme_reads(
        sparse=shape == "sparse",
        depth=1024,
        batch=256,
        read_bytes=READ_BYTES,
        reads=args.reads,
        file=file,
        memory_bytes=args.memory,
    )
    return {
        "reads_per_s": args.reads / measured["seconds"],
        "submitter_cpu_us_per_read": 1e6 * measured["submitter_cpu_secs"] / args.reads,
        "cpu_us_per_read": 1e6 * measured["process_cpu_secs"] / args.reads,
        "tail_doorbells_per_1000": 1e3 * measured["tail_writes"] / args.reads,
        "head_doorbells_per_1000": 1e3 * measured["head_writes"] / args.reads,
    }


def engine(path: Path, name: str, args, _round: int) -> dict:
    """Random rows by one engine, with several requests in flight."""
    num_rows = path.stat().st_size // READ_BYTES
    data = np.memmap(path, np.uint8, "r", shape=(num_rows, READ_BYTES))
    rng = np.random.default_rng(0)
    # Two blocks is the shortest "longest read"; random rows rarely fill the second.
    options = StorageOptions(queue_depth=args.depth, max_read_bytes=2 * READ_BYTES, direct="off")
    with Storage(
        [path], num_rows=num_rows, row_bytes=READ_BYTES, engine=name, options=options
    ) as storage:
        outs = [torch.zeros(ROWS_PER_REQUEST, READ_BYTES, dtype=torch.uint8) for _ in range(3)]
        tickets: deque = deque()

        def submit(out: torch.Tensor) -> None:
            ids = torch.from_numpy(rng.integers(0, num_rows, ROWS_PER_REQUEST))
            tickets.append((storage.submit(ids, out), out, ids))

        for out in outs:
            submit(out)
        storage.reset_stats()
        start, cpu = time.perf_counter(), time.process_time()
        for _ in range(args.reads // ROWS_PER_REQUEST):
            ticket, out, ids = tickets.popleft()
            ticket.wait()
            submit(out)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        reads = storage.stats()["reads"]
        for ticket, _out, ids in tickets:
            if not np.array_equal(ticket.wait(), data[ids]):
                raise SystemExit(f"{name}: wrong bytes")
    return {"reads_per_s": reads / seconds, "cpu_us_per_read": 1e6 * cpu / reads}


def faults(path: Path, args) -> dict:
    """Single-row reads, each with a time-out. Returns a Counter of their ends."""
    num_rows = path.stat().st_size // READ_BYTES
    data = np.memmap(path, np.uint8, "r", shape=(num_rows, READ_BYTES))
    rng = np.random.default_rng(1)
    emulation = {
        "seed": 1,
        "after": 1,  # the test read at opening
        "error_rate": 0.01,
        "loss_rate": 1e-4,
        "delay_rate": 0.001,
        "delay_secs": 0.002,
        "reorder": True,
    }
    options = StorageOptions(
        queue_depth=args.depth,
        max_read_bytes=2 * READ_BYTES,
        command_timeout_secs=0.1,
        emulation=emulation,
    )
    ends: Counter = Counter()
    longest = 0.0
    out = torch.zeros(ROWS_PER_REQUEST, READ_BYTES, dtype=torch.uint8)
    with Storage(
        [path], num_rows=num_rows, row_bytes=READ_BYTES, engine="nvme", options=options
    ) as storage:
        for _ in range(-(-args.reads // ROWS_PER_REQUEST)):
            ids = torch.from_numpy(rng.choice(num_rows, ROWS_PER_REQUEST, replace=False))
            good = np.zeros(ROWS_PER_REQUEST, bool)
            start = time.perf_counter()
            reads = [(ids[i : i + 1], out[i], None) for i in range(ROWS_PER_REQUEST)]
            for i, ticket in enumerate(storage.submit_together(reads)):
                try:
                    ticket.wait(30)
                except TimeoutError as error:
                    bounded = "did not complete within" in str(error)
                    ends["timed out" if bounded else "hung"] += 1
                except OSError as error:
                    ends[error.strerror.rsplit(": ", 1)[1].split(" (")[0]] += 1
                else:
                    good[i] = True
            longest = max(longest, time.perf_counter() - start)
            ends["right bytes"] += int(good.sum())
            if not np.array_equal(out[good], data[ids[good]]):
                raise SystemExit("faults: wrong bytes")
    return {"emulation": emulation, "ends": dict(ends), "longest_request_secs": round(longest, 3)}


def transfers(path: Path, name: str, chunk_bytes: int, args, round_number: int) -> dict:
    """Each frame of the file's first half is read, and written to the second while the next one is
    read."""
    size = path.stat().st_size // (2 * FRAMES) // BLOCK_BYTES * BLOCK_BYTES
    content = np.memmap(path, np.uint8, "r+", shape=(2, FRAMES, size))
    marks = content.reshape(-1, BLOCK_BYTES)[:, :8].view(np.int64)
    marks[:, 0] = np.arange(len(marks)) + (round_number << 32)  # no two pages alike
    frame = torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8)
    options = TransferOptions(
        engine=name, chunk_bytes=chunk_bytes, queue_depth=TRANSFER_DEPTH, direct="off"
    )
    with Transfers(path, options) as engine:
        engine.swap(frame, read_from=0)
        counted, start, cpu = engine.stats(), time.perf_counter(), time.process_time()
        for k in range(FRAMES):
            engine.swap(frame, write_to=(FRAMES + k) * size, read_from=(k + 1) % FRAMES * size)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        stats = {key: value - counted[key] for key, value in engine.stats().items()}
    if not np.array_equal(content[0], content[1]) or marks[0, 0] != round_number << 32:
        raise SystemExit(f"{name}: wrong bytes")
    moved = stats["bytes_read"] + stats["bytes_written"]
    result = {"gb_per_s": moved / seconds / 1e9, "cpu_secs_per_gb": cpu / moved * 1e9}
    if name == "nvme":
        result |= {key: stats[key] for key in ("commands", "doorbells")}
    return result


def transfer_rates(args) -> dict:
    """By length of a chunk, then by engine."""
    results = {}
    with scratch_file(args.dir, args.size) as path:
        for label, chunk_bytes in CHUNKS.items():
            engines = {
                name: partial(transfers, path, name, chunk_bytes, args)
                for name in ("nvme", args.peer)
            }
            by_engine = take_turns(args.rounds, engines)
            results[label] = {name: medians(runs) for name, runs in by_engine.items()}
    return results


def gpu(args) -> dict:
    """Reads per second by thread blocks; True if split kernels on 30% of the SMs reach the rate of
    synchronous ones on all SMs."""
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    share = round(0.3 * sms)
    counts = sorted({2**k for k in range(12) if 2**k < sms} | {share, sms})
    result: dict = {"gpu": torch.cuda.get_device_name(0), "sms": sms, "reads": args.gpu_reads}
    for memory in ("host", "device"):
        rates = native.measure_nvme_waves(
            num_blocks=counts,
            read_bytes=READ_BYTES,
            num_reads=args.gpu_reads,
            into_device_memory=memory == "device",
            rounds=args.rounds,
            device=0,
        )
        by_blocks = {row["thread_blocks"]: row for row in rates}
        split = by_blocks[share]["split_reads_per_s"]
        synchronous = by_blocks[sms]["synchronous_reads_per_s"]
        result[f"into_{memory}_memory"] = {
            "rates": [{key: round(value) for key, value in row.items()} for row in rates],
            "split_at_30_percent_to_synchronous_at_all": round(split / synchronous, 3),
        }
    return result


def on_host(args) -> dict:
    """The parts that need no GPU."""
    results: dict = {"queue_code": {}, "engines": {}}
    for shape in ("contiguous", "sparse"):
        runs = [queue_code(args, shape, "") for _ in range(args.rounds)]
        results["queue_code"][f"{shape}, memory"] = medians(runs)
    with scratch_file(args.dir, args.size) as path:
        path.read_bytes()  # into the page cache
        runs = [queue_code(args, "contiguous", str(path)) for _ in range(args.rounds)]
        results["queue_code"]["contiguous, file"] = medians(runs)
        engines = {name: partial(engine, path, name, args) for name in ("nvme", args.peer)}
        by_engine = take_turns(args.rounds, engines)
        results["engines"] = {name: medians(runs) for name, runs in by_engine.items()}
        results["faults"] = faults(path, args)
    return results


def main() -> None:
    args = parse_args()
    problem = gpu_problem(0)
    if args.only_gpu and problem is not None:
        raise SystemExit(f"no GPU to measure: {problem}")
    results = {} if args.only_gpu or args.only_transfers else on_host(args)
    if not args.only_gpu:
        results["transfers"] = transfer_rates(args)
    if problem is None and not args.only_transfers:
        results["gpu"] = gpu(args)
    publish({"nvme": results}, args)


if __name__ == "__main__":
    main()
