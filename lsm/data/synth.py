"""Makes graphs of any size whose labels can be learnt: planted communities, power-law degrees.

Each chunk has a random stream of its own, keyed by (seed, purpose, chunk), so the result does not
depend on threads or timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from lsm.core.progress import ByteProgress
from lsm.core.section import wrong_values_named
from lsm.core.threads import map_ahead
from lsm.data import format as layout
from lsm.data.convert.features import convert, feature_meta
from lsm.data.convert.write_store import StoreOptions, store_bytes
from lsm.data.format import FeatureMeta, StoreMeta
from lsm.data.graph_store import GraphStore
from lsm.data.stripes import StripedWriter
from lsm.data.writer import StoreWriter

_THREADS = 2
_NODE_CHUNK = 1 << 20
_EDGE_CHUNK = 1 << 20
_FEATURE_CHUNK_BYTES = 8 << 20
_BLOCK_BYTES = 256 << 10  # features are made a cache-sized block at a time
# Repeated sources are redrawn, this often by popularity, then uniformly from all nodes.
_POPULAR_DRAWS = 4
_UNIFORM_DRAWS = 4


class SynthSpec(BaseModel):
    """The graph to make. ``nodes``, ``dim`` and ``classes`` are counts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: int = Field(ge=2, lt=2**40)
    dim: int = Field(ge=1)
    classes: int = Field(default=16, ge=1)
    avg_degree: float = Field(default=12.0, ge=0)
    """Mean in-degree. Slightly lower where a node runs out of distinct neighbours."""
    degree_exponent: float = Field(default=2.5, gt=2, allow_inf_nan=False)
    """In-degrees: P(degree > d) falls as d**(1 - degree_exponent)."""
    popularity_exponent: float = Field(default=0.7, ge=0, lt=1)
    """The k-th most popular source of a community is drawn in proportion to k**-this."""
    homophily: float = Field(default=0.7, ge=0, le=1)
    """Share of edges that are drawn inside the destination's community; the others anywhere."""
    signal: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Length of the class centroids; the noise has standard deviation 1 in every dimension."""
    train_fraction: float = Field(default=0.6, ge=0, le=1)
    valid_fraction: float = Field(default=0.2, ge=0, le=1)
    test_fraction: float = Field(default=0.2, ge=0, le=1)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _check(self) -> SynthSpec:
        if self.classes > self.nodes:
            raise ValueError(f"classes: expected at most nodes = {self.nodes}, got {self.classes}")
        if self.avg_degree > self.nodes - 1:
            raise ValueError(f"avg_degree: expected at most nodes - 1, got {self.avg_degree}")
        if self.train_fraction + self.valid_fraction + self.test_fraction > 1 + 1e-9:
            raise ValueError("train, valid and test fractions: expected a sum of at most 1")
        return self


class _Stream(IntEnum):
    """The purposes of random streams."""

    LABELS = 0
    ORDER = 1
    DEGREES = 2
    EDGES = 3
    CENTROIDS = 4
    FEATURES = 5
    SPLITS = 6


def generator(*keys: int) -> np.random.Generator:
    """The random stream with ``keys``: seed, purpose, chunk."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(keys)))


def synthesize(out: str | Path, *, progress: bool | None = None, **parameters: Any) -> GraphStore:
    """Makes the store ``out``; ``parameters`` are the fields of ``SynthSpec`` and StoreOptions.

    In-degrees follow a Pareto law, and so does the popularity of sources. There are no self-loops
    and no duplicate edges. A node's features are the centroid of its class plus noise: one row is
    too noisy to tell the class, the mean over a neighbourhood is not. Memory: tens of bytes per
    node and tens of MiB, whatever the features and the edges.
    """
    spec, options = parse_parameters(parameters)
    options["progress"] = progress
    return _write(spec, out, **options)


def parse_parameters(parameters: dict[str, Any]) -> tuple[SynthSpec, StoreOptions]:
    """The graph to make and the options of its store. Raises ValueError, which names one that is
    invalid."""
    options: StoreOptions = {}
    fields = dict(parameters)
    for key in StoreOptions.__annotations__.keys() & fields.keys():
        options[key] = fields.pop(key)  # type: ignore[literal-required]
    with wrong_values_named():
        return SynthSpec(**fields), options


def _write(spec: SynthSpec, out: str | Path, **options: Unpack[StoreOptions]) -> GraphStore:
    meta = feature_meta(spec.dim, options.get("dtype") or "float32", options)
    with (
        StoreWriter(out, force=options.get("force", False)) as writer,
        ByteProgress(options.get("progress")) as bars,
        ThreadPoolExecutor(_THREADS) as executor,
    ):
        num_edges = int(spec.nodes * spec.avg_degree * 1.01)
        writer.require_bytes(store_bytes(spec.nodes, num_edges, meta))
        labels = _make_labels(spec)
        writer.write_array(layout.LABELS, labels.astype(np.int64))
        write_splits(spec, writer)
        advance = bars.task("edges", num_edges * 4)
        num_edges = _write_edges(spec, writer, labels, executor, advance)
        advance = bars.task("features", spec.nodes * meta.row_bytes)
        _write_features(spec, writer, meta, labels, executor, advance)
        writer.commit(
            StoreMeta(
                name=options.get("name") or "synth",
                num_nodes=spec.nodes,
                num_edges=num_edges,
                num_classes=spec.classes,
                features=meta,
                source={"format": "synth", **spec.model_dump()},
            )
        )
    return GraphStore.open(out)


def chunks(total: int, step: int) -> Iterator[tuple[int, int, int]]:
    """(number, begin, end) of each chunk of ``step`` that covers [0, total)."""
    for number, begin in enumerate(range(0, total, step)):
        yield number, begin, min(begin + step, total)


def _make_labels(spec: SynthSpec) -> np.ndarray:
    """Class of each node, uniform and independent of its id: [N] int32."""
    labels = np.empty(spec.nodes, np.int32)
    for number, begin, end in chunks(spec.nodes, _NODE_CHUNK):
        draws = generator(spec.seed, _Stream.LABELS, number)
        labels[begin:end] = draws.integers(spec.classes, size=end - begin, dtype=np.int32)
    return labels


def write_splits(spec: SynthSpec, writer: StoreWriter, folder: str = "") -> None:
    """Each node draws its split, or none. ``folder``: "" or "NAME/", the place in the store."""
    fractions = [spec.train_fraction, spec.valid_fraction, spec.test_fraction]
    bounds = np.cumsum(fractions)
    if bounds[-1] > 1 - 1e-9:
        bounds[-1] = np.inf  # against rounding: every node has a split
    kinds = np.empty(spec.nodes, np.uint8)
    for number, begin, end in chunks(spec.nodes, _NODE_CHUNK):
        draws = generator(spec.seed, _Stream.SPLITS, number).random(end - begin)
        kinds[begin:end] = np.searchsorted(bounds, draws, side="right")
    for kind, name in enumerate(layout.SPLITS):
        with writer.file(folder + layout.split_file(name)) as sink:
            sink.write_header(np.dtype(np.int64), int(np.count_nonzero(kinds == kind)))
            for _, begin, end in chunks(spec.nodes, _NODE_CHUNK):
                sink.write(np.flatnonzero(kinds[begin:end] == kind) + begin)


@dataclass(frozen=True)
class _Communities:
    """Nodes by community, the most popular first: community c is members[starts[c]:starts[c+1]]."""

    members: np.ndarray
    starts: np.ndarray  # [classes + 1] int64

    @classmethod
    def of(cls, spec: SynthSpec, labels: np.ndarray) -> _Communities:
        index_dtype = layout.index_dtype(spec.nodes)
        order = np.arange(spec.nodes, dtype=index_dtype)
        generator(spec.seed, _Stream.ORDER, 0).shuffle(order)
        members = order[np.argsort(labels[order], kind="stable")]
        counts = np.bincount(labels, minlength=spec.classes)
        return cls(members, np.concatenate([[0], np.cumsum(counts)]))

    def draw(self, spec: SynthSpec, draws: np.random.Generator, homes: np.ndarray) -> np.ndarray:
        """One source for each destination, whose community is in ``homes``; popular sources more
        often."""
        num = len(homes)
        # The community at a uniform position in members is drawn in proportion to its size.
        anywhere = draws.integers(self.starts[-1], size=num)
        chosen = np.searchsorted(self.starts, anywhere, side="right") - 1
        at_home = draws.random(num, dtype=np.float32) < spec.homophily
        chosen[at_home] = homes[at_home]
        sizes = np.diff(self.starts)[chosen]
        # Inverse of the cumulative k**-a: a share u of the draws goes to the first u**(1/(1-a)).
        power = 1 / (1 - spec.popularity_exponent)
        ranks = (sizes * draws.random(num) ** power).astype(np.int64)
        return self.members[self.starts[chosen] + np.minimum(ranks, sizes - 1)]


def _make_degrees(spec: SynthSpec) -> np.ndarray:
    """Target in-degrees: [N] int64, Pareto, cut at N - 1, with the given mean."""
    shape = spec.degree_exponent - 1
    largest = spec.nodes - 1
    smallest = _pareto_scale(spec.avg_degree, shape, largest)
    degrees = np.empty(spec.nodes, np.int64)
    for number, begin, end in chunks(spec.nodes, _NODE_CHUNK):
        draws = generator(spec.seed, _Stream.DEGREES, number)
        tail = 1 - draws.random(end - begin)
        values = np.minimum(smallest * tail ** (-1 / shape), largest)
        # Rounding up with the probability of the fraction keeps the mean.
        degrees[begin:end] = values + draws.random(end - begin)
    return np.minimum(degrees, largest)


def _pareto_scale(mean: float, shape: float, largest: float) -> float:
    """The smallest value of a Pareto law, cut at ``largest``, that has ``mean``; by bisection."""
    low, high = 0.0, mean
    for _ in range(100):
        scale = (low + high) / 2
        cut_mean = (shape * scale - scale**shape * largest ** (1 - shape)) / (shape - 1)
        low, high = (scale, high) if cut_mean < mean else (low, scale)
    return high


def _write_edges(
    spec: SynthSpec,
    writer: StoreWriter,
    labels: np.ndarray,
    executor: ThreadPoolExecutor,
    advance: Callable[[int], None],
) -> int:
    """Writes the topology; in-neighbours of a node ascend. Returns the number of edges."""
    communities = _Communities.of(spec, labels)
    degrees = _make_degrees(spec)
    dtype = np.dtype(layout.index_dtype(spec.nodes))
    num_edges = 0
    with writer.file(layout.INDICES) as sink:
        sink.write_header(dtype, 0)

        def make(chunk: tuple[int, tuple[int, int]]) -> tuple[int, int, np.ndarray]:
            number, (first, last) = chunk
            draws = generator(spec.seed, _Stream.EDGES, number)
            wanted, homes = degrees[first:last], labels[first:last]
            return first, last, _draw_edges(spec, draws, communities, first, wanted, homes)

        ranges = enumerate(_edge_ranges(degrees))
        for first, last, keys in map_ahead(executor, make, ranges, _THREADS + 2):
            nodes, sources = np.divmod(keys, spec.nodes)
            sink.write(sources.astype(dtype))
            degrees[first:last] = np.bincount(nodes, minlength=last - first)
            num_edges += len(keys)
            advance(4 * len(keys))
        sink.replace_header(dtype, num_edges)
    with writer.file(layout.INDPTR) as sink:
        sink.write_header(np.dtype(np.int64), spec.nodes + 1)
        sink.write(np.zeros(1, np.int64))
        sink.write(np.cumsum(degrees, out=degrees))
    return num_edges


def _edge_ranges(degrees: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of destinations with about _EDGE_CHUNK edges each (one node may have more)."""
    ranges = []
    for _, begin, end in chunks(len(degrees), _EDGE_CHUNK):
        ends = np.cumsum(degrees[begin:end])
        first = 0
        while first < end - begin:
            done = ends[first - 1] if first else 0
            last = int(np.searchsorted(ends, done + _EDGE_CHUNK, side="right"))
            last = max(last, first + 1)
            ranges.append((begin + first, begin + last))
            first = last
    return ranges


def _draw_edges(
    spec: SynthSpec,
    draws: np.random.Generator,
    communities: _Communities,
    first: int,
    wanted: np.ndarray,
    homes: np.ndarray,
) -> np.ndarray:
    """Distinct edges as sorted keys (destination - first) * nodes + source: int64."""
    keys = np.empty(0, np.int64)
    missing = wanted
    for attempt in range(_POPULAR_DRAWS + _UNIFORM_DRAWS):
        nodes = np.repeat(np.arange(len(wanted)), missing)
        if attempt < _POPULAR_DRAWS:
            sources = communities.draw(spec, draws, homes[nodes])
        else:
            sources = draws.integers(spec.nodes, size=len(nodes))
        fresh = (nodes * spec.nodes + sources)[sources != nodes + first]
        keys = _sorted_unique(np.concatenate([keys, fresh]))
        missing = wanted - np.bincount(keys // spec.nodes, minlength=len(wanted))
        if not missing.any():
            break
    return keys


def _sorted_unique(keys: np.ndarray) -> np.ndarray:
    """As np.unique(), which takes seventy times as long for a million keys."""
    keys.sort()
    is_first = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    return keys[is_first]


def make_centroids(spec: SynthSpec, draws: np.random.Generator, dim: int) -> np.ndarray:
    """The centroid of each class, of length ``signal``: [classes, dim] float32."""
    centroids = draws.standard_normal((spec.classes, dim), dtype=np.float32)
    centroids *= np.float32(spec.signal) / np.linalg.norm(centroids, axis=1, keepdims=True)
    return centroids


def _write_features(
    spec: SynthSpec,
    writer: StoreWriter,
    meta: FeatureMeta,
    labels: np.ndarray,
    executor: ThreadPoolExecutor,
    advance: Callable[[int], None],
) -> None:
    centroids = make_centroids(spec, generator(spec.seed, _Stream.CENTROIDS, 0), spec.dim)
    step = max(1, _FEATURE_CHUNK_BYTES // (4 * spec.dim))
    block = max(1, _BLOCK_BYTES // (4 * spec.dim))

    def make(chunk: tuple[int, int, int]) -> np.ndarray:
        number, first, last = chunk
        draws = generator(spec.seed, _Stream.FEATURES, number)
        rows = np.empty((last - first, spec.dim), np.float32)
        for _, begin, end in chunks(len(rows), block):
            part = rows[begin:end]
            draws.standard_normal(dtype=np.float32, out=part)
            part += centroids[labels[first + begin : first + end]]
        return convert(rows, meta.dtype, first)

    striped = StripedWriter([writer.file(name) for name in meta.files], meta.stripe_bytes)
    for rows in map_ahead(executor, make, chunks(spec.nodes, step), _THREADS + 2):
        striped.write(rows)
        advance(rows.nbytes)
    striped.close()
