"""The configuration of a cache-policy study; ``configs/ablation/`` holds one per question."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

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
    section: ClassVar[str] = "graph"

    path: str = "stores/ablation"
    """Store directory. If it does not exist, a graph is synthesised with the parameters below."""
    nodes: Annotated[int, Field(ge=2)] = 1_000_000
    """Number of nodes."""
    dim: Positive = 1
    """Features of each node (float32). Only real reads use them."""
    avg_degree: Annotated[float, Field(ge=0)] = 12.8
    """Mean in-degree."""
    degree_exponent: Annotated[float, Field(gt=2)] = 2.5
    """Exponent of the power law of in-degrees."""
    popularity_exponent: Annotated[float, Field(ge=0, lt=1)] = 0.58
    """The k-th most popular source of a community is drawn in proportion to k**-this."""
    classes: Positive = 16
    """Number of communities."""
    homophily: Fraction = 0.7
    """Share of edges inside the destination's community."""
    train_fraction: Fraction = 0.6
    """Share of the nodes from which seeds are drawn."""
    seed: Seed = 0
    """Seed of the graph."""


class TraceConfig(Section):
    section: ClassVar[str] = "trace"

    num_neighbors: Fanouts = Field([5, 2, 2, 2])
    """Neighbours sampled per node at each hop, the seeds' hop first; -1 takes all."""
    batch_size: Positive = 12
    """Seeds per rank and iteration."""
    ranks: Positive = 2
    """Ranks, each with a cache of its own."""
    iterations: Positive = 2000
    """Iterations to sample. Results for the warm cache cover the second half."""
    seed: Seed = 0
    """Seed of the order of seeds and of the choice of neighbours."""
    input_type: str | None = None
    """Store with types: that of the seeds. null: the only one with training nodes."""
    types: list[str] | None = None
    """Store with types: those whose rows are requested, of one size. null: all with rows."""
    score: Literal["reverse_pagerank", "in_degree", "presample"] | None = "reverse_pagerank"
    """Static score for policies and the constant buffer. null: all nodes score the same."""


class AccumulatorConfig(Section):
    section: ClassVar[str] = "accumulator"

    enabled: bool = False
    """Study overlapping reads on this disk, instead of caches. The study uses graph.*, the keys
    below, and trace.* except batch_size, ranks, iterations and score."""
    directory: str = "."
    """Directory for the test file, on the disk to study. The file is removed afterwards."""
    row_bytes: Bytes = 4096
    """Size of a row. The test file has one row per node."""
    engine: Literal["auto", "posix", "io_uring"] = "auto"
    """Storage engine. Reads bypass the page cache."""
    accesses: Annotated[list[Positive], Field(min_length=1)] = Field(
        [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
    )
    """Numbers of accesses to start together and wait for."""
    batch_sizes: Annotated[list[Positive], Field(min_length=1)] = Field([1, 4, 16, 64, 256])
    """Seeds per iteration."""
    cache_fractions: Annotated[list[Annotated[float, Field(ge=0, lt=1)]], Field(min_length=1)] = (
        Field([0.0, 0.2])
    )
    """Shares of all rows held in memory, by a lookahead cache with a window of 64."""
    rows: Positive = 40_000
    """Rows requested in each measurement."""
    staging_bytes: Bytes = 256 * 2**20
    """Memory for rows of iterations read ahead."""
    target_share: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Share of the disk's peak IOPS to reach."""
    repeats: Positive = 3
    """Measurements of each point, in turns. Medians are reported."""
    seconds: Annotated[float, Field(gt=0)] = 0.3
    """Seconds for each point of the disk profile."""


class StudyVictimConfig(Section):
    section: ClassVar[str] = "cache.victim"

    modes: Annotated[list[Literal["none", "queues", "pool"]], Field(min_length=1)] = Field(["none"])
    """Victim buffers to compare."""
    queue_lists: Multiple = 0.2
    """Rows of one queue, in multiples of the mean request list (the paper: 16K rows)."""
    pool_caches: Multiple = 1.0
    """Rows of the pool, in multiples of the cache."""


class StudyConstantConfig(Section):
    section: ClassVar[str] = "cache.constant"

    fractions: Annotated[list[Fraction], Field(min_length=1)] = Field([0.0])
    """Shares of all nodes whose rows a constant buffer holds."""
    chosen_by: Annotated[list[Literal["random", "static_score"]], Field(min_length=1)] = Field(
        ["static_score"]
    )
    """Choice of its nodes: at random, or those with the highest static score."""


class StudyCacheConfig(Section):
    section: ClassVar[str] = "cache"

    policies: Annotated[list[str], Field(min_length=1)] = Field(["hybrid", "lookahead", "belady"])
    """Eviction policies. belady and optimal know the whole trace: bounds of these sets, and of any
    cache. none: no cache."""
    sizes: Annotated[list[Multiple], Field(min_length=1)] = Field([10.0, 20.0, 40.0])
    """Lines per rank, in multiples of the mean request list, rounded to a multiple of ways."""
    ways: Positive = 32
    """Associativity: lines per set. optimal has one set."""
    windows: Annotated[list[NonNegative], Field(min_length=1)] = Field([256])
    """Iterations whose requests the cache knows ahead."""
    update_periods: Annotated[list[Positive], Field(min_length=1)] = Field([4])
    """dynamic, hybrid: iterations between two passes over the window."""
    near_fractions: Annotated[list[Fraction], Field(min_length=1)] = Field([0.125])
    """hybrid: share of the window within which a next use counts as near."""
    modes: Annotated[list[Mode], Field(min_length=1)] = Field(["shared"])
    """Division of the cache among ranks. shared: every id has one owner, which alone caches it;
    independent: each rank caches the rows that it requests."""
    hash: Literal["stride", "mix64"] = "stride"
    """Assignment of ids to owners: the id itself, or its hash, modulo the ranks."""
    seed: Seed = 0
    """Seed of random decisions."""
    victim: StudyVictimConfig = StudyVictimConfig()
    """Victim buffer for evicted rows."""
    constant: StudyConstantConfig = StudyConstantConfig()
    """Rows kept permanently in host memory (GIDS)."""

    @model_validator(mode="after")
    def _policies_exist(self) -> StudyCacheConfig:
        for policy in self.policies:
            if policy not in POLICIES:
                raise ValueError(
                    f"cache.policies: expected some of {', '.join(POLICIES)}, got {policy!r}"
                )
        return self


class ReadsConfig(Section):
    section: ClassVar[str] = "reads"

    enabled: bool = False
    """Also read each combination's rows, from the feature files of graph.path."""
    merge_iterations: Annotated[list[Positive], Field(min_length=1)] = Field([1])
    """Iterations whose reads are planned together. Every combination is measured with each."""
    engine: Literal["auto", "memory", "mmap", "posix", "io_uring"] = "auto"
    """Storage engine. posix and io_uring bypass the page cache (O_DIRECT) where possible."""
    queue_depth: Annotated[int, Field(ge=1, le=DEEPEST_QUEUE)] = 128
    """io_uring: reads in flight."""
    max_read_bytes: Bytes = 256 * 2**10
    """Longest single read."""
    max_gap_bytes: Bytes = 0
    """Largest gap of unrequested bytes between two rows that one read spans."""
    prefetch: Positive = 4
    """Iterations read ahead. Twice merge_iterations is a useful value."""
    staging_bytes: Bytes = 256 * 2**20
    """Memory for the rows of iterations read ahead, apart from the cache."""
    threads: Threads = 1
    """Number of planning threads, and of copying threads."""
    repeats: Positive = 1
    """Passes over the trace, each with a cold cache. The pass of median time is reported."""
    check: bool = False
    """Compare every row with the store. Times are then meaningless."""


class PlotConfig(Section):
    section: ClassVar[str] = "plot"

    enabled: bool = True
    """Draw a plot. Needs matplotlib."""
    title: str = "Hit ratio of the warm cache"
    """Title of the plot."""
    kind: Literal["lines", "dots"] = "lines"
    """lines: a curve per cache over plot.x; dots: a row per cache, a colour per value of plot.x."""
    x: Literal["size", "window", "update_period", "near_fraction", "constant_fraction"] = "size"
    """Parameter along the x axis."""
    panels: Literal["none", "size", "window", "update_period", "victim", "mode"] = "none"
    """One panel per value of this parameter."""
    y: Literal[
        "hit_ratio_2nd", "hit_ratio", "reads_per_request_2nd", "rows_per_s", "bytes_read"
    ] = "hit_ratio_2nd"
    """Result along the y axis. hit_ratio: of all memory tiers; reads_per_request: rows read from
    storage per request; the suffix _2nd: over the second half of the trace. rows_per_s and
    bytes_read are of real reads: rows delivered per second, and bytes."""


class AblationConfig(Section):
    """A cache-policy study: every section of its configuration."""

    output: str = "runs/ablation"
    """Directory for the results: records.json, records.csv, table.md, study.json, and plot.png,
    plot.svg and plot.pdf."""
    graph: GraphConfig = GraphConfig()
    """The graph."""
    trace: TraceConfig = TraceConfig()
    """The trace of accesses."""
    accumulator: AccumulatorConfig = AccumulatorConfig()
    """Overlapping reads (GIDS), a separate study."""
    cache: StudyCacheConfig = StudyCacheConfig()
    """Caches to compare: every combination of the lists below."""
    reads: ReadsConfig = ReadsConfig()
    """Real reads from storage for each combination, after all simulations."""
    plot: PlotConfig = PlotConfig()
    """The plot."""

    @model_validator(mode="after")
    def _plot_is_measured(self) -> AblationConfig:
        if self.plot.y in ("rows_per_s", "bytes_read") and not self.reads.enabled:
            raise ValueError(f"plot.y: {self.plot.y} is of real reads; set reads.enabled=true")
        return self
