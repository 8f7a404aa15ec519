"""Options of a feature cache, and the rows that its bytes hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch

from lsm.cache.planner import NEEDS_WINDOW, POLICIES, VICTIM_MODES, PlannerConfig
from lsm.comm.owners import mix64
from lsm.core.units import format_bytes
from lsm.distributed import host_memory
from lsm.distributed.environment import local_size_in

ONLINE_POLICIES = tuple(policy for policy in POLICIES if policy != "belady")
"""Policies that decide from what is known while training."""

MAX_WINDOW = 2**16 - 1
"""A next use is kept in 16 bits."""

_CHUNK_IDS = 1 << 20


@dataclass(frozen=True)
class CacheOptions:
    """How much of the features is kept in memory, and what of it (DESIGN section 5).

    policy: one of ONLINE_POLICIES. bytes: memory of the cache. ways: lines per set.
    window: iterations sampled ahead; of use to policies in NEEDS_WINDOW and to the victim buffer.
    update_period, near_fraction: of dynamic and hybrid. victim_mode: none, queues or pool;
    victim_bytes: memory of the victim buffer (queues: of all queues together); victim_prefetch:
    iterations whose rows a thread copies from there before they are due. constant_bytes,
    static_bytes: memory of the rows with the highest scores, as host buffer and static partition.
    score: static score that policies, constant and static rows go by: none or one of
    lsm.cache.scores.SCORE_NAMES. seed: of the policies that draw. on_gpu: the cache and the static
    partition are not host memory.
    """

    policy: str = "lookahead"
    bytes: int = 512 << 20
    ways: int = 32
    window: int = 256
    update_period: int = 4
    near_fraction: float = 0.125
    victim_mode: str = "none"
    victim_bytes: int = 0
    victim_prefetch: int = 4
    constant_bytes: int = 0
    static_bytes: int = 0
    score: str = "none"
    seed: int = 0
    on_gpu: bool = False

    @property
    def useful_window(self) -> int:
        """The window, or 1 where nothing would look at it."""
        looks_ahead = self.policy in NEEDS_WINDOW or self.victim_mode != "none"
        return self.window if looks_ahead else 1


@dataclass(frozen=True)
class CacheRows:
    """The rows that each tier holds."""

    planner: PlannerConfig
    victim_slots: int
    static: int
    constant: int

    @classmethod
    def of(cls, options: CacheOptions, row_bytes: int) -> CacheRows:
        """Raises ValueError, naming the configuration's key, for sizes that cannot be."""
        if options.policy not in ONLINE_POLICIES:
            raise ValueError(
                f"cache.policy: expected one of {', '.join(ONLINE_POLICIES)}, "
                f"got {options.policy!r}"
            )
        if options.victim_mode not in VICTIM_MODES:
            raise ValueError(
                f"cache.victim.mode: expected one of {', '.join(VICTIM_MODES)}, "
                f"got {options.victim_mode!r}"
            )
        if not 1 <= options.window <= MAX_WINDOW:
            raise ValueError(f"cache.window: expected 1 to {MAX_WINDOW}, got {options.window}")
        if not 0 <= options.victim_prefetch <= MAX_WINDOW:
            raise ValueError(
                f"cache.victim.prefetch: expected 0 to {MAX_WINDOW}, got {options.victim_prefetch}"
            )
        _check_memory(options)
        num_lines = _num_rows("cache.bytes", options.bytes, row_bytes)
        victim_rows = victim_slots = 0
        if options.victim_mode != "none":
            queues = options.useful_window if options.victim_mode == "queues" else 1
            victim_rows = _num_rows("cache.victim.bytes", options.victim_bytes, row_bytes, queues)
            victim_slots = victim_rows * queues
        ways = min(options.ways, num_lines)
        planner = PlannerConfig(
            num_lines=num_lines // ways * ways,
            ways=ways,
            policy=options.policy,
            window=options.useful_window,
            update_period=options.update_period,
            near_fraction=options.near_fraction,
            victim_mode=options.victim_mode,
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
            static=options.static_bytes // row_bytes,
            constant=options.constant_bytes // row_bytes,
        )

    def within(self, num_nodes: int) -> CacheRows:
        """The same for a graph of ``num_nodes``: without lines that no row could ever take.

        Fewer sets hold as much only if none of them is asked for more rows than it has ways, which
        is counted; so every row that fitted still does.
        """
        planner = self.planner
        sets = _enough_sets(num_nodes, planner.ways, planner.num_lines // planner.ways)
        return replace(self, planner=replace(planner, num_lines=sets * planner.ways))


def hottest(scores: torch.Tensor, *counts: int) -> list[torch.Tensor]:
    """The ids with the highest ``scores`` [N] in groups of ``counts``, the hottest group first;
    among equal scores lower ids first. Groups are short where there are not so many nodes."""
    if not any(counts):
        return [torch.empty(0, dtype=torch.int64) for _ in counts]
    order = torch.argsort(scores, descending=True, stable=True)
    bounds = torch.tensor((0, *counts)).cumsum(0).clamp(max=len(order)).tolist()
    return [order[begin:end].clone() for begin, end in pairwise(bounds)]


def _enough_sets(num_nodes: int, ways: int, most: int) -> int:
    """Sets of ``ways`` lines that hold all rows at once, up to ``most``: not the fewest, but at
    most a quarter more. Ids do not spread evenly, so it takes two to three times their number."""
    sets = 1 if num_nodes <= ways else 2 * num_nodes // ways
    while sets < most and _fullest_set(num_nodes, sets) > ways:
        sets += -(-sets // 4)
    return min(sets, most)


def _fullest_set(num_nodes: int, num_sets: int) -> int:
    """Size of the fullest set."""
    counts = np.zeros(num_sets, np.int64)
    for begin in range(0, num_nodes, _CHUNK_IDS):
        ids = np.arange(begin, min(begin + _CHUNK_IDS, num_nodes), dtype=np.uint64)
        sets = (mix64(ids) % np.uint64(num_sets)).astype(np.int64)
        counts += np.bincount(sets, minlength=num_sets)
    return int(counts.max())


def _hot_bytes(options: CacheOptions) -> dict[str, int]:
    return {
        "cache.constant.bytes": options.constant_bytes,
        "cache.static.bytes": options.static_bytes,
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


def _check_memory(options: CacheOptions) -> None:
    sizes = {"cache.bytes": options.bytes}
    if options.victim_mode != "none":
        sizes["cache.victim.bytes"] = options.victim_bytes
    sizes |= _hot_bytes(options)
    on_host = dict(sizes)
    if options.on_gpu:
        del on_host["cache.bytes"], on_host["cache.static.bytes"]
    for key, num_bytes in sizes.items():
        if num_bytes < 0:
            raise ValueError(f"{key}: expected a size >= 0, got {num_bytes}")
    available = host_memory.available_bytes_per_rank()
    largest = max(on_host, key=lambda name: on_host[name])
    if sum(on_host.values()) <= available:
        return
    num_ranks = local_size_in()
    to_whom = f" to each of the {num_ranks} ranks on this machine" if num_ranks > 1 else ""
    beside = " (with the cache's other parts)" if sizes[largest] <= available else ""
    raise ValueError(
        f"{largest}: expected less than the memory that is available{to_whom}, "
        f"{format_bytes(available)}, got {format_bytes(sizes[largest])}{beside}; make it smaller"
    )
