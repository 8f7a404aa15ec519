"""Random reads of one file at many queue depths and block sizes, by our engines and by fio."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lsm.storage.engine import Storage, Ticket
from lsm.storage.options import StorageOptions

_PAGE_BYTES = 4096
_WRITE_BYTES = 16 << 20
_REQUEST_BYTES = 64 << 20


@dataclass(frozen=True)
class Point:
    """One reader at one setting: medians over the repeats."""

    reader: str  # an engine of ours, or "fio"
    block_bytes: int
    queue_depth: int
    iops: float
    gb_per_s: float
    p50_us: float
    p99_us: float
    iops_min: float
    iops_max: float


@dataclass(frozen=True)
class Source:
    """Bytes to read, in one file or striped over several as a store's features are."""

    paths: tuple[Path, ...]
    num_bytes: int
    stripe_bytes: int = _PAGE_BYTES

    @classmethod
    def of(cls, path: Path) -> Source:
        """All of one file."""
        return cls((path,), path.stat().st_size)


@contextlib.contextmanager
def scratch_file(path: Path, num_bytes: int, suffix: str = ".bin") -> Iterator[Path]:
    """``path`` itself if it is a file; else a temporary file of ``num_bytes`` random bytes in that
    directory. Raises OSError if the disk has no room for it."""
    if path.is_file():
        yield path
        return
    free = shutil.disk_usage(path).free
    if free < num_bytes:
        raise OSError(f"{path}: the test file takes {num_bytes} bytes, but only {free} are free")
    descriptor, name = tempfile.mkstemp(suffix, "lsm-bench-", dir=path)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            block = np.random.default_rng(0).bytes(_WRITE_BYTES)
            for start in range(0, num_bytes, _WRITE_BYTES):
                file.write(block[: num_bytes - start])
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        yield Path(name)
    finally:
        os.unlink(name)


def open_blocks(source: Source, engine: str, block_bytes: int, queue_depth: int) -> Storage:
    """An engine whose rows are the blocks of ``block_bytes`` of ``source``. Reads are direct,
    except those of mmap and memory, which copy."""
    options = StorageOptions(
        queue_depth=queue_depth,
        num_threads=queue_depth if engine == "posix" else None,
        max_read_bytes=max(2 * _PAGE_BYTES, block_bytes),
        direct="on" if engine in ("posix", "io_uring") else "auto",
    )
    return Storage(
        source.paths,
        num_rows=source.num_bytes // block_bytes,
        row_bytes=block_bytes,
        stripe_bytes=source.stripe_bytes,
        engine=engine,
        options=options,
    )


_Tickets = deque[tuple[Ticket, torch.Tensor]]


def measure_engine(
    source: Source,
    engine: str,
    block_bytes: int,
    queue_depth: int,
    seconds: float,
    seed: int,
    *,
    most_bytes: int | None = None,
    rows_per_request: int | None = None,
) -> dict[str, float]:
    """IOPS and latencies of random reads of ``block_bytes``.

    Ends after about ``seconds`` and at least one read, after ``most_bytes``, or after eight
    requests. Several requests of ``rows_per_request`` blocks (default: many times the depth) are in
    flight, so that the queue never runs empty.
    """
    num_blocks = source.num_bytes // block_bytes
    if rows_per_request is None:
        rows_per_request = min(max(64, 8 * queue_depth), max(8, _REQUEST_BYTES // block_bytes))
    most_requests: float = math.inf
    if most_bytes is not None:
        rows_per_request = max(1, min(rows_per_request, most_bytes // (8 * block_bytes)))
        most_requests = max(8, most_bytes // (rows_per_request * block_bytes))
    rng = np.random.default_rng(seed)
    outputs = [torch.empty(rows_per_request * block_bytes, dtype=torch.uint8) for _ in range(3)]
    with open_blocks(source, engine, block_bytes, queue_depth) as storage:
        tickets: _Tickets = deque()

        def submit(output: torch.Tensor) -> None:
            ids = torch.from_numpy(rng.integers(0, num_blocks, rows_per_request))
            tickets.append((storage.submit(ids, output), output))

        for output in outputs:
            submit(output)
        _turn(tickets, submit)  # warm-up: the first request is not counted
        storage.reset_stats()
        start, num_requests = time.perf_counter(), 0
        # Reads of the first turns may have ended before the count began.
        while num_requests < most_requests and (
            time.perf_counter() - start < seconds or storage.stats()["reads"] == 0
        ):
            _turn(tickets, submit)
            num_requests += 1
        elapsed = time.perf_counter() - start
        stats = storage.stats()
        for ticket, _ in tickets:
            ticket.wait()
    return {
        "iops": stats["reads"] / elapsed,
        "gb_per_s": stats["bytes_read"] / elapsed / 1e9,
        "p50_us": stats["p50_us"],
        "p99_us": stats["p99_us"],
    }


def _turn(tickets: _Tickets, submit: Callable[[torch.Tensor], None]) -> None:
    ticket, output = tickets.popleft()
    ticket.wait()
    submit(output)


def measure_fio(
    path: Path, block_bytes: int, queue_depth: int, seconds: float, seed: int
) -> dict[str, float]:
    """The same reads by fio's io_uring engine with registered buffers and files. Raises
    RuntimeError if fio is missing or fails.
    """
    if shutil.which("fio") is None:
        raise RuntimeError("fio is not installed; install it (Debian: fio) or leave --fio out")
    settings = {
        "name": "randread",
        "filename": path,
        "rw": "randread",
        "norandommap": 1,
        "bs": block_bytes,
        "iodepth": queue_depth,
        "ioengine": "io_uring",
        "direct": 1,
        "fixedbufs": 1,
        "registerfiles": 1,
        "time_based": 1,
        "runtime": max(1, round(seconds)),
        "randseed": seed + 1,
        "output-format": "json",
    }
    command = ["fio", *(f"--{key}={value}" for key, value in settings.items())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    if done.returncode != 0:
        raise RuntimeError(f"fio failed: {done.stderr.strip() or done.stdout.strip()}")
    read = json.loads(done.stdout)["jobs"][0]["read"]
    percentiles = read["clat_ns"]["percentile"]
    return {
        "iops": read["iops"],
        "gb_per_s": read["bw_bytes"] / 1e9,
        "p50_us": percentiles["50.000000"] / 1e3,
        "p99_us": percentiles["99.000000"] / 1e3,
    }


def sweep(
    path: Path,
    *,
    engine: str,
    block_sizes: list[int],
    queue_depths: list[int],
    seconds: float,
    repeats: int,
    with_fio: bool,
    report: Callable[[Point], None] = lambda point: None,
) -> list[Point]:
    """Measures every combination ``repeats`` times and calls ``report(point)`` after each. Ours and
    fio take turns, so that drift of the machine affects both."""
    points = []
    for block_bytes in block_sizes:
        for queue_depth in queue_depths:
            runs: dict[str, list[dict[str, float]]] = {engine: []}
            for repeat in range(repeats):
                runs[engine].append(
                    measure_engine(
                        Source.of(path), engine, block_bytes, queue_depth, seconds, repeat
                    )
                )
                if with_fio:
                    runs.setdefault("fio", []).append(
                        measure_fio(path, block_bytes, queue_depth, seconds, repeat)
                    )
            for reader, results in runs.items():
                points.append(_median_point(reader, block_bytes, queue_depth, results))
                report(points[-1])
    return points


def _median_point(
    reader: str, block_bytes: int, queue_depth: int, runs: list[dict[str, float]]
) -> Point:
    median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    iops = [run["iops"] for run in runs]
    return Point(reader, block_bytes, queue_depth, **median, iops_min=min(iops), iops_max=max(iops))


def as_record(points: list[Point]) -> list[dict[str, Any]]:
    """The points as plain dictionaries, for JSON."""
    return [asdict(point) for point in points]
