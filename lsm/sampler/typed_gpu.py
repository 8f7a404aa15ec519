"""Sampling of graphs with types on a GPU, with the batches of lsm.sampler.typed_neighbor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeVar

import torch
from torch import Tensor

from lsm import native
from lsm.core.ids import as_int64
from lsm.graph.types import TypedMap
from lsm.sampler.gpu_slots import GpuSlots, Seeds
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import SampledGraph
from lsm.sampler.neighbor_gpu import place_array, place_topology
from lsm.sampler.options import Sampling
from lsm.sampler.typed import SampledTypes
from lsm.sampler.typed_neighbor import NumNeighbors, TypedTopology, num_neighbors_by_type

Key = TypeVar("Key")


def place_types(graph: TypedTopology, placement: str, device: torch.device) -> TypedTopology:
    """``graph`` in memory that the GPU reads; see place_array()."""

    def placed(values: Mapping[Key, Tensor] | None) -> dict[Key, Tensor]:
        return {each: place_array(own, placement, device) for each, own in (values or {}).items()}

    topologies = {
        each: place_topology(own, placement, device) for each, own in graph.topologies.items()
    }
    return TypedTopology(
        graph.space,
        TypedMap(topologies),
        weights=placed(graph.weights),
        times=placed(graph.times),
        node_times=placed(graph.node_times),
    )


class DeviceTypedNeighborSampler:
    """A TypedNeighborSampler on a GPU, with the same batches.

    graph: on the host; placed: the same in memory that the GPU reads (place_types). disjoint,
    temporal_strategy: as TypedNeighborSampler's. The other arguments are those of
    DeviceNeighborSampler. Raises ValueError as TypedNeighborSampler does.
    """

    def __init__(
        self,
        graph: TypedTopology,
        placed: TypedTopology,
        num_neighbors: NumNeighbors,
        *,
        input_type: str,
        sampling: str | Sampling = "neighbor",
        disjoint: bool = False,
        temporal_strategy: Literal["uniform", "last"] = "uniform",
        device: int,
        output: torch.device | str = "cpu",
        timeout_secs: float = 60.0,
        num_slots: int = 1,
    ) -> None:
        self.graph = graph
        self.input_type = input_type
        self._input_number = graph.space.types.index(input_type)
        self.edge_types = graph.edge_types
        self.num_neighbors = num_neighbors_by_type(num_neighbors, self.edge_types)
        native_graph = native.GpuGraph(
            list(graph.space.counts.values()),
            graph.native_edges(self.num_neighbors),
            placed.native_edges(self.num_neighbors),
            Sampling.of(sampling).chosen.native(),
            disjoint,
            temporal_strategy == "last",
            graph.native_node_times(),
            placed.native_node_times(),
        )
        memory = next(iter(placed.topologies.values())).indptr.device
        self._slots = GpuSlots(
            *(native_graph, memory, device, timeout_secs, num_slots, output), disjoint=disjoint
        )

    def sample(self, seeds: Tensor, name: BatchName, times: Tensor | None = None) -> SampledGraph:
        """As TypedNeighborSampler.sample(), with complete tensors on ``output``."""
        sampled, sizes = self._slots.sample(self._typed(seeds, times), name)
        types = SampledTypes.of(
            *(self.graph.space, self.edge_types, self.input_type),
            *(sizes.num_sampled_nodes, sizes.num_sampled_edges),
        )
        return replace(sampled, types=types)

    def edge_ids(self, seeds: Tensor, name: BatchName, times: Tensor | None = None) -> Tensor:
        """As TypedNeighborSampler.edge_ids(), on ``output``."""
        return self._slots.edge_ids(self._typed(seeds, times), name)

    def _typed(self, seeds: Tensor, times: Tensor | None) -> Seeds:
        return self._input_number, as_int64(seeds), None if times is None else as_int64(times)
