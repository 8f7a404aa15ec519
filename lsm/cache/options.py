"""Options of the feature cache: the section ``cache`` of a configuration."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from lsm.core.option_types import AutoAtLeastOne, AutoBytes, Bytes, Fraction, Positive
from lsm.core.section import Section

CACHE_BYTES = 512 << 20
"""cache.bytes=auto outside `lsm train`."""


class PlannerOptions(Section):
    """Decisions about the lines of a cache: options of its planner."""

    section: ClassVar[str] = "cache"

    policy: str = "lookahead"
    """Eviction policy."""
    ways: AutoAtLeastOne = "auto"
    """Associativity: lines per set. Sets of more lines hit a little more often, and are planned
    more slowly. auto: 64 in host memory; 32 in GPU memory, one for each thread of a warp."""
    window: Annotated[int, Field(ge=1, le=65_535)] = 256
    """Iterations sampled ahead, whose requests the cache knows. Memory holds their graphs, without
    features. The window is shorter where memory.bytes is too small or an epoch has fewer
    iterations. Policies that do not look ahead ignore it, unless there is a victim buffer."""
    update_period: Positive = 4
    """dynamic, hybrid: iterations between two passes over the window."""
    near_fraction: Fraction = 0.125
    """hybrid: share of the window within which a next use counts as near."""
    seed: Annotated[int, Field(ge=0, le=2**64 - 1, exclude=True)] = 0
    """Seed of the policies that draw. A training run sets train.seed."""


class VictimOptions(Section):
    """Buffer in host memory for rows that leave the cache."""

    section: ClassVar[str] = "cache.victim"

    mode: Literal["auto", "none", "queues", "pool"] = "auto"
    """Victim buffer for evicted rows. queues: rows with a next use within the window, the same
    number for each of its iterations; pool: the rows with the earliest next use, then, of rows
    without one in the window, those with the highest score (cache.score; without a score, the most
    recently requested). auto: pool where cache.policy is auto and rows are read from storage, else
    none."""
    bytes: AutoBytes = "auto"
    """Memory of the victim buffer; of queues, all of them together. auto: as much as the cache;
    with a cache in GPU memory, all that memory.bytes leaves for rows."""
    prefetch: Annotated[int, Field(ge=0, le=65_535)] = 4
    """Iterations ahead for which a thread copies rows from the victim buffer during training. 0:
    none. Fewer where memory.bytes has no room for their batches."""


class ConstantOptions(Section):
    """Rows that host memory keeps permanently."""

    section: ClassVar[str] = "cache.constant"

    bytes: Bytes = 0
    """Host memory for the rows with the highest scores, which are never evicted. 0: none."""


class StaticOptions(Section):
    """Rows that the training device keeps permanently."""

    section: ClassVar[str] = "cache.static"

    bytes: Bytes = 0
    """Memory on the training device, apart from the cache, for the rows with the highest scores,
    which are never evicted. 0: none."""


class CacheOptions(PlannerOptions):
    """Feature rows that stay in memory.

    ``lsm train`` chooses the values that are ``auto``. Elsewhere they have the values of
    ``resolved``.
    """

    policy: Literal[
        "auto",
        "none",
        "round_robin",
        "random",
        "lru",
        "clock",
        "sieve",
        "s3fifo",
        "lfu",
        "window",
        "static",
        "dynamic",
        "hybrid",
        "lookahead",
    ] = "auto"
    """Eviction policy. none: no cache, every row is read from storage; lookahead: keep the rows
    with the earliest next use; auto: none where all features are in memory, else lookahead. The
    others are for comparison (`lsm ablate`)."""
    bytes: AutoBytes = "auto"
    """Memory of the cache, per rank. auto: the share that memory.bytes, or the GPU's free memory,
    leaves; outside `lsm train` 512MiB."""
    victim: VictimOptions = VictimOptions()
    """Victim buffer for evicted rows."""
    constant: ConstantOptions = ConstantOptions()
    """Hottest rows, kept permanently in host memory."""
    static: StaticOptions = StaticOptions()
    """Hottest rows, kept permanently in a partition on the training device."""
    planner: Literal["auto", "host", "device"] = "auto"
    """Processor that plans the cache's sets and keeps the next uses of the window's ids, for a job
    that trains on a GPU. auto: both make the first plans, and the faster one continues. On the
    device the window takes 30 to 50 bytes of GPU memory per id. Plans are the same."""
    score: str = "auto"
    """Expected hotness of nodes, for the policies static, hybrid and lookahead and for the choice
    of constant and static rows: none, in_degree, reverse_pagerank, presample, or the name of
    another score in the store. A missing one is computed and stored. auto: reverse_pagerank, or
    in_degree for train.task=link, where it is of use; if the store has none, lookahead starts
    without it while it is computed during training."""

    @model_validator(mode="after")
    def _has_room(self) -> CacheOptions:
        if self.policy != "none" and self.bytes == 0:
            raise ValueError("cache.bytes: expected more than 0 bytes; or set cache.policy=none")
        if self.victim.mode in ("queues", "pool") and self.victim.bytes == 0:
            raise ValueError(
                "cache.victim.bytes: expected more than 0 bytes; or set cache.victim.mode=none"
            )
        return self

    def lines_per_set(self, *, in_gpu_memory: bool) -> int:
        """``ways``, with a number for auto. in_gpu_memory: True if the cache lies there."""
        if self.ways == "auto":
            return 32 if in_gpu_memory else 64
        return self.ways

    def resolved(self) -> CacheOptions:
        """These options with a value for each that is ``auto``, but ``ways``: a lookahead cache of
        512 MiB, without a score and a victim buffer; a requested victim buffer is as large as the
        cache."""
        update: dict[str, Any] = {}
        if self.policy == "auto":
            update["policy"] = "lookahead"
        if self.score == "auto":
            update["score"] = "none"
        size = CACHE_BYTES if self.bytes == "auto" else self.bytes
        mode = "none" if self.victim.mode == "auto" else self.victim.mode
        victim_bytes = size if self.victim.bytes == "auto" else self.victim.bytes
        victim = self.victim.model_copy(update={"mode": mode, "bytes": victim_bytes})
        return self.model_copy(update=update | {"bytes": size, "victim": victim})
