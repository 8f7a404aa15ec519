"""Neighbour sampling of graphs with types, weights of edges, times, or a subgraph for each seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lsm import native
from lsm.core.ids import as_int64
from lsm.graph.topology import Topology
from lsm.graph.types import EDGE, EdgeType, EdgeTypes, NodeSpace, TypedMap
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import SampledGraph, checked_num_neighbors
from lsm.sampler.options import Sampling
from lsm.sampler.typed import SampledTypes

Seeds = Tensor | Mapping[str, Tensor]
"""Seeds, or values of seeds, of one type, or of several by type: [b] int64 each."""

ExcludedPairs = Mapping[EdgeType, tuple[Tensor, Tensor]]
"""Destinations and sources of edges by type, [n] int64 each, ascending by destination, then by
source."""

_NO_PAIRS = (torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))

NumNeighbors = Sequence[int] | Mapping[EdgeType, Sequence[int]]
"""Neighbours per hop: of all types of edges alike, or of each."""


@dataclass(frozen=True)
class TypedTopology:
    """The edges of a graph by type.

    topologies: the in-edges of each type, whose ids are those of the ends' types. weights: by edge
    type, [E] float32, finite and at least 0; types without draw all edges alike. times: by edge
    type, [E] int64. node_times: by node type, [N] int64; an edge without a time of its own has that
    of its source. Within a node, in-edges with times are in their order.
    """

    space: NodeSpace
    topologies: TypedMap[EdgeType, Topology]
    weights: Mapping[EdgeType, Tensor] | None = None
    times: Mapping[EdgeType, Tensor] | None = None
    node_times: Mapping[str, Tensor] | None = None

    @classmethod
    def of(cls, graph: Topology | TypedTopology) -> TypedTopology:
        """``graph``; one without types as that of its one type."""
        if isinstance(graph, TypedTopology):
            return graph
        return cls(NodeSpace.of_one(graph.num_nodes), TypedMap({EDGE: graph}))

    @property
    def edge_types(self) -> EdgeTypes:
        """The types of edges, in their order."""
        return EdgeTypes(self.topologies, self.space)

    @property
    def arrays(self) -> list[Tensor]:
        """All arrays."""
        values = (self.weights or {}, self.times or {}, self.node_times or {})
        kept = [value for each in values for value in each.values()]
        return [
            *kept,
            *(array for each in self.topologies.values() for array in (each.indptr, each.indices)),
        ]

    @property
    def num_bytes(self) -> int:
        """Memory of all arrays."""
        return sum(each.nbytes for each in self.arrays)

    def native_edges(self, num_neighbors: Mapping[EdgeType, list[int]]) -> list[native.TypedEdges]:
        """The edges of each type for native samplers, which take up to ``num_neighbors``."""
        types, weights, times = self.space.types, self.weights or {}, self.times or {}
        return [
            native.TypedEdges(
                topology.indptr,
                topology.indices,
                types.index(each[0]),
                types.index(each[2]),
                num_neighbors[each],
                weights.get(each),
                times.get(each),
            )
            for each, topology in self.topologies.items()
        ]

    def native_node_times(self) -> list[Tensor | None]:
        """The times of nodes for native samplers: by type, or none."""
        times = self.node_times or {}
        return [times.get(name) for name in self.space.types] if times else []


def num_neighbors_by_type(
    num_neighbors: NumNeighbors, edge_types: EdgeTypes
) -> TypedMap[EdgeType, list[int]]:
    """The neighbours per hop of each edge type.

    Raises ValueError for an unknown type, one that is missing, types with different numbers of
    hops, or a number that is none of neighbours.
    """
    if not isinstance(num_neighbors, Mapping):
        hops = checked_num_neighbors(num_neighbors)
        return TypedMap(dict.fromkeys(edge_types, hops))
    for each in num_neighbors:
        if each not in edge_types:
            known = ", ".join(map(str, edge_types))
            raise ValueError(f"num_neighbors: {each} is no edge type; expected some of {known}")
    missing = [each for each in edge_types if each not in num_neighbors]
    if missing:
        raise ValueError(
            f"num_neighbors: {missing[0]} is missing; 0 per hop leaves a type of edges out"
        )
    found = TypedMap({each: checked_num_neighbors(num_neighbors[each]) for each in edge_types})
    if len({len(hops) for hops in found.values()}) > 1:
        raise ValueError("num_neighbors: expected as many hops for each edge type")
    return found


class TypedNeighborSampler:
    """Draws up to ``num_neighbors[h]`` in-neighbours per node and edge type at hop h, without
    replacement.

    With weights, edges are drawn in proportion to them, one by one, and an edge of weight 0 never.
    ``disjoint`` gives each seed a subgraph of its own. With times, which require it, a subgraph has
    no edge that is later than its seed; ``temporal_strategy`` takes any of the others, or the
    ``last``. Tensors are used in place. Raises ValueError for arguments that do not fit, and for
    in-edges that are not in the order of their times.
    """

    def __init__(
        self,
        graph: TypedTopology,
        num_neighbors: NumNeighbors,
        num_threads: int = 1,
        *,
        input_type: str,
        sampling: str | Sampling = "neighbor",
        disjoint: bool = False,
        temporal_strategy: Literal["uniform", "last"] = "uniform",
    ) -> None:
        if input_type not in graph.space.counts:
            known = ", ".join(graph.space.types)
            raise ValueError(f"input type: expected one of {known}, got {input_type!r}")
        self.graph = graph
        self.input_type = input_type
        self.edge_types = graph.edge_types
        self.num_neighbors = num_neighbors_by_type(num_neighbors, self.edge_types)
        self._native = native.TypedSampler(
            list(graph.space.counts.values()),
            graph.native_edges(self.num_neighbors),
            num_threads,
            Sampling.of(sampling).chosen.native(),
            disjoint,
            temporal_strategy == "last",
            graph.native_node_times(),
        )

    def sample(
        self,
        seeds: Seeds,
        name: BatchName,
        times: Seeds | None = None,
        excluded: ExcludedPairs | None = None,
    ) -> SampledGraph:
        """The subgraph of ``seeds`` [b], ids of the input type, or of several types by type: a
        function of the arguments and the graph, whatever the number of threads.

        Seeds are distinct, unless each has a subgraph. ``times``: [b] int64 of the seeds, if edges
        have times. ``excluded``: the pairs of seeds that no edge of the subgraph has. Thread-safe;
        releases the GIL. Raises ValueError as NeighborSampler.sample().
        """
        result = self._sample(seeds, name, times, excluded, edge_ids=False)
        edges = native.as_tensor(result.edges, torch.int64, 2 * result.num_edges)
        n_id = native.as_tensor(result.n_id, torch.int64, result.num_nodes)
        return SampledGraph(
            n_id=n_id,
            edge_index=edges.view(2, result.num_edges),
            indptr=native.as_tensor(result.indptr, torch.int64, result.num_bounds),
            num_sampled_nodes=[sum(hop) for hop in zip(*result.num_sampled_nodes, strict=True)],
            num_sampled_edges=[sum(hop) for hop in zip(*result.num_sampled_edges, strict=True)],
            batch=None
            if result.subgraph is None
            else native.as_tensor(result.subgraph, torch.int64, result.num_nodes),
            types=SampledTypes.of(
                *(self.graph.space, self.edge_types, self.input_type),
                *(result.num_sampled_nodes, result.num_sampled_edges),
            ),
        )

    def edge_ids(
        self,
        seeds: Seeds,
        name: BatchName,
        times: Seeds | None = None,
        excluded: ExcludedPairs | None = None,
    ) -> Tensor:
        """Positions in each type's topology of the edges of sample() with the same arguments:
        [e] int64. Samples the batch again."""
        result = self._sample(seeds, name, times, excluded, edge_ids=True)
        return native.as_tensor(result.edge_ids, torch.int64, result.num_edges)

    def _sample(
        self,
        seeds: Seeds,
        name: BatchName,
        times: Seeds | None,
        excluded: ExcludedPairs | None,
        *,
        edge_ids: bool,
    ) -> native.TypedSubgraph:
        types = self.graph.space.types
        by_type = seeds if isinstance(seeds, Mapping) else {self.input_type: seeds}
        times_of = times if isinstance(times, Mapping) else {self.input_type: times}
        given = []
        for each, ids in by_type.items():
            own = times_of.get(each)
            given.append((types.index(each), as_int64(ids), None if own is None else as_int64(own)))
        pairs = [(excluded or {}).get(each, _NO_PAIRS) for each in self.edge_types]
        return self._native.sample(given, name, edge_ids, pairs if excluded else [])
