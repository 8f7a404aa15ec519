"""The route ``intervals``: accumulators of some destinations in memory, while sources stream by.

Features are read once, in order, and become narrow rows. Each layer then reads these rows in order,
once for each interval of destinations whose accumulators fit in memory. Sums run in the order of
sources, so that results have the same bits whatever the intervals are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from lsm import native
from lsm.data.feature_files import FeatureFiles
from lsm.graph.topology import Topology
from lsm.inference.arrays import ArrayFile, runs_of
from lsm.inference.interval_memory import IntervalMemory, Needs, enough_with_reads, read_options
from lsm.inference.reductions import Reduction, StreamedBatch
from lsm.inference.stage import Finish, Resources, Sink, Stage, bytes_read, sum_over
from lsm.inference.streamed import Streamed
from lsm.storage.engine import Storage, Ticket
from lsm.storage.open import open_storage
from lsm.storage.options import StorageOptions

CHUNK_ROWS = 1024
"""Rows that a thread computes at once. They are a function of the graph alone, as results are."""
_MOST_STREAM_BYTES = 32 << 20
_EDGE_BYTES = 8
_COPIES = 2  # of the reduced rows of a chunk, while the layer's rows are made of them


@dataclass(frozen=True)
class Projected:
    """The rows of a layer's convolution, on disk: z of all nodes, and s unless there is none."""

    streamed: Streamed
    z: ArrayFile
    own: ArrayFile | None

    @property
    def num_values(self) -> int:
        """Values of a node in both."""
        return self.streamed.width + self.streamed.own_width

    @property
    def files(self) -> list[ArrayFile]:
        """Both files."""
        return [self.z] if self.own is None else [self.z, self.own]

    def write(self, first: int, rows: Tensor) -> None:
        """Writes the rows that ``rows`` [n, in] of nodes from ``first`` on become."""
        z, own = self.streamed.project(rows, first)
        self.z.write(first, z)
        if self.own is not None and own is not None:
            self.own.write(first, own)


@dataclass(frozen=True)
class _Reading:
    """The rows z and a node's own, open for reading; the rows z that stay in memory, the first
    ones; and the number of the others that stream by at a time."""

    z: Storage
    own: Storage | None
    kept: Tensor
    batch_rows: int


class ProjectStage(Stage):
    """The first layer's rows of all nodes, from their features."""

    name = "features"

    def __init__(
        self,
        features: FeatureFiles,
        made: Projected,
        resources: Resources,
        storage: StorageOptions,
    ) -> None:
        self._features, self._made, self._resources = features, made, resources
        self._num_nodes = made.z.num_rows
        self.num_units = -(-self._num_nodes // CHUNK_ROWS)
        self._storage, reads = read_options(storage, resources.free_bytes)
        values = features.dim + 2 * made.num_values
        at_work = resources.num_threads * CHUNK_ROWS * 4 * values
        rows_bytes = CHUNK_ROWS * features.row_bytes
        self.enough_bytes = enough_with_reads(
            at_work + 2 * rows_bytes, lambda free: read_options(storage, free)[1]
        )
        room = min(_MOST_STREAM_BYTES, (resources.free_bytes - reads - at_work) // 2)
        self._chunks = max(1, room // rows_bytes)

    def run(self, units: np.ndarray, finish: Finish) -> int:
        with open_storage(self._features, self._storage) as storage:
            for begin, end in runs_of(units):
                first, last = begin * CHUNK_ROWS, min(end * CHUNK_ROWS, self._num_nodes)
                streaming = stream_rows(
                    storage, self._features, first, last, self._chunks * CHUNK_ROWS
                )
                for done, rows in zip(range(begin, end, self._chunks), streaming, strict=True):
                    self._project(rows, done * CHUNK_ROWS)
                    finish(done, min(done + self._chunks, end), 0)
            return bytes_read([storage])

    def _project(self, rows: Tensor, first: int) -> None:
        def work(at: int) -> int:
            with torch.inference_mode():
                self._made.write(first + at, rows[at : at + CHUNK_ROWS].float())
            return 0

        sum_over(self._resources, work, range(0, len(rows), CHUNK_ROWS))


class IntervalStage(Stage):
    """A layer of all nodes, from the ``rows`` z and s that stream by. ``after``: the map of the
    convolution's rows to the layer's. ``made``: the next layer's rows; None: it is the last."""

    def __init__(
        self,
        number: int,
        topology: Topology,
        rows: Projected,
        after: Callable[[Tensor], Tensor],
        made: Projected | None,
        sink: Sink,
        resources: Resources,
        threads: native.ThreadPool,
    ) -> None:
        self.name = f"layer {number}"
        self._topology, self._rows, self._after = topology, rows, after
        self._made, self._sink, self._threads = made, sink, threads
        self._resources = resources
        self._num_nodes = rows.z.num_rows
        self.num_units = -(-self._num_nodes // CHUNK_ROWS)
        needs = Needs(
            costs=self._costs(),
            at_work=resources.num_threads * CHUNK_ROWS * 4 * self._values_at_work(),
            num_rows=self._num_nodes,
            row_bytes=rows.z.row_bytes,
            few_rows=CHUNK_ROWS,
            has_own=rows.own is not None,
        )
        self._memory = IntervalMemory(self.name, resources.free_bytes, needs)
        self.enough_bytes = self._memory.enough_bytes

    def run(self, units: np.ndarray, finish: Finish) -> int:
        division = self._memory.divide(units)
        with ExitStack() as stack:
            reads = self._memory.reads
            if division.num_kept == self._num_nodes:  # they are in the page cache as well
                reads = reads.model_copy(update={"direct": "off"})
            z = stack.enter_context(open_storage(self._rows.z.feature_files, reads))
            own = None
            if self._rows.own is not None:
                files = self._rows.own.feature_files
                own = stack.enter_context(open_storage(files, self._memory.own_reads))
            elif self._rows.streamed.takes_own:
                own = z
            reading = _Reading(z, own, self._read_kept(z, division.num_kept), division.batch_rows)
            for begin, end in division.intervals:
                finish(begin, end, self._run_interval(begin, end, reading))
            return bytes_read({z, own or z})

    @property
    def _reduction(self) -> Reduction:
        return self._rows.streamed.reduction

    def _costs(self) -> np.ndarray:
        """Memory of the sums and the edges of each chunk: [chunks] int64."""
        bounds = np.minimum(np.arange(self.num_units + 1) * CHUNK_ROWS, self._num_nodes)
        edges = np.diff(self._topology.indptr.numpy()[bounds])
        sizes = np.diff(bounds)
        edges += sizes * self._rows.streamed.one_loop
        row_bytes = 4 * self._reduction.width(self._rows.streamed.width)
        if self._reduction.takes_own and self._rows.own is not None:
            row_bytes += self._rows.own.row_bytes
        return sizes * row_bytes + edges * _EDGE_BYTES

    def _values_at_work(self) -> int:
        """Values of a node while the layer's rows are made of the reduced ones."""
        made = 0 if self._made is None else self._made.num_values
        return _COPIES * self._rows.streamed.width + self._rows.streamed.own_width + made

    def _nodes(self, begin: int, end: int) -> tuple[int, int]:
        return begin * CHUNK_ROWS, min(end * CHUNK_ROWS, self._num_nodes)

    def _read_kept(self, z: Storage, num_kept: int) -> Tensor:
        """The first rows, which stay in memory: [num_kept, width]."""
        files, step = self._rows.z.feature_files, self._memory.read_rows
        kept = torch.empty(num_kept, files.dim)
        for first in range(0, num_kept, step):
            last = min(first + step, num_kept)
            _submit(z, first, kept[first:last]).wait()
        return kept

    def _run_interval(self, begin: int, end: int, reading: _Reading) -> int:
        """Makes the rows of chunks ``begin`` to ``end - 1``. Returns the number of bad rows."""
        first, last = self._nodes(begin, end)
        own, kept = reading.own, reading.kept
        rows_own = None
        if self._reduction.takes_own and own is not None:
            rows_own = self._read_own(begin, end, own)
        reduced = self._reduce(first, last, reading, rows_own)

        def work(unit: int) -> int:
            begin, end = self._nodes(unit, unit + 1)
            with torch.inference_mode():
                mine: Tensor | None = None
                if rows_own is not None:
                    mine = rows_own[begin - first : end - first]
                elif own is reading.z and end <= len(kept):
                    mine = kept[begin:end]
                elif own is not None:
                    mine = self._read_own(unit, unit + 1, own)
                return self._emit(begin, reduced[begin - first : end - first], mine)

        return sum_over(self._resources, work, range(begin, end))

    def _read_own(self, begin: int, end: int, own: Storage) -> Tensor:
        """The rows s of chunks ``begin`` to ``end - 1``, or their rows z if these are taken."""
        first, last = self._nodes(begin, end)
        rows = torch.empty(last - first, (self._rows.own or self._rows.z).feature_files.dim)
        for at in range(0, last - first, CHUNK_ROWS):
            _submit(own, first + at, rows[at : at + CHUNK_ROWS]).wait()
        return rows

    def _reduce(self, first: int, last: int, reading: _Reading, own: Tensor | None) -> Tensor:
        """The reduced rows of nodes ``first`` to ``last - 1``, whose rows s are ``own`` if the
        reduction takes them."""
        streamed, files = self._rows.streamed, self._rows.z.feature_files
        kept, batch_rows = reading.kept, reading.batch_rows
        reduced = self._reduction.start(last - first, streamed.width)
        edges = native.IntervalEdges(
            self._threads,
            self._topology.indptr,
            self._topology.indices,
            first,
            last,
            self._num_nodes,
            batch_rows,
            streamed.one_loop,
        )
        streaming = stream_rows(reading.z, files, len(kept), self._num_nodes, batch_rows)
        batches = kept.split(batch_rows) if len(kept) else ()
        for number, rows in enumerate(chain(batches, streaming)):
            self._reduction.add(StreamedBatch(edges, self._threads, number, rows), own, reduced)
        return reduced

    def _emit(self, first: int, reduced: Tensor, own: Tensor | None) -> int:
        """Writes the layer's rows of a chunk, and the next layer's projection of them. Returns the
        number of bad rows."""
        rows = self._after(self._rows.streamed.emit(reduced, own, first))
        if self._made is not None:
            self._made.write(first, rows)
        return self._sink.write(torch.arange(first, first + len(reduced)), rows)


def stream_rows(
    storage: Storage, files: FeatureFiles, first: int, end: int, step: int
) -> Iterator[Tensor]:
    """Rows ``first`` to ``end - 1``, ``step`` at a time, the next ones being read meanwhile. Rows
    are valid until the next ones are taken."""
    starts = range(first, end, step)
    buffers = torch.empty(min(2, len(starts)), min(step, end - first), files.dim, dtype=files.dtype)

    def submit(number: int) -> Ticket:
        start = starts[number]
        return _submit(storage, start, buffers[number % 2, : min(step, end - start)])

    following = submit(0) if len(starts) else None
    for number in range(1, len(starts) + 1):
        assert following is not None, "there are rows"
        current, following = following, submit(number) if number < len(starts) else None
        yield current.wait()


def _submit(storage: Storage, first: int, out: Tensor) -> Ticket:
    return storage.submit(torch.arange(first, first + len(out)), out)
