"""The edges of all types as one structure over the one space of node ids."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType, NodeSpace


def union(parts: Mapping[EdgeType, Topology], nodes: NodeSpace) -> Topology:
    """The in-edges of every node over all edge types, in the order of ``parts``; ids are those of
    the space. A single type is returned as it is, others are copied: 8 bytes a node and 4 an edge
    (8 from 2**31 nodes on), and 36 more an edge of the largest type for the time of the copy."""
    if len(parts) == len(nodes.types) == 1:
        return next(iter(parts.values()))
    degrees = torch.zeros(nodes.num_nodes, dtype=torch.int64)
    for (_, _, destination), part in parts.items():
        degrees[_range(nodes, destination)] += part.indptr.diff()
    indptr = torch.zeros(nodes.num_nodes + 1, dtype=torch.int64)
    torch.cumsum(degrees, 0, out=indptr[1:])
    kind = torch.int32 if nodes.num_nodes < 2**31 else torch.int64
    indices = torch.empty(int(indptr[-1]), dtype=kind)
    cursors = indptr[:-1].clone()  # the next free place of each node's list
    for (source, _, destination), part in parts.items():
        own, of_part = cursors[_range(nodes, destination)], part.indptr.diff()
        places = torch.repeat_interleave(own - part.indptr[:-1], of_part)
        places += torch.arange(part.num_edges)
        indices[places] = (part.indices.long() + nodes.offsets[source]).to(kind)
        own += of_part
    return Topology(indptr, indices)


def union_bytes(parts: Mapping[EdgeType, Topology], nodes: NodeSpace) -> int:
    """Most memory that union() takes."""
    if len(parts) == len(nodes.types) == 1:
        return 0
    num_edges = [part.num_edges for part in parts.values()]
    id_bytes = 4 if nodes.num_nodes < 2**31 else 8
    return 16 * nodes.num_nodes + id_bytes * sum(num_edges) + 36 * max(num_edges)


def _range(nodes: NodeSpace, node_type: str) -> slice:
    first = nodes.offsets[node_type]
    return slice(first, first + nodes.counts[node_type])
