"""The bipartite graphs of a batch, one per GNN layer."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch

from lsm.graph.types import EdgeType, TypedMap
from lsm.sampler.typed import SampledTypes

# Layer.adj uses only the product of sparse CSR, which PyTorch has long had, and opts out of checks.
warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")


@dataclass(frozen=True)
class Layer:
    """The bipartite graph that one GNN layer aggregates over.

    Sources are the first ``num_src`` nodes of the batch, destinations the first ``num_dst`` of
    those; in a batch of several types, of the source's and of the destination's type.
    ``edge_index`` [2, e] int64 is grouped by destination, and ``indptr`` [num_dst + 1] int64 bounds
    the groups. Both are views of the batch.
    """

    indptr: torch.Tensor
    edge_index: torch.Tensor
    num_src: int
    num_dst: int
    edge_weight: torch.Tensor | None = None
    """[e] float32; None: all edges of a node have the same weight."""

    def __repr__(self) -> str:
        return shapes(self)

    @cached_property
    def relative_weight(self) -> torch.Tensor | None:
        """edge_weight times the number of edges into the destination, [e] float32 (ones if all
        edges of a node have the same weight); None without weights."""
        if self.edge_weight is None:
            return None
        return self.edge_weight * self.indptr.diff()[self.edge_index[1]]

    @cached_property
    def adj(self) -> torch.Tensor:
        """[num_dst, num_src] float32 sparse CSR of relative weights, or of a one per edge: means
        over its rows are weighted sums. The column indices of a row are not sorted, and repeat for
        parallel edges."""
        sources = self.edge_index[0]
        weights = self.relative_weight
        return torch.sparse_csr_tensor(
            self.indptr,
            sources,
            torch.ones(len(sources), device=sources.device) if weights is None else weights,
            size=(self.num_dst, self.num_src),
            check_invariants=False,
        )


@dataclass(frozen=True)
class Edges:
    """The edges of a batch, or of one type in it, as Batch has them."""

    indptr: torch.Tensor
    edge_index: torch.Tensor
    edge_weight: torch.Tensor | None
    num_sampled_edges: list[int]
    num_sources: list[int]
    """Sampled nodes, per hop, of the source's type."""
    num_destinations: list[int]

    def layer(self, last_hop: int) -> Layer:
        """The edges of hops 0 .. last_hop."""
        num_dst = sum(self.num_destinations[: last_hop + 1])
        num_edges = sum(self.num_sampled_edges[: last_hop + 1])
        return Layer(
            indptr=self.indptr[: num_dst + 1],
            edge_index=self.edge_index[:, :num_edges],
            num_src=sum(self.num_sources[: last_hop + 2]),
            num_dst=num_dst,
            edge_weight=None if self.edge_weight is None else self.edge_weight[:num_edges],
        )


def typed_edges(
    types: SampledTypes,
    indptr: torch.Tensor,
    edge_index: torch.Tensor,
    edge_weight: torch.Tensor | None,
) -> TypedMap[EdgeType, Edges]:
    """The edges of each type."""
    weights = None if edge_weight is None else types.edges(edge_weight)
    parts, bounds = types.edges(edge_index), types.indptrs(indptr)
    nodes = types.num_sampled_nodes
    return TypedMap(
        {
            each: Edges(
                bounds[each],
                parts[each],
                None if weights is None else weights[each],
                types.num_sampled_edges[each],
                nodes[each[0]],
                nodes[each[2]],
            )
            for each in types.edge_types
        }
    )


def shapes(data: Any) -> str:
    """The fields of a dataclass that are there, tensors by their shapes:
    Layer(edge_index=[2, 9])."""
    given = {field.name: getattr(data, field.name) for field in fields(data) if field.compare}
    texts = [
        f"{name}={list(value.shape) if isinstance(value, torch.Tensor) else value}"
        for name, value in given.items()
        if value is not None
    ]
    return f"{type(data).__name__}({', '.join(texts)})"
