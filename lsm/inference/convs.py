"""Convolutions on blocks: the rows of the whole graph, from the in-edges of a node alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, SAGEConv

from lsm.graph.topology import Topology
from lsm.inference.blocks import Block
from lsm.loader.layers import Layer
from lsm.nn.self_loops import gcn_sums

_NODES_AT_ONCE = 1 << 13
# They take the rows of destinations apart, and so compute nothing for the other nodes.
_BIPARTITE = (SAGEConv, GATConv, GATv2Conv, GINConv, GraphConv)

Conv = Callable[[Block], Tensor]
"""Rows of the destinations of a block."""


def block_conv(conv: nn.Module, topology: Topology) -> Conv:
    """``conv`` on blocks of a graph of one type of edges."""
    if isinstance(conv, GCNConv):
        return _GCN(conv, topology)
    return lambda block: _convolve(conv, *_only(block))


def _only(block: Block) -> tuple[Tensor, Layer]:
    (layer,) = block.edges.values()
    return block.rows[block.node_type].float(), layer


def _convolve(conv: nn.Module, x: Tensor, layer: Layer) -> Tensor:
    if not isinstance(conv, _BIPARTITE):
        return conv(x, layer.edge_index)[: layer.num_dst]
    ends = x, x[: layer.num_dst]
    if isinstance(conv, SAGEConv) and conv.aggr in ("mean", "sum", "add"):
        return conv(ends, layer.adj)  # a sparse-dense product
    return conv(ends, layer.edge_index)


class _GCN:
    """GCNConv with the degrees of the whole graph, which the edges of a block do not show."""

    def __init__(self, conv: GCNConv, topology: Topology) -> None:
        self._conv, self._topology = conv, topology

    @cached_property
    def _scale(self) -> Tensor:
        return gcn_scale(self._conv, self._topology, 0, self._topology.num_nodes)

    def __call__(self, block: Block) -> Tensor:
        x, layer = _only(block)
        conv, sources, targets = self._conv, layer.edge_index[0], layer.edge_index[1]
        weights = None
        if conv.normalize:
            if conv.add_self_loops:
                kept = sources != targets  # destinations come first among the sources
                loops = torch.arange(layer.num_dst)
                sources = torch.cat([sources[kept], loops])
                targets = torch.cat([targets[kept], loops])
            scale = self._scale[block.ids[block.node_type]]
            weights = scale[sources] * scale[targets]
        return gcn_sums(conv, x, layer, torch.stack([sources, targets]), weights)


def gcn_scale(conv: GCNConv, topology: Topology, first: int, end: int) -> Tensor:
    """The inverse square roots of the degrees of nodes ``first`` to ``end - 1`` as GCNConv counts
    them: [end - first] float32; empty without normalisation. One self loop replaces those that
    there are; PyG has no use for ``improved`` without weights."""
    if not conv.normalize:
        return torch.empty(0)
    degrees = topology.indptr[first : end + 1].diff()
    if conv.add_self_loops:
        for at in range(first, end, _NODES_AT_ONCE):
            last = min(at + _NODES_AT_ONCE, end)
            degrees[at - first : last - first] -= _count_loops(topology, at, last) - 1
    scale = degrees.float().pow(-0.5)
    return scale.masked_fill_(scale == float("inf"), 0.0)


def _count_loops(topology: Topology, first: int, end: int) -> Tensor:
    """The edges from each of nodes ``first`` to ``end - 1`` to itself: [end - first] int64."""
    indptr, indices = topology.indptr[first : end + 1], topology.indices
    nodes = torch.arange(first, end, dtype=indices.dtype).repeat_interleave(indptr.diff())
    loops = nodes[indices[int(indptr[0]) : int(indptr[-1])] == nodes] - first
    return torch.bincount(loops, minlength=end - first)
