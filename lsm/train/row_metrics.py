"""Metrics of the rows of batches: their tiers, and the bytes behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lsm.core.counters import BY_SOURCE, COUNTERS, EXCHANGED, SPANS, STORAGE_SUMS
from lsm.features.sets import Features

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

    def __init__(self, features: Features) -> None:
        self._features = features
        self._seen: dict[str, float] = dict.fromkeys(STORAGE_SUMS, 0)

    def take(self) -> dict[str, float]:
        """STORAGE_SUMS since the last call."""
        seen, self._seen = self._seen, self._features.storage_sums()
        if self._features.engine == "memory":
            self._seen["bytes_read"] = 0  # copies of rows, and none of them from a drive
        return {name: self._seen[name] - seen[name] for name in STORAGE_SUMS}


class RowMetrics:
    """Metrics of the rows of a store.

    row_bytes: of a row, by node type. In a graph of several types, a batch's counters of a type
    have the names ``hits/TYPE`` and so on.
    """

    def __init__(self, row_bytes: Mapping[str, int]) -> None:
        self._row_bytes = row_bytes
        self._types = tuple(row_bytes) if len(row_bytes) > 1 else ()
        by_type = (f"{name}/{each}" for each in self._types for name in BY_SOURCE)
        self.counters = (*COUNTERS, *EXCHANGED, *by_type)
        """Names of a batch's counters."""

    def record(self, sums: dict[str, float]) -> dict[str, Any]:
        """The record about rows, from ROW_SUMS and those by type: counters, bytes of rows by their
        tier (``cache_bytes`` and so on), read amplification, and seconds per span. ``types`` has
        counters and bytes of each type, if there are several."""
        sums = dict.fromkeys((*ROW_SUMS, *self.counters), 0) | sums
        record: dict[str, Any] = {name: int(sums[name]) for name in (*COUNTERS, *EXCHANGED)}
        types = {
            each: {name: int(sums[f"{name}/{each}"]) for name in BY_SOURCE} for each in self._types
        }
        counted = types or dict.fromkeys(self._row_bytes, record)
        bytes_of = {
            name: _bytes_by_tier(own, self._row_bytes[name]) for name, own in counted.items()
        }
        for tier in _HITS_BY_TIER:
            record[f"{tier}_bytes"] = sum(own[f"{tier}_bytes"] for own in bytes_of.values())
        requested = sums["bytes_requested"]
        record["read_amplification"] = sums["bytes_read"] / requested if requested else 0.0
        record |= {name: sums[name] for name in ("sample_secs", *SPANS)}
        if types:
            record["types"] = {name: own | bytes_of[name] for name, own in types.items()}
        return record


def _bytes_by_tier(counters: Mapping[str, int], row_bytes: int) -> dict[str, int]:
    return {f"{tier}_bytes": counters[hits] * row_bytes for tier, hits in _HITS_BY_TIER.items()}


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
    trained = record.get(f"train_{metric}")  # some metrics are those of evaluations only
    return f"{'' if trained is None else f'train {trained:.4f}  '}{tested}{rows}"
