"""The types of a sampled graph: by type, its parts of each tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lsm.graph.types import EdgeType, EdgeTypes, NodeSpace, TypedMap, has_types


@dataclass(frozen=True)
class SampledTypes:
    """The nodes and edges of each type in a SampledGraph of several types.

    Its tensors are those of a graph of one type, grouped by type, so that a native sampler fills
    one memory for all types, and the ids are a request list as they are. Each part is a view:

    - ``n_id``: ids of ``space``, by node type in its order; within a type in PyG's order: seeds,
      then each hop's new nodes.
    - ``edge_index``, ``edge_weight``: by edge type in the order of ``edge_types``; within a type by
      hop, within a hop by destination. Ends are counted from the first node of their type.
    - ``indptr``: one after another, for each edge type that of a CSC of its own, from 0, over the
      expanded nodes of the destination's type: all but the last hop's new ones.

    ``num_sampled_nodes``: per node type, seeds, then new nodes per hop. ``num_sampled_edges``: per
    edge type, edges per hop. Every type is there, with zeros if it was not reached.
    """

    space: NodeSpace
    edge_types: EdgeTypes
    input_type: str
    """The type of the seeds."""
    num_sampled_nodes: TypedMap[str, list[int]]
    num_sampled_edges: TypedMap[EdgeType, list[int]]

    @classmethod
    def of(
        cls,
        space: NodeSpace,
        edge_types: EdgeTypes,
        input_type: str,
        num_sampled_nodes: Sequence[list[int]],
        num_sampled_edges: Sequence[list[int]],
    ) -> SampledTypes | None:
        """The types of a sample with these counts, in the order of types; None for a graph without
        types."""
        if not has_types(space.types, edge_types):
            return None
        return cls(
            space,
            edge_types,
            input_type,
            TypedMap(zip(space.types, num_sampled_nodes, strict=True)),
            TypedMap(zip(edge_types, num_sampled_edges, strict=True)),
        )

    def nodes(self, values: torch.Tensor) -> TypedMap[str, torch.Tensor]:
        """Each node type's part of ``values`` [n, ...]."""
        counts = [sum(self.num_sampled_nodes[name]) for name in self.space.types]
        return TypedMap(zip(self.space.types, values.split(counts), strict=True))

    def ids(self, n_id: torch.Tensor) -> TypedMap[str, torch.Tensor]:
        """The nodes of each type, by their ids in the type."""
        parts, offsets = self.nodes(n_id), self.space.offsets
        return TypedMap({name: part - offsets[name] for name, part in parts.items()})

    def edges(self, values: torch.Tensor) -> TypedMap[EdgeType, torch.Tensor]:
        """Each edge type's part of ``values`` [..., e]."""
        counts = [sum(self.num_sampled_edges[each]) for each in self.edge_types]
        return TypedMap(zip(self.edge_types, values.split(counts, dim=-1), strict=True))

    def indptrs(self, indptr: torch.Tensor) -> TypedMap[EdgeType, torch.Tensor]:
        """The CSC bounds of each edge type."""
        counts = [sum(self.num_sampled_nodes[each[2]][:-1]) + 1 for each in self.edge_types]
        return TypedMap(zip(self.edge_types, indptr.split(counts), strict=True))
