"""Convolutions that are linear before they aggregate, as rows that stream by.

A row-wise map makes a row ``z`` of each source and a row ``s`` of the node itself. A destination
adds up the ``z`` of its in-neighbours, takes their maximum, or weighs them by their attention, and
makes its row of that and of its own ``s``. So the wide rows of features are read once, and only
``z`` and ``s`` are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, SAGEConv

from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.inference.convs import gcn_scale
from lsm.inference.reductions import Attention, ElementWise, Reduction
from lsm.nn.attention import WeightedGATConv

_REDUCTIONS: dict[str, Literal["sum", "max"]] = {
    "mean": "sum",
    "sum": "sum",
    "add": "sum",
    "max": "max",
}


@dataclass(frozen=True)
class Streamed:
    """A convolution in two steps.

    width, own_width: of a row z, and of a row s; 0: no s. project(x, first): z and s of rows x
    [n, in] float32, those of nodes from ``first`` on. emit(reduced, own, first): rows [n, out] of
    the reduced z, which it may change, and of s, or of the nodes' own z if ``takes_own`` says so.
    one_loop: a node is its own in-neighbour once, whatever edges to itself it has.
    """

    width: int
    own_width: int
    reduction: Reduction
    project: Callable[[Tensor, int], tuple[Tensor, Tensor | None]]
    emit: Callable[[Tensor, Tensor | None, int], Tensor]
    takes_own: bool = False
    one_loop: bool = False


@dataclass(frozen=True)
class TypedStreamed:
    """A layer for the nodes of one type.

    relations: the convolutions over the types of edges into it, whose rows are added up in this
    order. finish(own, sums): the layer's rows from those before it, [n, width], and the sums; None:
    there are no such types.
    """

    relations: Mapping[EdgeType, Streamed]
    finish: Callable[[Tensor, Tensor | None], Tensor]


def stream_conv(conv: nn.Module, topology: Topology, width: int) -> Streamed | None:
    """``conv`` on rows of ``width`` values in two steps; None if it cannot be divided so."""
    if type(conv) is GCNConv and conv.aggr == "add":
        return _gcn(conv, topology)
    aggr = getattr(conv, "aggr", None)
    if not isinstance(aggr, str) or aggr not in _REDUCTIONS:
        return None
    if type(conv) is SAGEConv:
        return _sage(conv, topology, width, aggr)
    if type(conv) is GraphConv:
        return _linear(
            topology, width, aggr, conv.lin_rel, conv.lin_root, lambda x: x, lambda out: out
        )
    if type(conv) is GINConv:
        return _gin(conv, topology, width, aggr)
    is_attention = type(conv) in (GATConv, GATv2Conv, WeightedGATConv) and aggr in ("sum", "add")
    if is_attention and getattr(conv, "edge_dim", None) is None:
        return _attention(conv)
    return None


def _sage(conv: SAGEConv, topology: Topology, width: int, aggr: str) -> Streamed:
    def prepare(x: Tensor) -> Tensor:
        return conv.lin(x).relu() if conv.project else x

    def finish(out: Tensor) -> Tensor:
        return functional.normalize(out, p=2.0, dim=-1) if conv.normalize else out

    own = conv.lin_r if conv.root_weight else None
    return _linear(topology, width, aggr, conv.lin_l, own, prepare, finish)


def _linear(
    topology: Topology,
    width: int,
    aggr: str,
    of_sources: Any,
    of_own: Any,
    prepare: Callable[[Tensor], Tensor],
    finish: Callable[[Tensor], Tensor],
) -> Streamed:
    """A linear map of the neighbours' mean, sum or maximum, plus one of the node itself. A maximum
    is not linear, so the map comes after it."""
    weight: Tensor = of_sources.weight
    bias: Tensor | None = of_sources.bias
    out_dim, is_max = weight.size(0), aggr == "max"

    def project(x: Tensor, _first: int) -> tuple[Tensor, Tensor | None]:
        rows = prepare(x)
        z = rows if is_max else functional.linear(rows, weight)
        return z, None if of_own is None else of_own(x)

    def emit(reduced: Tensor, own: Tensor | None, first: int) -> Tensor:
        reduced = _aggregated(reduced, topology, aggr, first)
        if is_max:
            reduced = functional.linear(reduced, weight)
        if bias is not None:
            reduced += bias
        if own is not None:
            reduced += own
        return finish(reduced)

    own_width = 0 if of_own is None else out_dim
    reduction = ElementWise(_REDUCTIONS[aggr])
    return Streamed(width if is_max else out_dim, own_width, reduction, project, emit)


def _aggregated(reduced: Tensor, topology: Topology, aggr: str, first: int) -> Tensor:
    """The ``reduced`` rows of nodes from ``first`` on as means, sums or maxima, in place; 0 without
    in-neighbours."""
    degrees = topology.indptr[first : first + len(reduced) + 1].diff().unsqueeze(1)
    if aggr == "mean":
        reduced /= degrees.clamp(min=1)
    elif aggr == "max":
        reduced.masked_fill_(degrees == 0, 0.0)
    return reduced


def _gin(conv: GINConv, topology: Topology, width: int, aggr: str) -> Streamed:
    def project(x: Tensor, _first: int) -> tuple[Tensor, Tensor | None]:
        return x, None

    def emit(reduced: Tensor, own: Tensor | None, first: int) -> Tensor:
        reduced = _aggregated(reduced, topology, aggr, first)
        return conv.nn(reduced.add_((1 + conv.eps) * own))

    return Streamed(width, 0, ElementWise(_REDUCTIONS[aggr]), project, emit, takes_own=True)


def _gcn(conv: GCNConv, topology: Topology) -> Streamed:
    def scaled(rows: Tensor, first: int) -> Tensor:
        if not conv.normalize:
            return rows
        return rows.mul_(gcn_scale(conv, topology, first, first + len(rows)).unsqueeze(1))

    def project(x: Tensor, first: int) -> tuple[Tensor, Tensor | None]:
        return scaled(conv.lin(x), first), None

    def emit(reduced: Tensor, _own: Tensor | None, first: int) -> Tensor:
        rows = scaled(reduced, first)
        return rows if conv.bias is None else rows.add_(conv.bias)

    one_loop = conv.normalize and conv.add_self_loops
    width, reduction = conv.lin.weight.size(0), ElementWise("sum")
    return Streamed(width, 0, reduction, project, emit, one_loop=one_loop)


def _attention(conv: Any) -> Streamed:
    heads, num_values = conv.heads, conv.heads * conv.out_channels
    residual = getattr(conv, "res", None)

    def scores(rows: Tensor, weights: Tensor) -> Tensor:
        return (rows.view(len(rows), heads, -1) * weights).sum(-1)

    def additive(x: Tensor) -> tuple[Tensor, Tensor]:
        of_source = conv.lin_src if conv.lin is None else conv.lin
        of_own = conv.lin_dst if conv.lin is None else conv.lin
        z = of_source(x)
        own = z if of_own is of_source else of_own(x)
        return torch.cat([z, scores(z, conv.att_src)], 1), scores(own, conv.att_dst)

    def project(x: Tensor, _first: int) -> tuple[Tensor, Tensor | None]:
        z, own = additive(x) if is_additive else (conv.lin_l(x), conv.lin_r(x))
        return z, own if residual is None else torch.cat([own, residual(x)], 1)

    def emit(reduced: Tensor, own: Tensor | None, first: int) -> Tensor:
        means = reduction.means(reduced)
        rows = means.flatten(1) if conv.concat else means.mean(1)
        if residual is not None and own is not None:
            rows = rows + own[:, own_width:]
        return rows if conv.bias is None else rows + conv.bias

    is_additive = isinstance(conv, GATConv)
    weights = torch.empty(0) if is_additive else conv.att.detach().reshape(-1).contiguous()
    reduction = Attention(heads, conv.negative_slope, weights)
    width, own_width = (num_values + heads, heads) if is_additive else (num_values, num_values)
    more = 0 if residual is None else residual.weight.size(0)
    return Streamed(width, own_width + more, reduction, project, emit, one_loop=conv.add_self_loops)
