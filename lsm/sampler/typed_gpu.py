"""Sampling of graphs with types on a GPU, with the batches of lsm.sampler.typed_neighbor."""

from __future__ import annotations

from dataclasses import replace

import torch

from lsm import native
from lsm.core.device import current
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType, TypedMap
from lsm.sampler.gpu_slots import GpuSlots
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import SampledGraph
from lsm.sampler.neighbor_gpu import place_topology
from lsm.sampler.options import Sampling
from lsm.sampler.typed import SampledTypes
from lsm.sampler.typed_neighbor import NumNeighbors, TypedTopology, num_neighbors_by_type


def place_types(
    graph: TypedTopology, placement: str, device: torch.device
) -> TypedMap[EdgeType, Topology]:
    """The topology of each edge type in memory that the GPU reads; see place_topology()."""
    return TypedMap(
        {each: place_topology(own, placement, device) for each, own in graph.topologies.items()}
    )


class DeviceTypedNeighborSampler:
    """A TypedNeighborSampler on a GPU, with the same batches.

    graph: on the host; placed: its topologies in memory that the GPU reads (place_types). The other
    arguments are those of DeviceNeighborSampler. Raises ValueError for weights and times, which
    only the host takes, as it does subgraphs of each seed.
    """

    def __init__(
        self,
        graph: TypedTopology,
        placed: TypedMap[EdgeType, Topology],
        num_neighbors: NumNeighbors,
        *,
        input_type: str,
        sampling: str | Sampling = "neighbor",
        device: int,
        output: torch.device | str = "cpu",
        timeout_secs: float = 60.0,
        num_slots: int = 1,
    ) -> None:
        for name, given in (
            ("weight_attr", graph.weights),
            ("time_attr", graph.times or graph.node_times),
        ):
            if given:
                raise ValueError(f"{name}: only the host samples with it")
        self.graph = graph
        self.input_type = input_type
        self.edge_types = graph.edge_types
        self.num_neighbors = num_neighbors_by_type(num_neighbors, self.edge_types)
        kind = Sampling.of(sampling).chosen
        types = graph.space.types
        edges = [
            native.GpuEdges(
                *(topology.indptr, placed[each].indptr, placed[each].indices),
                *(types.index(each[0]), types.index(each[2]), self.num_neighbors[each]),
            )
            for each, topology in graph.topologies.items()
        ]
        num_nodes, seed_type = list(graph.space.counts.values()), types.index(input_type)
        memory = next(iter(placed.values())).indptr.device

        def new_slot() -> native.GpuSampler:
            with current(memory):
                return native.GpuSampler(
                    num_nodes, edges, seed_type, kind.native(), device, timeout_secs
                )

        self._slots = GpuSlots(
            *(new_slot, num_slots, output), reads_locked=device >= 0, has_weights=False
        )

    def sample(self, seeds: torch.Tensor, name: BatchName) -> SampledGraph:
        """As TypedNeighborSampler.sample(), with complete tensors on ``output``."""
        sampled, sizes = self._slots.sample(seeds, name)
        types = SampledTypes.of(
            *(self.graph.space, self.edge_types, self.input_type),
            *(sizes.num_sampled_nodes, sizes.num_sampled_edges),
        )
        return replace(sampled, types=types)

    def edge_ids(self, seeds: torch.Tensor, name: BatchName) -> torch.Tensor:
        """As TypedNeighborSampler.edge_ids(), on ``output``."""
        return self._slots.edge_ids(seeds, name)
