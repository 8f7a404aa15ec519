"""Real reads of a study: the rows of a trace through a feature loader, as in training."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from lsm.ablation.config import ReadsConfig
from lsm.ablation.runs import OFFLINE, Combination
from lsm.ablation.trace import Trace
from lsm.cache.options import CacheOptions, ConstantOptions, VictimOptions
from lsm.core.progress import counting
from lsm.data.graph_store import GraphStore
from lsm.features.loader import FeatureLoader
from lsm.features.open import open_features
from lsm.loader.pipeline import Pipeline
from lsm.loader.prepared import IdsAlone
from lsm.loader.rows_in_flight import RunAhead
from lsm.storage.options import StorageOptions
from lsm.storage.read_ahead import ReadAhead

MEASURED = (
    "merge_iterations",
    "reads",
    "bytes_read",
    "read_amplification",
    "read_secs",
    "read_secs_min",
    "read_secs_max",
    "rows_per_s",
    "plan_secs",
    "read_wait_secs",
    "replay_secs",
)
"""Fields that real reads add to a record: sums over the whole trace and over the ranks, which read
one after the other; of several repeats, the one of median time. read_secs: from the first request
to the last row's arrival; the bytes include the rows of a constant buffer, the time does not.
read_amplification: bytes from storage per byte of the rows that missed."""

_SPANS = ("plan_secs", "read_wait_secs", "replay_secs")


def deliver(
    features: FeatureLoader,
    batches: Sequence[torch.Tensor],
    *,
    read_ahead: ReadAhead,
    staging_bytes: int,
    receive: Callable[[Any], None] | None = None,
) -> list[float]:
    """Requests ``batches`` ([n] int64 each, no repeats) as training does, and drops their rows.

    Returns the arrival of each batch, in seconds since the first request. Calls ``receive`` with
    each batch, a Prepared. staging_bytes: as for NeighborLoader.
    """
    start = time.perf_counter()
    pipeline = Pipeline(
        batches.__getitem__,
        IdsAlone,
        features,
        first=0,
        last=len(batches),
        policy=RunAhead(read_ahead, staging_bytes, timeout_secs=features.storage.timeout_secs),
    )
    arrived = []
    try:
        for loaded in pipeline:
            arrived.append(time.perf_counter() - start)
            if receive is not None:
                receive(loaded)
    finally:
        pipeline.close()
    return arrived


def read_all(
    config: ReadsConfig,
    store: GraphStore,
    trace: Trace,
    combinations: Sequence[Combination],
    records: Sequence[dict],
    *,
    progress: bool | None = None,
) -> list[dict]:
    """``records`` of ``combinations`` plus MEASURED, one for each of ``config.merge_iterations``.
    Policies that know the whole trace (belady, optimal) cannot be run and have None there.

    Runs one combination after the other, since they share the disk. Raises RuntimeError if the rows
    differ from the store's (``config.check``), or if the hits of a cache differ from the
    simulation.
    """
    tasks = [
        (each, record, merge)
        for each, record in zip(combinations, records, strict=True)
        for merge in ([None] if each.policy in OFFLINE else config.merge_iterations)
    ]
    out = []
    with counting("reading", len(tasks), progress) as advance:
        for each, record, merge in tasks:
            measured = dict.fromkeys(MEASURED)
            if merge is not None:
                measured = _median(
                    [
                        _read(config, store, trace, each, record, merge)
                        for _ in range(config.repeats)
                    ]
                )
            out.append(record | measured)
            advance(1)
    return out


def require_runnable(combinations: Sequence[Combination]) -> None:
    """Raises ValueError for a combination that can be simulated but not run."""
    for each in combinations:
        if each.constant_rows and each.constant_score == "random":
            raise ValueError(
                "cache.constant.chosen_by: expected static_score with reads.enabled, got random; "
                "a feature loader chooses the rows by score"
            )


def _median(runs: list[dict]) -> dict:
    """The run of median time (of two in the middle, the faster one), with the spread."""
    ranked = sorted(runs, key=lambda run: run["read_secs"])
    spread = {"read_secs_min": ranked[0]["read_secs"], "read_secs_max": ranked[-1]["read_secs"]}
    return ranked[(len(ranked) - 1) // 2] | spread


def _read(
    config: ReadsConfig,
    store: GraphStore,
    trace: Trace,
    combination: Combination,
    record: dict,
    merge_iterations: int | Literal["auto"],
) -> dict:
    """One pass over the trace, rank after rank."""
    sums: dict[str, float] = dict.fromkeys(
        ("reads", "bytes_read", "bytes_requested", "read_secs", *_SPANS), 0
    )
    counted: dict[str, float] = {"requests": 0, "hits": 0, "victim_hits": 0, "misses": 0}
    for rank in range(trace.num_ranks):
        shared = combination.mode == "shared"
        batches = trace.owner_batches(rank, combination.hash, shared=shared)
        _drop_page_cache(store)
        with (
            _loader(config, store, trace, combination, merge_iterations) as loader,
            open_features(store, storage=StorageOptions(engine="mmap")) as plain,
        ):
            arrived = deliver(
                loader,
                batches,
                read_ahead=ReadAhead.fixed(config.prefetch),
                staging_bytes=config.staging_bytes,
                receive=_comparer(store, plain, batches) if config.check else None,
            )
            stats = loader.stats()
        sums["read_secs"] += arrived[-1]
        for name in ("reads", "bytes_read", "bytes_requested"):
            sums[name] += stats[name]
        for name in _SPANS:
            sums[name] += stats.get(f"cache_{name}", 0.0)
        uncached = {"requests": stats["rows"], "misses": stats["rows"]}
        for name in counted:
            counted[name] += stats.get(f"cache_{name}", uncached.get(name, 0))
    _require_as_simulated(combination, record, counted)
    requested = sums.pop("bytes_requested")
    return sums | {
        "merge_iterations": merge_iterations,
        "read_amplification": sums["bytes_read"] / requested if requested else 0.0,
        "rows_per_s": record["requests"] / sums["read_secs"],
    }


def _loader(
    config: ReadsConfig,
    store: GraphStore,
    trace: Trace,
    combination: Combination,
    merge_iterations: int | Literal["auto"],
) -> FeatureLoader:
    options = StorageOptions(
        engine=config.engine,
        queue_depth=config.queue_depth,
        max_read_bytes=config.max_read_bytes,
        max_gap_bytes=config.max_gap_bytes,
        merge_iterations=merge_iterations,
    )
    if combination.policy == "none":
        return open_features(store, storage=options)
    mode: Any = combination.victim  # checked by the options
    queues = combination.window if combination.victim == "queues" else 1
    scores = None if trace.static_score is None else torch.from_numpy(trace.static_score)
    cache = CacheOptions(
        bytes=combination.lines * store.row_bytes,
        victim=VictimOptions(
            mode=mode,
            bytes=combination.victim_rows * queues * store.row_bytes,
        ),
        constant=ConstantOptions(bytes=combination.constant_rows * store.row_bytes),
        score="none" if scores is None else "reverse_pagerank",
        **combination.planner_options,
    )
    return open_features(
        store,
        cache,
        options,
        scores=scores,
        num_threads=config.threads,
    )


def _comparer(
    store: GraphStore, plain: FeatureLoader, batches: Sequence[torch.Tensor]
) -> Callable[[Any], None]:
    """Compares rows with those of ``plain``, which reads through the page cache."""

    def compare(batch: Any) -> None:
        rows, wanted = batch.x, plain.fetch(batches[batch.iteration])
        if not torch.equal(rows.view(torch.uint8), wanted.view(torch.uint8)):
            raise RuntimeError(
                f"rows of iteration {batch.iteration} differ from those of {store.path}; "
                "`lsm data verify` tells whether the store is whole"
            )

    return compare


def _require_as_simulated(combination: Combination, record: dict, counted: dict) -> None:
    for name, value in counted.items():
        if value != record[name]:
            raise RuntimeError(
                f"{combination.policy}: {name}: {record[name]} were simulated, but {value} happened"
            )


def _drop_page_cache(store: GraphStore) -> None:
    for path in store.feature_paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
