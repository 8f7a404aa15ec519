"""Converts the sizes of a cache's options to rows of its tiers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch

from lsm.cache.options import CacheOptions
from lsm.cache.planner import PlannerConfig, looks_ahead
from lsm.core.hash import mix64
from lsm.core.option_types import settled
from lsm.distributed.machine_share import check_free

_CHUNK_IDS = 1 << 20


def useful_window(options: CacheOptions) -> int:
    """The window, or 1 for a cache that does not look ahead."""
    return options.window if looks_ahead(options.policy, options.victim.mode) else 1


@dataclass(frozen=True)
class TierSizes:
    """The rows that each tier holds."""

    planner: PlannerConfig
    victim_slots: int
    static: int
    constant: int

    @classmethod
    def of(cls, options: CacheOptions, row_bytes: int, *, in_gpu_memory: bool = False) -> TierSizes:
        """The rows that fit in the sizes of ``options``.

        in_gpu_memory: True if the cache and the static partition lie in GPU memory; host memory
        then need not hold them.

        Raises ValueError, with the configuration's key, for a size that is too small or larger
        than the available host memory.
        """
        options = options.resolved()
        if options.policy == "none":
            raise ValueError(
                "cache.policy: expected the policy of a cache, got 'none'; leave it out"
            )
        _check_host_memory(options, in_gpu_memory)
        window = useful_window(options)
        num_lines = _num_rows("cache.bytes", settled(options.bytes), row_bytes)
        victim_rows = victim_slots = 0
        if options.victim.mode != "none":
            queues = window if options.victim.mode == "queues" else 1
            victim_rows = _num_rows(
                "cache.victim.bytes", settled(options.victim.bytes), row_bytes, queues
            )
            victim_slots = victim_rows * queues
        ways = min(options.lines_per_set(in_gpu_memory=in_gpu_memory), num_lines)
        planner = PlannerConfig(
            num_lines=num_lines // ways * ways,
            ways=ways,
            policy=options.policy,
            window=window,
            update_period=options.update_period,
            near_fraction=options.near_fraction,
            victim_mode=options.victim.mode,
            victim_rows=victim_rows,
            seed=options.seed,
        )
        for key, num_bytes in _hot_bytes(options).items():
            if num_bytes and options.score == "none":
                raise ValueError(
                    f"{key}: holds the rows with the highest scores; set cache.score, or {key}=0"
                )
        return cls(
            planner,
            victim_slots,
            static=options.static.bytes // row_bytes,
            constant=options.constant.bytes // row_bytes,
        )

    def within(self, end: int, first: int = 0) -> TierSizes:
        """The same for nodes ``first`` to ``end - 1``, without lines that no row could ever take.

        Fewer sets hold all rows only if no set gets more rows than it has ways. The rows of each
        set are counted, so every row that fitted still does.
        """
        planner = self.planner
        sets = _enough_sets(first, end, planner.ways, planner.num_lines // planner.ways)
        return replace(self, planner=planner.model_copy(update={"num_lines": sets * planner.ways}))


def hottest(scores: torch.Tensor, *counts: int) -> list[torch.Tensor]:
    """The ids with the highest ``scores`` [N] in groups of ``counts``, the hottest group first.
    Lower ids win ties. The last groups are short if there are too few nodes."""
    if not any(counts):
        return [torch.empty(0, dtype=torch.int64) for _ in counts]
    order = torch.argsort(scores, descending=True, stable=True)
    bounds = torch.tensor((0, *counts)).cumsum(0).clamp(max=len(order)).tolist()
    return [order[begin:end].clone() for begin, end in pairwise(bounds)]


def _enough_sets(first: int, end: int, ways: int, most: int) -> int:
    """Sets of ``ways`` lines that hold all rows at once, up to ``most``; at most a quarter more
    than the fewest. Ids do not spread evenly, so all rows need two to three times their number of
    lines."""
    num_nodes = end - first
    sets = 1 if num_nodes <= ways else 2 * num_nodes // ways
    while sets < most and _fullest_set(first, end, sets) > ways:
        sets += -(-sets // 4)
    return min(sets, most)


def _fullest_set(first: int, end: int, num_sets: int) -> int:
    """Size of the fullest set."""
    counts = np.zeros(num_sets, np.int64)
    for begin in range(first, end, _CHUNK_IDS):
        ids = np.arange(begin, min(begin + _CHUNK_IDS, end), dtype=np.uint64)
        sets = (mix64(ids) % np.uint64(num_sets)).astype(np.int64)
        counts += np.bincount(sets, minlength=num_sets)
    return int(counts.max())


def _hot_bytes(options: CacheOptions) -> dict[str, int]:
    return {
        "cache.constant.bytes": options.constant.bytes,
        "cache.static.bytes": options.static.bytes,
    }


def _num_rows(key: str, num_bytes: int, row_bytes: int, queues: int = 1) -> int:
    """Rows per queue that fit in ``num_bytes``."""
    num_rows = num_bytes // (row_bytes * queues)
    if num_rows < 1:
        per = f" for each of {queues} iterations (cache.window)" if queues > 1 else ""
        raise ValueError(
            f"{key}: expected room for a row of {row_bytes} bytes{per}, got {num_bytes} bytes"
        )
    return num_rows


def _check_host_memory(options: CacheOptions, in_gpu_memory: bool) -> None:
    sizes = _hot_bytes(options) | {"cache.bytes": settled(options.bytes)}
    if options.victim.mode != "none":
        sizes["cache.victim.bytes"] = settled(options.victim.bytes)
    if in_gpu_memory:
        del sizes["cache.bytes"], sizes["cache.static.bytes"]
    largest = max(sizes, key=lambda name: sizes[name])
    check_free(largest, sizes, "make it smaller")
