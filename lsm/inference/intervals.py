"""The route ``intervals``: accumulators of some destinations in memory, while sources stream by.

Features are read once, in order, and become narrow rows. Each layer then reads these rows in order,
once for each interval of destinations whose accumulators fit in memory. Sums run in the order of
sources, so that results have the same bits whatever the intervals are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lsm import native
from lsm.data.feature_files import FeatureFiles
from lsm.graph.topology import Topology
from lsm.inference.arrays import ArrayFile
from lsm.inference.stage import Finish, Resources, Sink, TooLittleMemoryError, bytes_read, runs_of
from lsm.inference.streamed import Streamed
from lsm.storage.engine import Storage, Ticket
from lsm.storage.open import open_storage
from lsm.storage.options import StorageOptions

CHUNK_ROWS = 1024
"""Rows that a thread computes at once. They are a function of the graph alone, as results are."""
_MOST_STREAM_BYTES = 32 << 20
_STREAM_SHARE = 8  # of memory, for each of two buffers of rows that stream by
_EDGE_BYTES = 8
_COPIES = 6  # of a chunk's rows while it is computed
_READS: dict[str, Any] = {"max_read_bytes": 256 << 10, "queue_depth": 32}


@dataclass(frozen=True)
class Projected:
    """The rows of a layer's convolution, on disk: z of all nodes, and s unless there is none."""

    streamed: Streamed
    z: ArrayFile
    own: ArrayFile | None

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


class ProjectStage:
    """The first layer's rows of all nodes, from their features."""

    name = "features"

    def __init__(
        self,
        features: FeatureFiles,
        made: Projected,
        resources: Resources,
        storage: StorageOptions,
    ) -> None:
        self._features, self._made, self._storage = features, made, storage
        self._pool = resources.pool
        self._num_nodes = made.z.num_rows
        self.num_units = -(-self._num_nodes // CHUNK_ROWS)
        row_bytes = max(features.row_bytes, 4 * (made.streamed.width + made.streamed.own_width))
        self.enough_bytes = CHUNK_ROWS * row_bytes * (_COPIES * resources.num_threads + 2)
        room = min(_MOST_STREAM_BYTES, resources.free_bytes // _STREAM_SHARE)
        self._chunks = max(1, room // (CHUNK_ROWS * features.row_bytes))

    def run(self, units: np.ndarray, finish: Finish) -> int:
        """As Stage.run()."""
        pieces = [
            (first, min(first + self._chunks, end))
            for begin, end in runs_of(units)
            for first in range(begin, end, self._chunks)
        ]
        bounds = [(a * CHUNK_ROWS, min(b * CHUNK_ROWS, self._num_nodes)) for a, b in pieces]
        with open_storage(self._features, self._storage.model_copy(update=_READS)) as storage:
            rows_in_order = _stream(storage, self._features, bounds)
            for (begin, end), (first, _), rows in zip(pieces, bounds, rows_in_order, strict=True):
                self._project(rows, first)
                finish(begin, end, 0)
            return bytes_read([storage])

    def _project(self, rows: Tensor, first: int) -> None:
        def work(at: int) -> int:
            with torch.inference_mode():
                self._made.write(first + at, rows[at : at + CHUNK_ROWS].float())
            return 0

        list(self._pool.map(work, range(0, len(rows), CHUNK_ROWS)))


class IntervalStage:
    """A layer of all nodes, from the rows that stream by.

    Args:
        number: Of the layer, from 1.
        topology: Its edges.
        rows: Its rows z and s.
        after: The map of the convolution's rows to the layer's.
        made: The next layer's rows; None: the last.
        sink: Takes the layer's rows.
        resources: Threads that compute, and memory to use.
        threads: Native threads.
    """

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
        self._pool = resources.pool
        self._num_nodes = rows.z.num_rows
        self.num_units = -(-self._num_nodes // CHUNK_ROWS)
        self._divide(resources.free_bytes)

    def _divide(self, free_bytes: int) -> None:
        """Divides memory among the rows that stream by and the accumulators with their edges."""
        row_bytes, all_bytes = self._rows.z.row_bytes, self._num_nodes * self._rows.z.row_bytes
        widths = [self._rows.streamed.width + self._rows.streamed.own_width]
        if self._made is not None:
            widths.append(self._made.streamed.width + self._made.streamed.own_width)
        chunk = CHUNK_ROWS * 4 * max(widths) * _COPIES * self._threads.num_threads
        left = free_bytes - chunk
        least = max(self._cost(unit, unit + 1) for unit in range(self.num_units))
        few = CHUNK_ROWS * row_bytes  # rows that stream by, at least
        share = min(
            -(-least * _STREAM_SHARE // (_STREAM_SHARE - 2)), least + 2 * _MOST_STREAM_BYTES
        )
        needed = max(least + 2 * few, share)
        self.enough_bytes = needed + chunk
        if left < needed:
            raise TooLittleMemoryError(self.name, needed - left, "use fewer threads")
        self.stays = all_bytes <= min(left // 2, left - least)
        """True if all rows z stay in memory, and are read once."""
        streaming = max(few, min(_MOST_STREAM_BYTES, left // _STREAM_SHARE))
        self._batch_rows = self._num_nodes if self.stays else streaming // row_bytes
        self._budget = left - (all_bytes if self.stays else 2 * streaming)

    def run(self, units: np.ndarray, finish: Finish) -> int:
        """As Stage.run()."""
        direct = {"direct": "off"} if self.stays else {}
        options = StorageOptions().model_copy(update=_READS | direct)
        with ExitStack() as stack:
            z = stack.enter_context(open_storage(self._rows.z.feature_files, options))
            own = None
            if self._rows.own is not None:
                own = stack.enter_context(open_storage(self._rows.own.feature_files, options))
            elif self._rows.streamed.takes_own:
                own = z
            kept = self._read_all(z) if self.stays and len(units) else None
            for begin, end in self._intervals(units):
                self._run_interval(begin, end, z, own, kept, finish)
            return bytes_read({z, own or z})

    def _cost(self, begin: int, end: int) -> int:
        """Memory of the sums and the edges of chunks ``begin`` to ``end - 1``."""
        first, last = self._nodes(begin, end)
        edges = int(self._topology.indptr[last] - self._topology.indptr[first])
        edges += (last - first) * self._rows.streamed.one_loop
        return (last - first) * self._rows.z.row_bytes + edges * _EDGE_BYTES

    def _nodes(self, begin: int, end: int) -> tuple[int, int]:
        return begin * CHUNK_ROWS, min(end * CHUNK_ROWS, self._num_nodes)

    def _intervals(self, units: np.ndarray) -> Iterator[tuple[int, int]]:
        """Runs of chunks whose sums fit in memory."""
        for first, last in runs_of(units):
            begin = first
            for end in range(first + 1, last + 1):
                if end == last or self._cost(begin, end + 1) > self._budget:
                    yield begin, end
                    begin = end

    def _read_all(self, z: Storage) -> Tensor:
        (rows,) = _stream(z, self._rows.z.feature_files, [(0, self._num_nodes)])
        return rows

    def _run_interval(
        self,
        begin: int,
        end: int,
        z: Storage,
        own: Storage | None,
        kept: Tensor | None,
        finish: Finish,
    ) -> None:
        first, last = self._nodes(begin, end)
        reduced = self._reduce(first, last, z, kept)

        def work(unit: int) -> int:
            with torch.inference_mode():
                return self._emit(unit, reduced, first, own, kept)

        chunks = range(begin, end)
        finish(begin, end, sum(self._pool.map(work, chunks)))

    def _reduce(self, first: int, last: int, z: Storage, kept: Tensor | None) -> Tensor:
        """The reduced rows of nodes ``first`` to ``last - 1``: [n, width]."""
        streamed, files = self._rows.streamed, self._rows.z.feature_files
        start = 0.0 if streamed.reduction == "sum" else -torch.inf
        reduced = torch.full((last - first, streamed.width), start)
        edges = native.IntervalEdges(
            self._threads,
            self._topology.indptr,
            self._topology.indices,
            first,
            last,
            self._num_nodes,
            self._batch_rows,
            streamed.one_loop,
        )
        bounds = [
            (at, min(at + self._batch_rows, self._num_nodes))
            for at in range(0, self._num_nodes, self._batch_rows)
        ]
        batches = _stream(z, files, bounds) if kept is None else iter([kept])
        reduction = getattr(native.Reduction, streamed.reduction)
        for number, rows in enumerate(batches):
            edges.reduce(self._threads, number, rows, reduction, reduced)
        return reduced

    def _emit(
        self, unit: int, reduced: Tensor, base: int, own: Storage | None, kept: Tensor | None
    ) -> int:
        """Writes the layer's rows of a chunk, and what the next one makes of them. Returns the
        number of bad rows."""
        first, last = self._nodes(unit, unit + 1)
        rows_own: Tensor | None = None
        if self._rows.own is None and self._rows.streamed.takes_own and kept is not None:
            rows_own = kept[first:last]
        elif own is not None:
            files = (self._rows.own or self._rows.z).feature_files
            rows_own = _read(own, files, first, last)
        part = reduced[first - base : last - base]
        rows = self._after(self._rows.streamed.emit(part, rows_own, first))
        if self._made is not None:
            self._made.write(first, rows)
        return self._sink.write(torch.arange(first, last), rows)


def _stream(
    storage: Storage, files: FeatureFiles, bounds: Sequence[tuple[int, int]]
) -> Iterator[Tensor]:
    """The rows between each of ``bounds``, the next ones being read meanwhile."""
    ticket = None
    for first, last in bounds:
        following = _submit(storage, files, first, last)
        if ticket is not None:
            yield ticket.wait()
        ticket = following
    if ticket is not None:
        yield ticket.wait()


def _submit(storage: Storage, files: FeatureFiles, first: int, last: int) -> Ticket:
    out = torch.empty(last - first, files.dim, dtype=files.dtype)
    return storage.submit(torch.arange(first, last), out)


def _read(storage: Storage, files: FeatureFiles, first: int, last: int) -> Tensor:
    return _submit(storage, files, first, last).wait()
