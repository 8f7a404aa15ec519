"""GCN and GAT on a layer of a batch, with one self loop per node.

They equal ``torch_geometric.nn`` GCNConv and GATConv, whose weights they take. PyG removes the self
loops of a graph by a mask, and the host waits for a GPU to count them. Here those edges keep their
places and count nothing, so that no size depends on values. Nothing is computed for nodes that are
only sources.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from lsm.loader.layers import Layer
from lsm.nn.attention import WeightedGATConv


def gcn(conv: GCNConv, x: Tensor, layer: Layer) -> Tensor:
    """The rows of the first num_dst nodes that ``conv`` gives for x [num_src, in] and the layer's
    edges with their relative weights: [num_dst, out].

    Precondition: ``conv`` normalises and adds self loops, as by default.
    """
    sources, destinations = layer.edge_index
    weights = layer.relative_weight
    is_loop = sources == destinations
    loops = x.new_ones(layer.num_src)
    if weights is None:
        weights = x.new_ones(len(sources))
    else:
        loops = _loop_weights(weights, destinations, is_loop, loops)
    weights = weights.masked_fill(is_loop, 0.0)
    degrees = x.new_zeros(layer.num_src).index_add_(0, destinations, weights) + loops
    scale = degrees.pow(-0.5)
    scale = scale.masked_fill(scale == float("inf"), 0.0)
    own, of_own = scale[: layer.num_dst], loops[: layer.num_dst]
    norms = torch.cat([scale[sources] * weights * scale[destinations], own * of_own * own])
    return gcn_sums(conv, x, layer, _with_loops(layer), norms)


def gcn_sums(
    conv: GCNConv, x: Tensor, layer: Layer, edges: Tensor, weights: Tensor | None
) -> Tensor:
    """The rows of the first num_dst nodes that ``conv`` gives by ``edges`` [2, e] with ``weights``
    [e], which are final: [num_dst, out]."""
    size, z = (layer.num_src, layer.num_dst), conv.lin(x)
    out = conv.propagate(edges, size=size, x=(z, None), edge_weight=weights)
    return out if conv.bias is None else out + conv.bias


def gat(conv: WeightedGATConv, x: Tensor, layer: Layer) -> Tensor:
    """The rows of the first num_dst nodes that ``conv`` gives for x [num_src, in] and the layer's
    edges with their relative weights: [num_dst, out].

    Precondition: ``conv`` adds self loops, and has neither attributes of edges nor a residual.
    """
    sources, destinations = layer.edge_index
    weights = layer.relative_weight
    if weights is None:
        weights = x.new_ones(len(sources))
    weights = torch.cat(
        [weights.masked_fill(sources == destinations, 0.0), x.new_ones(layer.num_dst)]
    )
    z = conv.lin(x).view(-1, conv.heads, conv.out_channels)
    own = z[: layer.num_dst]
    scores = (z * conv.att_src).sum(dim=-1), (own * conv.att_dst).sum(dim=-1)
    edges, size = _with_loops(layer), (layer.num_src, layer.num_dst)
    alpha = conv.edge_updater(edges, alpha=scores, edge_attr=weights.unsqueeze(1), size=size)
    out = conv.propagate(edges, x=(z, own), alpha=alpha, size=size)
    out = out.flatten(1) if conv.concat else out.mean(dim=1)
    return out if conv.bias is None else out + conv.bias


def _with_loops(layer: Layer) -> Tensor:
    """The layer's edges, then a self loop of each destination: [2, e + num_dst] int64."""
    loops = torch.arange(layer.num_dst, device=layer.edge_index.device)
    return torch.cat([layer.edge_index, loops.expand(2, -1)], dim=1)


def _loop_weights(weights: Tensor, nodes: Tensor, is_loop: Tensor, absent: Tensor) -> Tensor:
    """The weight of each node's last self loop; of nodes without one, that in ``absent`` [n]."""
    places = torch.arange(len(weights), device=weights.device).masked_fill(~is_loop, -1)
    last = places.new_full((len(absent),), -1).scatter_reduce_(0, nodes, places, "amax")
    padded = torch.cat([weights, weights.new_ones(1)])  # -1 is its last place, also without edges
    return torch.where(last < 0, absent, padded[last])
