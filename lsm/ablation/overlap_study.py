"""Overlapping accesses to a disk: the model and measurements (GIDS, 4.2 and 4.3).

There are two measurements on one test file: bursts of accesses that start together, next to the
model's curve; and iterations of several batch sizes through the pipeline of training, with and
without the accumulator.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from lsm.ablation import report
from lsm.ablation.config import AblationConfig, AccumulatorConfig
from lsm.ablation.overlap_plots import draw_batches, draw_overlap
from lsm.ablation.reads import deliver
from lsm.ablation.study import open_or_make, require_one_type
from lsm.ablation.trace_sampling import sample_trace
from lsm.cache.options import CacheOptions
from lsm.config.schema import Config
from lsm.core import record
from lsm.core.figures import require_matplotlib
from lsm.core.progress import counting
from lsm.data.feature_files import FeatureFiles
from lsm.data.graph_store import GraphStore
from lsm.features.open import open_features
from lsm.storage.disk_profile import DiskProfile, save_profile
from lsm.storage.measure import Source, open_blocks, scratch_file
from lsm.storage.measure_profile import measure_profile
from lsm.storage.options import StorageOptions
from lsm.storage.read_ahead import ReadAhead
from lsm.train.read_settings import ReadSettings

_WINDOW = 64
_MOST_ITERATIONS = 4000
_MOST_AHEAD = 64


@dataclass(frozen=True)
class _Way:
    """A way to read ahead."""

    name: str
    read_ahead: ReadAhead
    options: StorageOptions


def run_study(config: AblationConfig, *, progress: bool | None = None) -> list[dict]:
    """Measures, writes ``config.output`` and returns the records. Files: records.json, overlap.csv,
    batches.csv, table.md, profile.json, study.json and, with plot.enabled, overlap.png and
    batches.png."""
    if config.plot.enabled:
        require_matplotlib("set plot.enabled=false")
    settings, store = config.accumulator, open_or_make(config.graph, progress=progress)
    require_one_type(store, "accumulator.enabled")
    traces = _request_lists(config, store, progress)
    Path(settings.directory).mkdir(parents=True, exist_ok=True)
    num_bytes = store.num_nodes * settings.row_bytes
    with scratch_file(Path(settings.directory), -(-num_bytes // 4096) * 4096) as path:
        source = Source.of(path)
        profile = measure_profile(source, settings.engine, settings.seconds, settings.repeats)
        overlap = _overlap(source, profile, settings, progress)
        files = FeatureFiles((path,), store.num_nodes, settings.row_bytes, torch.uint8)
        batches = _batches(files, profile, settings, traces, progress)
    _write(config, profile, overlap, batches)
    return [*overlap, *batches]


def _request_lists(
    config: AblationConfig, store: GraphStore, progress: bool | None
) -> dict[int, list[torch.Tensor]]:
    """Request lists by batch size, with iterations for ``rows`` rows."""
    settings, traces = config.accumulator, {}
    for batch_size in settings.batch_sizes:
        guess = batch_size
        for fanout in reversed(config.trace.num_neighbors):
            guess = batch_size + guess * max(1, fanout)
        iterations = min(_MOST_ITERATIONS, max(30, settings.rows // guess))
        trace = sample_trace(
            store,
            config.trace.num_neighbors,
            batch_size,
            ranks=1,
            iterations=iterations,
            seed=config.trace.seed,
            progress=progress,
        )
        traces[batch_size] = [
            torch.from_numpy(trace.request_list(iteration, 0).copy())
            for iteration in range(trace.num_iterations)
        ]
    return traces


def _overlap(
    source: Source,
    profile: DiskProfile,
    settings: AccumulatorConfig,
    progress: bool | None,
) -> list[dict]:
    """Bursts of accesses to random blocks, next to the model."""
    model, counts = profile.access_model(), settings.accesses
    iops: dict[int, list[float]] = {count: [] for count in counts}
    with counting("overlapping accesses", settings.repeats * len(counts), progress) as advance:
        for repeat in range(settings.repeats):
            for count in counts:
                iops[count].append(_bursts(source, profile.engine, count, settings.seconds, repeat))
                advance(1)
    return [
        {
            "study": "overlap",
            "accesses": count,
            "iops": round(statistics.median(runs)),
            "iops_min": round(min(runs)),
            "iops_max": round(max(runs)),
            "iops_model": round(model.iops(count)),
            "share": round(statistics.median(runs) / profile.peak_iops, 4),
            "share_model": round(model.share(count), 4),
        }
        for count, runs in iops.items()
    ]


def _bursts(source: Source, engine: str, count: int, seconds: float, seed: int) -> float:
    """Reads per second of repeated bursts of ``count`` reads."""
    block_bytes = 4096
    rng = np.random.default_rng(seed)
    out = torch.empty(count * block_bytes, dtype=torch.uint8)
    with open_blocks(source, engine, block_bytes, queue_depth=min(256, count)) as storage:

        def burst() -> None:
            ids = torch.from_numpy(rng.integers(0, source.num_bytes // block_bytes, count))
            storage.submit(ids, out).wait()

        burst()
        storage.reset_stats()
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            burst()
        return storage.stats()["reads"] / (time.perf_counter() - start)


def _ways(profile: DiskProfile, target_share: float) -> list[_Way]:
    accesses = profile.access_model().accesses(target_share)
    plain = StorageOptions(direct="on")
    merged = ReadSettings.of(Config(), profile)
    options = StorageOptions(
        direct="on",
        max_read_bytes=merged.options.max_read_bytes,
        max_gap_bytes=merged.options.max_gap_bytes,
        merge_iterations=merged.options.merge_iterations,
    )
    return [
        _Way("one iteration", ReadAhead.fixed(1), plain),
        _Way("4 iterations", ReadAhead.fixed(4), plain),
        _Way("accumulator", ReadAhead(1, _MOST_AHEAD, accesses), plain),
        _Way("auto", merged.read_ahead, options),
    ]


def _batches(
    files: FeatureFiles,
    profile: DiskProfile,
    settings: AccumulatorConfig,
    traces: dict[int, list[torch.Tensor]],
    progress: bool | None,
) -> list[dict]:
    """Every batch size, cache and way, in turns."""
    ways = _ways(profile, settings.target_share)
    points = [
        (size, fraction, way)
        for size in settings.batch_sizes
        for fraction in settings.cache_fractions
        for way in ways
    ]
    runs: list[list[dict]] = [[] for _ in points]
    with counting("batches", settings.repeats * len(points), progress) as advance:
        for _ in range(settings.repeats):
            for results, (size, fraction, way) in zip(runs, points, strict=True):
                results.append(_run(files, profile, settings, traces[size], fraction, way))
                advance(1)
    records = []
    for results, (size, fraction, way) in zip(runs, points, strict=True):
        median = sorted(results, key=lambda each: each["rows_per_s"])[len(results) // 2]
        rates = [each["rows_per_s"] for each in results]
        about = {"study": "batches", "batch_size": size, "cache": fraction, "way": way.name}
        records.append(about | median | {"rows_min": min(rates), "rows_max": max(rates)})
    return records


def _run(
    files: FeatureFiles,
    profile: DiskProfile,
    settings: AccumulatorConfig,
    lists: list[torch.Tensor],
    cache_fraction: float,
    way: _Way,
) -> dict:
    """Rows per second of a consumer that does nothing with them, from a cold start to the end."""
    cached = round(cache_fraction * files.num_rows) * files.row_bytes
    cache = CacheOptions(bytes=cached, window=_WINDOW) if cached else None
    options = way.options.model_copy(update={"engine": profile.engine})
    in_flight: list[float] = []
    with open_features(files, cache, options) as features:
        # The time before the first iteration counts: otherwise deeper read-ahead would get more
        # rows for free.
        seconds = deliver(
            features,
            lists,
            read_ahead=way.read_ahead,
            staging_bytes=settings.staging_bytes,
            receive=lambda batch: in_flight.append(batch.stats["iterations_in_flight"]),
        )[-1]
        reads = features.storage.stats()["reads"]
    count = sum(map(len, lists))
    return {
        "rows_per_s": round(count / seconds),
        "gb_per_s": round(count * files.row_bytes / seconds / 1e9, 4),
        "reads_per_s": round(reads / seconds),
        "reads_per_row": round(reads / count, 4),
        "iterations_in_flight": round(statistics.mean(in_flight), 2),
        "rows_per_iteration": round(count / len(lists), 1),
    }


def markdown(records: Sequence[dict]) -> str:
    """A table for each of the two measurements."""
    tables = []
    for study in ("overlap", "batches"):
        chosen = [each for each in records if each["study"] == study]
        columns = [name for name in chosen[0] if name != "study"]
        rows = [[str(each[name]) for name in columns] for each in chosen]
        tables.append(report.markdown_table(columns, rows))
    return "\n".join(tables)


def _write(
    config: AblationConfig, profile: DiskProfile, overlap: list[dict], batches: list[dict]
) -> None:
    folder = Path(config.output)
    folder.mkdir(parents=True, exist_ok=True)
    report.write_json(folder / "records.json", [*overlap, *batches])
    report.write_csv(folder / "overlap.csv", overlap)
    report.write_csv(folder / "batches.csv", batches)
    report.write_text(folder / "table.md", markdown([*overlap, *batches]))
    save_profile(profile, folder / "profile.json")
    values = config.model_dump(mode="json")
    wanted = {name: values[name] for name in ("graph", "trace", "accumulator")}
    wanted["accumulator"]["directory"] = "."  # of one machine
    wanted["graph"].pop("path")
    about = record.make({"results": ["records.json"]}, wanted)
    report.write_text(folder / "study.json", json.dumps(about, indent=1) + "\n")
    if config.plot.enabled:
        draw_overlap(profile, overlap, config.accumulator.target_share, folder / "overlap.png")
        draw_batches(profile, batches, folder / "batches.png")
