"""Layers of graphs with types, from ``torch_geometric.nn`` convolutions.

Each takes rows of nodes by type, and gives sums over the types of edges into a node.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.nn import HGTConv, SAGEConv
from torch_geometric.nn.module_dict import ModuleDict

from lsm.graph.types import EdgeType
from lsm.loader.layers import Layer
from lsm.nn.attention import LEAST_WEIGHT, WeightedGATConv


@dataclass(frozen=True)
class Relation:
    """The edges of one type in a layer. attr: [e, dim] float32 attributes, or None."""

    layer: Layer
    attr: Tensor | None = None


Rows = Mapping[str, Tensor]
"""Rows [n, width] by type of nodes."""
Relations = Mapping[EdgeType, Relation]


def relation(
    layer: Layer, edge_type: EdgeType, values: Mapping[str, Mapping[EdgeType, Tensor]]
) -> Relation:
    """The edges of a type in a layer, with their ``edge_weight`` and ``edge_attr``, if any.

    values: those of the batch's edges, by name and type. A layer has the first of them.
    """
    num_edges = layer.edge_index.size(1)
    weights = values.get("edge_weight", {}).get(edge_type)
    if weights is not None:
        layer = _weighted(layer, weights[:num_edges])
    attr = values.get("edge_attr", {}).get(edge_type)
    if attr is not None:
        attr = attr[:num_edges].reshape(num_edges, math.prod(attr.shape[1:])).float()
    return Relation(layer, attr)


def _weighted(layer: Layer, weights: Tensor) -> Layer:
    """``layer`` whose edges also count in proportion to ``weights`` [e] float32, which are at least
    0. Where all weights into a node are 0, its edges count nothing."""
    if layer.edge_weight is not None:
        weights = weights * layer.edge_weight
    destinations = layer.edge_index[1]
    sums = weights.new_zeros(layer.num_dst).index_add_(0, destinations, weights)
    return replace(layer, edge_weight=weights / sums.clamp(min=LEAST_WEIGHT)[destinations])


class TypedConv(nn.Module, ABC):
    """One layer. ``values``: the store's values of edges that it takes."""

    values: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def forward(self, x: Rows, own: Rows, relations: Relations) -> dict[str, Tensor]:
        """Rows [num_dst, width] of the types in ``own``; a type without edges into it may be
        missing.

        x: rows of sources by type. own: the first rows of those, for the nodes to compute.
        """


class RelationConvs(TypedConv):
    """A convolution for each type of edges. Their sum is that of PyG's HeteroConv."""

    def __init__(self, convs: Mapping[EdgeType, nn.Module]) -> None:
        super().__init__()
        self.convs = ModuleDict(convs)

    def forward(self, x: Rows, own: Rows, relations: Relations) -> dict[str, Tensor]:
        sums: dict[str, Tensor] = {}
        for each, conv in self.convs.items():
            (source, _, destination), relation = each, relations[each]
            if relation.layer.num_dst > 0:
                ends = x[source], own[destination]
                out = self.convolve(conv, ends, relation)
                sums[destination] = sums[destination] + out if destination in sums else out
        for name, rows in own.items():
            total = self.with_own(name, rows, sums.get(name))
            if total is not None:
                sums[name] = total
        return sums

    def with_own(self, name: str, own: Tensor, sums: Tensor | None) -> Tensor | None:
        """The ``sums`` of nodes of type ``name`` over the types of edges into them, plus the terms
        of their ``own`` rows; None: nothing."""
        return sums

    def convolve(self, conv: nn.Module, ends: tuple[Tensor, Tensor], relation: Relation) -> Tensor:
        """Output [num_dst, width] of one convolution for the rows of sources and destinations."""
        return conv(ends, relation.layer.adj)


class RSAGE(RelationConvs):
    """GraphSAGE (Hamilton et al., 2017) with weights of its own for each type of edges."""

    values = ("edge_weight",)

    def __init__(self, edge_types: Iterable[EdgeType], width: int) -> None:
        super().__init__({each: SAGEConv((width, width), width) for each in edge_types})


class RGCN(RelationConvs):
    """Means for each type of edges, and a map of the node itself for each type of nodes
    (Schlichtkrull et al., 2018)."""

    values = ("edge_weight",)

    def __init__(
        self, edge_types: Iterable[EdgeType], node_types: Iterable[str], width: int
    ) -> None:
        super().__init__(
            {
                each: SAGEConv((width, width), width, root_weight=False, bias=False)
                for each in edge_types
            }
        )
        self.own = ModuleDict({name: nn.Linear(width, width) for name in node_types})

    def with_own(self, name: str, own: Tensor, sums: Tensor | None) -> Tensor:
        out: Tensor = self.own[name](own)
        return out if sums is None else sums + out


class RGAT(RelationConvs):
    """Attention over the sampled edges of each type (Velickovic et al., 2018; Busbridge et al.,
    2019). Attributes of edges take part in their attention."""

    values = ("edge_weight", "edge_attr")

    def __init__(
        self,
        edge_dims: Mapping[EdgeType, int | None],
        width: int,
        heads: int,
        dropout: float,
    ) -> None:
        """edge_dims: width of the attributes by edge type; None: none."""
        super().__init__(
            {
                each: WeightedGATConv(
                    (width, width),
                    width // heads,
                    heads,
                    dropout=dropout,
                    add_self_loops=False,
                    edge_dim=dim,
                )
                for each, dim in edge_dims.items()
            }
        )

    def convolve(self, conv: nn.Module, ends: tuple[Tensor, Tensor], relation: Relation) -> Tensor:
        layer = relation.layer
        weights = layer.relative_weight
        values = [] if relation.attr is None else [relation.attr]
        if weights is not None:
            values.append(weights.unsqueeze(1))
        attr = torch.cat(values, dim=1) if values else None
        return conv(ends, layer.edge_index, attr, size=(layer.num_src, layer.num_dst))


class HGT(TypedConv):
    """Heterogeneous graph transformer (Hu et al., 2020): attention over the edges of all types.

    node_keys, edge_keys: names of types as torch's modules take them.
    """

    def __init__(
        self,
        edge_types: Iterable[EdgeType],
        node_types: Iterable[str],
        width: int,
        heads: int,
    ) -> None:
        super().__init__()
        key = ModuleDict.to_internal_key
        self.node_keys = {name: key(name) for name in node_types}
        self.edge_keys = {each: (key(each[0]), key(each[1]), key(each[2])) for each in edge_types}
        metadata = list(self.node_keys.values()), list(self.edge_keys.values())
        self.conv = HGTConv(width, width, metadata, heads)

    def forward(self, x: Rows, own: Rows, relations: Relations) -> dict[str, Tensor]:
        rows = {key: x[name] for name, key in self.node_keys.items()}
        edges = {key: relations[each].layer.edge_index for each, key in self.edge_keys.items()}
        found = self.conv(rows, edges)
        entered = [name for name in own if found.get(self.node_keys[name]) is not None]
        return {name: found[self.node_keys[name]][: len(own[name])] for name in entered}
