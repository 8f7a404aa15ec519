"""Metrics of the rows of batches: their tiers, and the bytes behind them."""

from __future__ import annotations

from typing import Any

from lsm.core.counters import COUNTERS, EXCHANGED, SPANS
from lsm.features.loader import FeatureLoader

STORAGE_SUMS = ("bytes_read", "bytes_requested")
"""The storage engine's bytes from the drive, and bytes of requested rows. They count when rows are
read, some iterations before their use."""

STEP_SCALARS = ("loss", "step_secs", "wait_secs", "bytes_read", "num_nodes")
"""Of a step, in TensorBoard."""

ROW_SUMS = (*COUNTERS, *EXCHANGED, *STORAGE_SUMS, "sample_secs", *SPANS)
"""Sums about the rows of batches: counts over all ranks, seconds of one rank."""

_HITS_BY_TIER = {
    "static": "static_hits",
    "cache": "hits",
    "victim": "victim_hits",
    "constant": "constant_hits",
    "storage": "misses",
}


class NewReads:
    """STORAGE_SUMS of a source of rows, counted anew at each look."""

    def __init__(self, features: FeatureLoader) -> None:
        self._features = features
        self._seen: dict[str, float] = dict.fromkeys(STORAGE_SUMS, 0)

    def take(self) -> dict[str, float]:
        """STORAGE_SUMS since the last call."""
        seen, stats = self._seen, self._features.stats()
        self._seen = {name: stats[name] for name in STORAGE_SUMS}
        if self._features.engine == "memory":
            self._seen["bytes_read"] = 0  # copies of rows, and none of them from a drive
        return {name: self._seen[name] - seen[name] for name in STORAGE_SUMS}


def row_metrics(sums: dict[str, float], row_bytes: int) -> dict[str, float]:
    """The record about rows, from ROW_SUMS: counters, bytes of rows by their tier (``cache_bytes``
    and so on), read amplification, and seconds per span."""
    sums = dict.fromkeys(ROW_SUMS, 0) | sums
    record: dict[str, float] = {name: int(sums[name]) for name in (*COUNTERS, *EXCHANGED)}
    for tier, hits in _HITS_BY_TIER.items():
        record[f"{tier}_bytes"] = int(sums[hits]) * row_bytes
    requested = sums["bytes_requested"]
    record["read_amplification"] = sums["bytes_read"] / requested if requested else 0.0
    return record | {name: sums[name] for name in ("sample_secs", *SPANS)}


def _hits_by_tier(record: dict[str, Any]) -> str:
    """``hits 93.1% (cache 80.2%, shared 12.9%)``: the share of rows that memory served, and its
    tiers. "" without hits."""
    requests = max(1, record["requests"])
    if record["misses"] == record["requests"]:
        return ""
    shares = {tier: record[key] / requests for tier, key in _HITS_BY_TIER.items()}
    del shares["storage"]
    shares["shared"] = record["duplicates"] / requests
    listed = ", ".join(f"{tier} {share:.1%}" for tier, share in shares.items() if share)
    return f"hits {1 - record['misses'] / requests:.1%} ({listed})  "


def _valid_hits(record: dict[str, Any]) -> str:
    """`` (hits 71.2%)``: the share of validation's rows that memory served. "" without hits."""
    requests, misses = record["valid_requests"], record["valid_misses"]
    return f" (hits {1 - misses / requests:.1%})" if misses < requests else ""


def in_words(record: dict[str, Any], metric: str, *, in_memory: bool = False) -> str:
    """The ``metric`` of an epoch, and where its rows came from. ``in_memory``: all of them came
    from memory, without a cache."""
    valid = record[f"valid_{metric}"]
    hits = "" if in_memory or valid is None else _valid_hits(record)
    tested = "" if valid is None else f"valid {valid:.4f}{hits}  "
    rows = "all rows in memory  " if in_memory else _hits_by_tier(record)
    return f"train {record[f'train_{metric}']:.4f}  {tested}{rows}"
