"""The configuration of a cache-policy study; ``configs/ablation/`` holds one per question."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from lsm.ablation.runs import POLICIES
from lsm.core.limits import DEEPEST_QUEUE
from lsm.core.option_types import (
    Bytes,
    Fanouts,
    Fraction,
    NonNegative,
    Positive,
    Seed,
    Threads,
)
from lsm.core.section import Section

Mode = Literal["shared", "independent"]
Multiple = Annotated[float, Field(gt=0)]


class GraphConfig(Section):
    path: str = "stores/ablation"
    """Store directory. One that does not exist yet is made with the parameters below."""
    nodes: Annotated[int, Field(ge=2)] = 1_000_000
    """Nodes of the graph to make."""
    dim: Positive = 1
    """Features of each node (float32). Only real reads look at more than ids."""
    avg_degree: Annotated[float, Field(ge=0)] = 12.8
    """Mean in-degree."""
    degree_exponent: Annotated[float, Field(gt=2)] = 2.5
    """Exponent of the in-degrees' power law."""
    popularity_exponent: Annotated[float, Field(ge=0, lt=1)] = 0.58
    """The k-th most popular source of a community is drawn in proportion to k**-this."""
    classes: Positive = 16
    """Communities."""
    homophily: Fraction = 0.7
    """Share of edges inside the destination's community."""
    train_fraction: Fraction = 0.6
    """Share of the nodes that seeds are drawn from."""
    seed: Seed = 0
    """Which of these graphs."""


class TraceConfig(Section):
    num_neighbors: Fanouts = Field([5, 2, 2, 2])
    """Neighbours sampled per node at each hop, the seeds' hop first; -1 takes all."""
    batch_size: Positive = 12
    """Seeds per rank and iteration."""
    ranks: Positive = 2
    """Ranks, each with a cache of its own."""
    iterations: Positive = 2000
    """Iterations to sample; the second half is what is reported as warm."""
    seed: Seed = 0
    """Order of the seeds and choice of the neighbours."""
    score: Literal["reverse_pagerank", "in_degree", "presample"] | None = "reverse_pagerank"
    """Static score that policies and the constant buffer use; null: none, all nodes alike."""


class AccumulatorConfig(Section):
    enabled: bool = False
    """Study how reads overlap on this disk, instead of caches; then only graph.*, trace.* but its
    batch_size, ranks, iterations and score, and the keys below have a meaning."""
    directory: str = "."
    """Where the test file goes: the disk to study. It is removed afterwards."""
    row_bytes: Bytes = 4096
    """Bytes of a row; the test file has one for every node."""
    engine: Literal["auto", "posix", "io_uring"] = "auto"
    """Storage engine; reads bypass the page cache."""
    accesses: Annotated[list[Positive], Field(min_length=1)] = Field(
        [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
    )
    """Accesses that are started together and waited for."""
    batch_sizes: Annotated[list[Positive], Field(min_length=1)] = Field([1, 4, 16, 64, 256])
    """Seeds per iteration."""
    cache_fractions: Annotated[list[Annotated[float, Field(ge=0, lt=1)]], Field(min_length=1)] = (
        Field([0.0, 0.2])
    )
    """Shares of all rows that memory holds (lookahead, a window of 64)."""
    rows: Positive = 40_000
    """Rows to ask for in each measurement."""
    staging_bytes: Bytes = 256 * 2**20
    """Memory for rows of iterations read ahead."""
    target_share: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Share of the peak IOPS to reach."""
    repeats: Positive = 3
    """Measurements of each point, in turns; medians are reported."""
    seconds: Annotated[float, Field(gt=0)] = 0.3
    """Seconds for each point of the device's profile."""


class VictimConfig(Section):
    modes: Annotated[list[Literal["none", "queues", "pool"]], Field(min_length=1)] = Field(["none"])
    """Victim buffers to compare."""
    queue_lists: Multiple = 0.2
    """Rows of one queue, in multiples of the mean request list (the paper: 16K rows)."""
    pool_caches: Multiple = 1.0
    """Rows of the pool, in multiples of the cache."""


class ConstantConfig(Section):
    fractions: Annotated[list[Fraction], Field(min_length=1)] = Field([0.0])
    """Shares of all nodes whose rows a constant buffer holds."""
    chosen_by: Annotated[list[Literal["random", "static_score"]], Field(min_length=1)] = Field(
        ["static_score"]
    )
    """How its nodes are chosen: at random, or the best by the static score."""


class CacheConfig(Section):
    policies: Annotated[list[str], Field(min_length=1)] = Field(["hybrid", "lookahead", "belady"])
    """Eviction policies. belady and optimal are bounds; none: no cache."""
    sizes: Annotated[list[Multiple], Field(min_length=1)] = Field([10.0, 20.0, 40.0])
    """Lines per rank, in multiples of the mean request list, to the nearest multiple of ways."""
    ways: Positive = 32
    """Lines per set (belady, optimal: one set)."""
    windows: Annotated[list[NonNegative], Field(min_length=1)] = Field([256])
    """Iterations known ahead."""
    update_periods: Annotated[list[Positive], Field(min_length=1)] = Field([4])
    """Iterations between two refreshes (dynamic, hybrid)."""
    near_fractions: Annotated[list[Fraction], Field(min_length=1)] = Field([0.125])
    """Threshold of hybrid between near and far, as a share of the window."""
    modes: Annotated[list[Mode], Field(min_length=1)] = Field(["shared"])
    """shared: every id has one owner, and only its cache holds it; independent: each rank caches
    what itself requests."""
    hash: Literal["stride", "mix64"] = "stride"
    """Which rank owns an id: the id itself, or its hash, modulo the ranks."""
    seed: Seed = 0
    """Of random decisions."""
    victim: VictimConfig = VictimConfig()
    """Where evicted rows go that are needed again."""
    constant: ConstantConfig = ConstantConfig()
    """Rows that are always in host memory (GIDS)."""

    @model_validator(mode="after")
    def _policies_exist(self) -> CacheConfig:
        for policy in self.policies:
            if policy not in POLICIES:
                raise ValueError(
                    f"cache.policies: expected some of {', '.join(POLICIES)}, got {policy!r}"
                )
        return self


class ReadsConfig(Section):
    enabled: bool = False
    """Whether each combination's rows are also read, from the feature files of graph.path."""
    merge_iterations: Annotated[list[Positive], Field(min_length=1)] = Field([1])
    """Iterations whose reads are planned together: every combination is read for with each."""
    engine: Literal["auto", "memory", "mmap", "posix", "io_uring"] = "auto"
    """Storage engine. posix and io_uring bypass the page cache (O_DIRECT) where they can."""
    queue_depth: Annotated[int, Field(ge=1, le=DEEPEST_QUEUE)] = 128
    """Reads in flight (io_uring)."""
    max_read_bytes: Bytes = 256 * 2**10
    """Longest single read."""
    max_gap_bytes: Bytes = 0
    """Bytes nobody asked for between two rows, up to which both are read at once."""
    prefetch: Positive = 4
    """Iterations whose rows are under way or wait; twice merge_iterations is of use."""
    staging_bytes: Bytes = 256 * 2**20
    """Memory for their rows, beside the cache."""
    threads: Threads = 1
    """Threads that plan, and threads that copy."""
    repeats: Positive = 1
    """Passes over the trace, each with a cold cache; the one of median time is reported."""
    check: bool = False
    """Compare every row with the store. Then times mean nothing."""


class PlotConfig(Section):
    enabled: bool = True
    """Draw a plot (needs matplotlib)."""
    title: str = "Hit ratio of the warm cache"
    """Title."""
    kind: Literal["lines", "dots"] = "lines"
    """lines: a curve per cache over plot.x; dots: a row per cache, a colour per value of plot.x."""
    x: Literal["size", "window", "update_period", "near_fraction", "constant_fraction"] = "size"
    """What is varied along a curve."""
    panels: Literal["none", "size", "window", "update_period", "victim", "mode"] = "none"
    """One panel per value of this parameter."""
    y: Literal[
        "hit_ratio_2nd", "hit_ratio", "reads_per_request_2nd", "rows_per_s", "bytes_read"
    ] = "hit_ratio_2nd"
    """What is shown: hit ratio of all memory tiers (second half of the trace, or all of it), rows
    read from storage per request; or, of real reads, rows delivered per second or bytes read."""


class AblationConfig(Section):
    """Everything a study can be told."""

    output: str = "runs/ablation"
    """Directory for the results: records.json, records.csv, table.md, plot.png, study.json."""
    graph: GraphConfig = GraphConfig()
    """The graph."""
    trace: TraceConfig = TraceConfig()
    """The accesses."""
    accumulator: AccumulatorConfig = AccumulatorConfig()
    """Overlapping reads (GIDS), a study of its own."""
    cache: CacheConfig = CacheConfig()
    """The caches to compare: every combination of the lists below."""
    reads: ReadsConfig = ReadsConfig()
    """Real reads from storage, combination by combination, once all are simulated."""
    plot: PlotConfig = PlotConfig()
    """The picture."""

    @model_validator(mode="after")
    def _plot_is_measured(self) -> AblationConfig:
        if self.plot.y in ("rows_per_s", "bytes_read") and not self.reads.enabled:
            raise ValueError(f"plot.y: {self.plot.y} is of real reads; set reads.enabled=true")
        return self
