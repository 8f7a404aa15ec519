"""Intervals of the nodes of one type, while the rows of other types stream by.

The edges of one type after the other are reduced, in the order of their sources, and each adds its
rows to the sum of the interval. So results have the same bits whatever the intervals are. Rows are
hidden ones, which are narrow already: the projection of a row that a convolution aggregates is
computed as the row streams by, and never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lsm import native
from lsm.data.feature_files import FeatureFiles
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.inference.interval_memory import IntervalMemory, Needs
from lsm.inference.intervals import CHUNK_ROWS, stream_rows
from lsm.inference.reductions import StreamedBatch
from lsm.inference.stage import Finish, Resources, Sink, Stage, bytes_read
from lsm.inference.streamed import Streamed, TypedStreamed
from lsm.storage.engine import Storage
from lsm.storage.open import open_storage

_EDGE_BYTES = 8
_COPIES = 6  # of a chunk's rows while it is computed


@dataclass(frozen=True)
class _Interval:
    """Some nodes: their first one, their own rows, and the sum of the relations so far."""

    first: int
    own: Tensor
    sums: Tensor | None

    def chunks(self) -> Iterator[slice]:
        """The rows of each chunk."""
        for at in range(0, len(self.own), CHUNK_ROWS):
            yield slice(at, min(at + CHUNK_ROWS, len(self.own)))


class TypedIntervalStage(Stage):
    """A layer of all nodes of a type, from the rows that stream by. ``sources``: their files, by
    type."""

    def __init__(
        self,
        name: str,
        node_type: str,
        streamed: TypedStreamed,
        topologies: Mapping[EdgeType, Topology],
        sources: Mapping[str, FeatureFiles],
        num_nodes: Mapping[str, int],
        sink: Sink,
        resources: Resources,
        threads: native.ThreadPool,
    ) -> None:
        self.name, self._node_type, self._streamed = name, node_type, streamed
        self._topologies = {each: topologies[each] for each in streamed.relations}
        types = dict.fromkeys([node_type, *(each[0] for each in streamed.relations)])
        self._sources = {each: sources[each] for each in types}
        self._sink, self._pool, self._threads = sink, resources.pool, threads
        self._num_sources, self._num_nodes = num_nodes, num_nodes[node_type]
        self.num_units = -(-self._num_nodes // CHUNK_ROWS)
        widths = [max(each.width, each.own_width) for each in streamed.relations.values()]
        self._width = max([sources[node_type].dim, *widths])
        needs = Needs(
            costs=self._costs(),
            at_work=resources.num_threads * CHUNK_ROWS * 4 * _COPIES * self._width,
            num_rows=max(num_nodes[each] for each in types),
            row_bytes=sources[node_type].row_bytes + 4 * self._width,
            few_rows=CHUNK_ROWS,
            has_own=True,
        )
        self._memory = IntervalMemory(name, resources.free_bytes, needs)
        self.enough_bytes = self._memory.enough_bytes

    def run(self, units: np.ndarray, finish: Finish) -> int:
        with ExitStack() as stack:
            opened = {
                name: stack.enter_context(open_storage(files, self._memory.reads))
                for name, files in self._sources.items()
            }
            for begin, end in self._memory.divide(units).intervals:
                finish(begin, end, self._run_interval(begin, end, opened))
            return bytes_read(opened.values())

    def _costs(self) -> np.ndarray:
        """Memory of the sums and the edges of each chunk: [chunks] int64."""
        bounds = np.minimum(np.arange(self.num_units + 1) * CHUNK_ROWS, self._num_nodes)
        edges = np.zeros(self.num_units, dtype=np.int64)
        row_bytes = 0
        for each, streamed in self._streamed.relations.items():
            edges = np.maximum(edges, np.diff(self._topologies[each].indptr.numpy()[bounds]))
            width = streamed.reduction.width(streamed.width)
            width += streamed.own_width * streamed.reduction.takes_own
            row_bytes = max(row_bytes, 4 * width)
        rows = 2 * self._sources[self._node_type].row_bytes  # own rows and sums
        return np.diff(bounds) * (row_bytes + rows) + edges * _EDGE_BYTES

    def _run_interval(self, begin: int, end: int, opened: Mapping[str, Storage]) -> int:
        """Writes the rows of chunks ``begin`` to ``end - 1``. Returns the number of bad rows."""
        first, last = begin * CHUNK_ROWS, min(end * CHUNK_ROWS, self._num_nodes)
        own = torch.empty(last - first, self._sources[self._node_type].dim)
        for part in _Interval(first, own, None).chunks():
            rows = torch.arange(first + part.start, first + part.stop)
            opened[self._node_type].submit(rows, own[part]).wait()
        sums = torch.zeros_like(own) if self._streamed.relations else None
        interval = _Interval(first, own, sums)
        for each, streamed in self._streamed.relations.items():
            self._add_relation(interval, each, streamed, opened[each[0]])

        def work(part: slice) -> int:
            with torch.inference_mode():
                so_far = None if sums is None else sums[part]
                rows = self._streamed.finish(own[part], so_far)
                ids = torch.arange(first + part.start, first + part.stop)
                return self._sink.write(ids, rows)

        return sum(self._pool.map(work, interval.chunks()))

    def _add_relation(
        self, interval: _Interval, edge_type: EdgeType, streamed: Streamed, source: Storage
    ) -> None:
        """Adds the rows that the edges of a type make to the sums of an interval."""
        reduced = self._reduce(interval, edge_type, streamed, source)

        def work(part: slice) -> None:
            with torch.inference_mode():
                _, own = streamed.project(interval.own[part], interval.first + part.start)
                if streamed.takes_own:
                    own = interval.own[part]
                assert interval.sums is not None, "there are relations"
                interval.sums[part] += streamed.emit(
                    reduced[part], own, interval.first + part.start
                )

        list(self._pool.map(work, interval.chunks()))

    def _reduce(
        self, interval: _Interval, edge_type: EdgeType, streamed: Streamed, source: Storage
    ) -> Tensor:
        """The reduced rows of an interval over the edges of a type."""
        topology, files = self._topologies[edge_type], self._sources[edge_type[0]]
        num_sources = self._num_sources[edge_type[0]]
        size = self._memory.read_rows // CHUNK_ROWS * CHUNK_ROWS or CHUNK_ROWS
        count, reduction = len(interval.own), streamed.reduction
        edges = native.IntervalEdges(
            self._threads,
            topology.indptr,
            topology.indices,
            interval.first,
            interval.first + count,
            num_sources,
            size,
            streamed.one_loop,
        )
        own = None
        if reduction.takes_own:
            own = torch.empty(count, streamed.own_width)
            self._project(interval.own, lambda part: streamed.project(part, 0)[1], own)
        reduced = reduction.start(count, streamed.width)
        z = torch.empty(min(size, num_sources), streamed.width)
        batches = stream_rows(source, files, 0, num_sources, size)
        for number, rows in enumerate(batches):
            self._project(rows, lambda part: streamed.project(part, 0)[0], z)
            batch = StreamedBatch(edges, self._threads, number, z[: len(rows)])
            reduction.add(batch, own, reduced)
        return reduced

    def _project(
        self, rows: Tensor, project: Callable[[Tensor], Tensor | None], out: Tensor
    ) -> None:
        """Writes the projections of ``rows``, from the first one of a chunk on."""

        def work(at: int) -> None:
            with torch.inference_mode():
                part = project(rows[at : at + CHUNK_ROWS])
                assert part is not None, "takes_own"
                out[at : at + len(part)] = part

        list(self._pool.map(work, range(0, len(rows), CHUNK_ROWS)))
