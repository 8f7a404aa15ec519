"""Blocks of destinations with all edges into them, in local ids.

The bounds of blocks are a function of the graph alone. So every block is computed from the same
matrices, whatever the memory and the number of threads and ranks, and its values have the same
bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.loader.layers import Layer

BLOCK_EDGES = 16_384
"""Edges and destinations of a block, about, where rows are narrow (block_edges)."""
_NARROW = 128
_NODES_AT_ONCE = 1 << 16


@dataclass
class Block:
    """Some nodes of one type, the edges into them, and the nodes that those come from.

    ids: by type, [n] int64; those of ``node_type`` start with the ``num_dst`` destinations.
    edges: by type. e_ids: their positions in the store, by type. rows: by type [n, width], once
    they are read; absent for a type without rows.
    """

    node_type: str
    num_dst: int
    ids: dict[str, Tensor]
    edges: dict[EdgeType, Layer]
    e_ids: dict[EdgeType, Tensor]
    rows: dict[str, Tensor] = field(default_factory=dict)

    @property
    def own_ids(self) -> Tensor:
        """The destinations: [num_dst] int64."""
        return self.ids[self.node_type][: self.num_dst]


def block_edges(width: int, most: int) -> int:
    """Edges and destinations of a block with rows of at most ``width`` values: ``most``, and fewer
    of wide rows, so that blocks take about the same memory."""
    return max(1, most * _NARROW // max(_NARROW, width))


def block_bounds(topologies: list[Topology], num_nodes: int, size: int) -> Tensor:
    """The first node of each block, and ``num_nodes``: [blocks + 1] int64. A block has about
    ``size`` edges and destinations together, and more only by the edges of its first node. Raises
    ValueError for a damaged topology."""
    found, before = [torch.zeros(1, dtype=torch.int64)], 0
    last = -1
    for first in range(0, num_nodes, _NODES_AT_ONCE):
        end = min(first + _NODES_AT_ONCE, num_nodes)
        cost = torch.ones(end - first, dtype=torch.int64)
        for each in topologies:
            degrees = each.indptr[first : end + 1].diff()
            if int(degrees.min()) < 0:
                raise ValueError(
                    f"indptr: expected degrees of 0 or more, node {first + int(degrees.argmin())} "
                    f"has {int(degrees.min())}; check the topology with `lsm data verify`"
                )
            cost += degrees
        total = cost.cumsum(0) + before
        # A node belongs to the block in which its last edge would lie.
        block = (total - 1) // size
        starts = block.diff(prepend=torch.tensor([last])).nonzero().view(-1)
        found.append(starts + first)
        before, last = int(total[-1]), int(block[-1])
    bounds = torch.cat([*found, torch.tensor([num_nodes])])
    return torch.unique_consecutive(bounds)


def make_block(node_type: str, dst: Tensor, topologies: Mapping[EdgeType, Topology]) -> Block:
    """The block of the destinations ``dst`` [n] int64, ascending, without rows."""
    sources: dict[str, list[Tensor]] = {node_type: [dst]}
    found: dict[EdgeType, tuple[Tensor, Tensor, Tensor]] = {}
    for each, topology in topologies.items():
        first = topology.indptr[dst]
        counts = topology.indptr[dst + 1] - first
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        e_ids = torch.arange(int(indptr[-1])) + (first - indptr[:-1]).repeat_interleave(counts)
        of_edges = topology.indices[e_ids].long()
        found[each] = indptr, of_edges, e_ids
        sources.setdefault(each[0], []).append(of_edges)
    ids, places = {}, {}
    for name, parts in sources.items():
        unique, inverse = _distinct(torch.cat(parts))
        if name == node_type:
            unique, inverse = _destinations_first(unique, inverse, len(dst))
        ids[name] = unique
        places[name] = list(inverse.split([len(part) for part in parts]))
    places[node_type].pop(0)
    edges = {}
    targets = torch.arange(len(dst))
    for each, (indptr, _, _) in found.items():
        local = torch.stack([places[each[0]].pop(0), targets.repeat_interleave(indptr.diff())])
        edges[each] = Layer(indptr, local, len(ids[each[0]]), len(dst))
    return Block(node_type, len(dst), ids, edges, {each: found[each][2] for each in found})


def _distinct(ids: Tensor) -> tuple[Tensor, Tensor]:
    """The ``ids`` [n] int64 once each, ascending, and the place of each among them: [n] int64. Of a
    block NumPy finds them in a quarter of torch's time."""
    found, places = np.unique(ids.numpy(), return_inverse=True)
    return torch.from_numpy(found), torch.from_numpy(places.reshape(-1))


def _destinations_first(unique: Tensor, inverse: Tensor, num_dst: int) -> tuple[Tensor, Tensor]:
    """``unique`` with its nodes at ``inverse[:num_dst]`` in front, and the inverse of that."""
    first = inverse[:num_dst]
    is_rest = torch.ones(len(unique), dtype=torch.bool)
    is_rest[first] = False
    order = torch.cat([first, is_rest.nonzero().view(-1)])
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    return unique[order], place[inverse]
