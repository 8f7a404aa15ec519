"""Measures a disk's profile: latency, reads per second by depth, cost of a read by size."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from lsm.core import record
from lsm.data.graph_store import GraphStore
from lsm.storage.disk_profile import DepthPoint, DiskProfile, ReadCost, SizePoint, disk_facts
from lsm.storage.engine import select_engine
from lsm.storage.measure import Source, measure_engine, open_blocks

BLOCK_BYTES = 4096
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SIZES = tuple(BLOCK_BYTES << k for k in range(9))  # 4 KiB to 1 MiB
_FULL_DEPTH = 128
_IN_FLIGHT_BYTES = 32 << 20
_READS_OF_A_SIZE = 16  # sizes of which the files hold fewer are not measured
_LEAST_BYTES = 64 * BLOCK_BYTES


def feature_source(store_path: Path) -> Source:
    """The feature files of the store at ``store_path``; of several types, the largest. Raises
    ValueError without any."""
    store = GraphStore.open(store_path)
    nodes = [store.nodes(name) for name in store.node_types]
    found = [each.feature_files for each in nodes if each.features is not None]
    if not found:
        raise ValueError(f"{store_path}: no node type has features")
    files = max(found, key=lambda each: each.num_rows * each.row_bytes)
    return Source(files.paths, files.num_rows * files.row_bytes, files.stripe_bytes)


_ENGINES: dict[str, Literal["posix", "io_uring"]] = {"posix": "posix", "io_uring": "io_uring"}


def measure_profile(
    source: Source,
    engine: str,
    seconds: float,
    repeats: int,
    report: Callable[[str], None] = lambda line: None,
) -> DiskProfile:
    """The profile of the disk that holds ``source``. Each point is the median of ``repeats``
    measurements of ``seconds``, which the points take in turn. ``report`` gets a line per step.

    Raises ValueError for an engine that reads from memory and for files too small to measure,
    OSError where the file system has no direct reads.
    """
    engine = select_engine(engine)[0]
    if engine not in _ENGINES:
        raise ValueError(
            f"--engine: expected io_uring or posix, got {engine}: it overlaps no reads"
        )
    if source.num_bytes < _LEAST_BYTES:
        raise ValueError(
            f"{source.paths[0].parent}: expected at least {_LEAST_BYTES} bytes of features to "
            f"measure reads with, got {source.num_bytes}; measure a file with --path and --json"
        )
    if seconds <= 0 or repeats < 1:
        raise ValueError("--seconds, --repeats: expected more than 0")
    request_secs = lone_request(source, engine, seconds)
    report(f"one row, nothing else in flight: {request_secs * 1e6:.1f} us")
    by_depth: dict[int, list[dict[str, float]]] = {depth: [] for depth in DEPTHS}
    by_size: dict[int, list[dict[str, float]]] = {
        size: [] for size in SIZES if size * _READS_OF_A_SIZE <= source.num_bytes
    }
    for repeat in range(repeats):
        for depth, runs in by_depth.items():
            runs.append(measure_engine(source, engine, BLOCK_BYTES, depth, seconds, repeat))
        for size, runs in by_size.items():
            depth = min(_FULL_DEPTH, _IN_FLIGHT_BYTES // size)
            runs.append(measure_engine(source, engine, size, depth, seconds, repeat))
    profile = profile_of(source, engine, request_secs, by_depth, by_size)
    for point in profile.iops:
        report(f"depth {point.depth:>3}: {point.iops:>9,.0f} reads/s of {BLOCK_BYTES} bytes")
    for cost in profile.sizes:
        report(f"{cost.bytes:>7} bytes: {cost.secs * 1e6:>7.2f} us of disk time per read")
    return profile


def profile_of(
    source: Source,
    engine: str,
    request_secs: float,
    by_depth: dict[int, list[dict[str, float]]],
    by_size: dict[int, list[dict[str, float]]],
) -> DiskProfile:
    """The profile that results of measure_engine() give: reads of a block by queue depth, 1 among
    them, and reads at full depth by size."""
    iops = [
        DepthPoint(depth=depth, iops=statistics.median(run["iops"] for run in runs))
        for depth, runs in by_depth.items()
    ]
    samples = [
        (1e9 * run["gb_per_s"] / run["iops"], 1 / run["iops"])
        for runs in by_size.values()
        for run in runs
    ]
    sizes = [
        SizePoint(bytes=size, secs=statistics.median(1 / run["iops"] for run in runs))
        for size, runs in by_size.items()
    ]
    about = record.make({})
    return DiskProfile(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        commit=about["commit"],
        machine=about["machine"],
        device=disk_facts(source.paths[0]),
        engine=_ENGINES[engine],
        num_files=len(source.paths),
        file_bytes=source.num_bytes,
        block_bytes=BLOCK_BYTES,
        latency_secs=statistics.median(run["p50_us"] for run in by_depth[1]) / 1e6,
        request_secs=request_secs,
        iops=iops,
        peak_iops=max(point.iops for point in iops),
        sizes=sizes,
        cost=ReadCost.fitted(samples),
    )


def enough_bytes(profile: DiskProfile, seconds: float) -> int:
    """Bytes, a power of two, that suffice for all SIZES and that no measurement of ``seconds``
    reads twice. With fewer bytes a cache of the drive, or one below it, may answer."""
    fastest = max(point.bytes / point.secs for point in profile.sizes)
    at_least = max(fastest * seconds, SIZES[-1] * _READS_OF_A_SIZE)
    return 1 << math.ceil(math.log2(at_least))


def lone_request(source: Source, engine: str, seconds: float) -> float:
    """Median seconds of a request for one block, with no other in flight."""
    rng = np.random.default_rng(0)
    out = torch.empty(BLOCK_BYTES, dtype=torch.uint8)
    took: list[float] = []
    with open_blocks(source, engine, BLOCK_BYTES, queue_depth=1) as storage:
        until = time.perf_counter() + seconds
        while len(took) < 2 or time.perf_counter() < until:
            row = torch.from_numpy(rng.integers(0, storage.num_rows, 1))
            start = time.perf_counter()
            storage.submit(row, out).wait()
            took.append(time.perf_counter() - start)
    return statistics.median(took)
