"""The route ``gather``: blocks of destinations, each with the rows of all its in-neighbours.

It takes any layer. Rows are read for a group of blocks at a time, as many as memory holds: each row
once, sorted by id, while the group before is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from lsm.core.units import format_bytes
from lsm.data.feature_files import FeatureFiles
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.inference.arrays import runs_of
from lsm.inference.blocks import BLOCK_EDGES, Block, block_bounds, block_edges, make_block
from lsm.inference.network import BlockLayer
from lsm.inference.stage import Finish, Resources, Sink, Stage, TooLittleMemoryError, bytes_read
from lsm.storage.engine import Storage, Ticket
from lsm.storage.open import open_storage
from lsm.storage.options import StorageOptions

_MOST_BLOCKS = 256  # of a group, so that a kill loses little
_MARK_BYTES = 5  # of a node: its mark and its place
_GROUPS = 2  # in memory: one is read while the other is computed


@dataclass
class _Group:
    """Blocks whose rows are read together."""

    units: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    ids: dict[str, Tensor] = field(default_factory=dict)
    """By type, ascending: the nodes whose rows are read."""
    rows: dict[str, Tensor] = field(default_factory=dict)
    tickets: list[Ticket] = field(default_factory=list)


class GatherStage(Stage):
    """A layer for the nodes of one type, from rows on disk. ``sources``: their files by type; a
    type without rows is absent. ``wanted``: [N] bool, the nodes to compute; None: all."""

    def __init__(
        self,
        layer: BlockLayer,
        topologies: Mapping[EdgeType, Topology],
        sources: Mapping[str, FeatureFiles],
        num_nodes: Mapping[str, int],
        sink: Sink,
        wanted: Tensor | None,
        resources: Resources,
        storage: StorageOptions,
        name: str,
    ) -> None:
        self.name, self.sink = name, sink
        self._layer, self._wanted, self._pool = layer, wanted, resources.pool
        self._topologies = {each: topologies[each] for each in layer.edge_types}
        self._sources = {each: sources[each] for each in layer.source_types if each in sources}
        self._num_nodes, self._storage = num_nodes, storage
        dims = [files.dim for files in self._sources.values()]
        self._width = max([layer.width, layer.input_width, *dims])
        self._block_edges = block_edges(self._width, BLOCK_EDGES)
        self._bounds = block_bounds(
            [*self._topologies.values()], num_nodes[layer.node_type], self._block_edges
        )
        self.num_units = len(self._bounds) - 1
        self._divide(resources)

    def run(self, units: np.ndarray, finish: Finish) -> int:
        with ExitStack() as stack:
            storages = {
                name: stack.enter_context(open_storage(files, self._storage))
                for name, files in self._sources.items()
            }
            places = {
                name: torch.empty(self._num_nodes[name], dtype=torch.int32) for name in storages
            }
            before: _Group | None = None
            for group in self._groups(units):
                self._read(group, storages)
                if before is not None:
                    self._compute(before, places, finish)
                before = group
            if before is not None:
                self._compute(before, places, finish)
            return bytes_read(storages.values())

    def _divide(self, resources: Resources) -> None:
        """Divides memory among marks, blocks at work, and groups of rows."""
        marks = _MARK_BYTES * sum(self._num_nodes[name] for name in self._sources)
        at_work = (resources.num_threads + 1) * self._block_edges * 4 * 4 * self._width
        self.enough_bytes = marks + at_work + _GROUPS * self._largest_block()
        left = resources.free_bytes - marks - at_work
        if left <= 0:
            raise TooLittleMemoryError(self.name, 1 - left)
        self._budget = left // _GROUPS

    def _largest_block(self) -> int:
        """Bytes of the rows of the largest block, at most."""
        if self.num_units == 0:
            return 0
        sizes = self._bounds.diff()
        for topology in self._topologies.values():
            sizes += topology.indptr[self._bounds].diff()
        row_bytes = max((files.row_bytes for files in self._sources.values()), default=0)
        all_bytes = sum(self._num_nodes[name] * f.row_bytes for name, f in self._sources.items())
        return min(int(sizes.max()) * row_bytes, all_bytes)

    def _groups(self, units: np.ndarray) -> Iterator[_Group]:
        """Groups of blocks whose rows fit in memory. One block is a group however large it is."""
        marks = {
            name: torch.zeros(self._num_nodes[name], dtype=torch.bool) for name in self._sources
        }
        group, parts, num_bytes = _Group(), _parts_of(marks), 0
        for unit in units.tolist():
            dst = torch.arange(int(self._bounds[unit]), int(self._bounds[unit + 1]))
            if self._wanted is not None:
                dst = dst[self._wanted[dst]]
            block = make_block(self._layer.node_type, dst, self._topologies)
            new = _new_ids(block, marks)
            more = self._row_bytes(new)
            is_full = num_bytes + more > self._budget or len(group.units) == _MOST_BLOCKS
            if group.units and is_full:
                yield _closed(group, parts, marks)
                group, parts, num_bytes = _Group(), _parts_of(marks), 0
                new = _new_ids(block, marks)
                more = self._row_bytes(new)
            self._check_room(block, more)
            group.units.append(unit)
            group.blocks.append(block)
            num_bytes += more
            for name, ids in new.items():
                marks[name][ids] = True
                parts[name].append(ids)
        if group.units:
            yield _closed(group, parts, marks)

    def _row_bytes(self, ids: Mapping[str, Tensor]) -> int:
        return sum(len(own) * self._sources[name].row_bytes for name, own in ids.items())

    def _check_room(self, block: Block, num_bytes: int) -> None:
        if num_bytes > self._budget:
            edges = sum(each.edge_index.size(1) for each in block.edges.values())
            raise TooLittleMemoryError(
                f"{self.name}: {block.num_dst} nodes from {int(block.own_ids[0])} on with {edges} "
                f"in-edges, whose rows take {format_bytes(num_bytes)}",
                _GROUPS * (num_bytes - self._budget),
            )

    def _read(self, group: _Group, storages: Mapping[str, Storage]) -> None:
        for name, ids in group.ids.items():
            files = self._sources[name]
            group.rows[name] = torch.empty(len(ids), files.dim, dtype=files.dtype)
            group.tickets.append(storages[name].submit(ids, group.rows[name]))

    def _compute(self, group: _Group, places: Mapping[str, Tensor], finish: Finish) -> None:
        """Computes a group. ``places``: by type, memory for the places of nodes in its rows."""
        for ticket in group.tickets:
            ticket.wait()
        for name, ids in group.ids.items():
            places[name][ids] = torch.arange(len(ids), dtype=torch.int32)
        counts: list[Future[int]] = [
            self._pool.submit(self._rows_of, block, group, places) for block in group.blocks
        ]
        try:
            bad = np.array([each.result() for each in counts])
        finally:
            for each in counts:
                each.cancel()
        units, done = np.array(group.units), 0
        for first, end in runs_of(units):
            finish(first, end, int(bad[done : done + end - first].sum()))
            done += end - first

    def _rows_of(self, block: Block, group: _Group, places: Mapping[str, Tensor]) -> int:
        """Computes and writes the rows of a block. Returns the number of bad rows."""
        with torch.inference_mode():
            if block.num_dst == 0:
                return 0
            for name, rows in group.rows.items():
                if name in block.ids:
                    block.rows[name] = rows[places[name][block.ids[name]].long()]
            computed = self._layer.compute(block).float()
            block.rows.clear()
            return self.sink.write(block.own_ids, computed)


def _new_ids(block: Block, marks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The nodes of a block that are not marked, by type."""
    return {
        name: block.ids[name][~mark[block.ids[name]]]
        for name, mark in marks.items()
        if name in block.ids
    }


def _parts_of(names: Iterable[str]) -> dict[str, list[Tensor]]:
    """For each of ``names``, the nodes of no block yet."""
    return {name: [torch.empty(0, dtype=torch.int64)] for name in names}


def _closed(
    group: _Group, parts: Mapping[str, list[Tensor]], marks: Mapping[str, Tensor]
) -> _Group:
    """The group with its nodes: ``parts`` of each type, which share none. Clears their marks. Takes
    time for these nodes only, not for all of the graph."""
    for name, mark in marks.items():
        ids = np.sort(torch.cat(parts[name]).numpy())
        group.ids[name] = torch.from_numpy(ids)
        mark[group.ids[name]] = False
    return group
