"""Neighbour sampling on a GPU, with the batches of the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeVar

import torch
from torch import Tensor

from lsm import native
from lsm.core.device import locking, memory_errors
from lsm.core.ids import as_int64
from lsm.core.stream_pool import allocated
from lsm.core.units import format_bytes
from lsm.graph.topology import Topology
from lsm.graph.types import NODE
from lsm.sampler.gpu_slots import GpuSlots, Seeds
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import SampledGraph
from lsm.sampler.options import Sampling
from lsm.sampler.typed import SampledTypes
from lsm.sampler.typed_neighbor import NumNeighbors, TypedTopology, num_neighbors_by_type

Key = TypeVar("Key")

TOPOLOGY_SHARE = 0.5
"""Largest share of the GPU's free memory that ``auto`` gives to the topology."""


def choose_placement(placement: str, device: torch.device, num_bytes: int, free_bytes: int) -> str:
    """The place of the topology: host (host threads sample), uva (page-locked host memory that the
    GPU reads) or device. auto: device if ``num_bytes`` are at most TOPOLOGY_SHARE of
    ``free_bytes``, else uva; host where the host trains. Raises ValueError for a place that is
    impossible."""
    if device.type == "cpu":
        if placement in ("uva", "device"):
            raise ValueError(
                f"topology.placement: {placement} needs a GPU that trains; set it to host or auto"
            )
        return "host"
    if placement == "device" and num_bytes > free_bytes:
        raise ValueError(
            f"topology.placement: device needs {format_bytes(num_bytes)}, and "
            f"{format_bytes(free_bytes)} of GPU memory are free; set it to uva"
        )
    if placement == "auto":
        return "device" if num_bytes <= TOPOLOGY_SHARE * free_bytes else "uva"
    return placement


def place_topology(
    graph: Topology | TypedTopology, placement: str, device: torch.device
) -> TypedTopology:
    """``graph`` in memory that the GPU reads. Raises RuntimeError if it cannot be page-locked."""
    graph = TypedTopology.of(graph)

    def placed(array: Tensor) -> Tensor:
        if placement == "device":
            with memory_errors("for the topology"):
                return allocated(lambda: array.to(device))
        with locking(array.nbytes, "set topology.placement=host"):
            return _locked(array, device)

    def values(given: Mapping[Key, Tensor] | None) -> dict[Key, Tensor]:
        return {each: placed(own) for each, own in (given or {}).items()}

    return TypedTopology(
        graph.space,
        graph.topologies.apply(lambda own: Topology(placed(own.indptr), placed(own.indices))),
        weights=values(graph.weights),
        times=values(graph.times),
        node_times=values(graph.node_times),
    )


def _locked(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy in page-locked memory of its size; torch's would have the next power of two."""
    block = native.LockedBlock(tensor.nbytes, device.index or 0)
    locked = native.as_tensor(block, tensor.dtype, tensor.numel())
    return locked.view(tensor.shape).copy_(tensor)


class DeviceNeighborSampler:
    """A NeighborSampler, or of a TypedTopology a TypedNeighborSampler, on a GPU, with the same
    batches.

    graph: on the host; placed: the same in memory that the GPU reads (place_topology). device:
    the GPU's number, or native.TWIN or native.TWIN_BACKWARDS for a host loop over the GPU's code.
    output: device of the sampled graphs. The other arguments are those of TypedNeighborSampler.
    Thread-safe: up to num_slots batches are sampled at a time. Raises ValueError as
    TypedNeighborSampler does.
    """

    def __init__(
        self,
        graph: Topology | TypedTopology,
        placed: Topology | TypedTopology,
        num_neighbors: NumNeighbors,
        *,
        input_type: str = NODE,
        sampling: str | Sampling = "neighbor",
        disjoint: bool = False,
        temporal_strategy: Literal["uniform", "last"] = "uniform",
        device: int,
        output: torch.device | str = "cpu",
        timeout_secs: float = 60.0,
        num_slots: int = 1,
    ) -> None:
        self.graph, placed = TypedTopology.of(graph), TypedTopology.of(placed)
        self.input_type, self.edge_types = input_type, self.graph.edge_types
        self._input_number = self.graph.space.types.index(input_type)
        self.num_neighbors = num_neighbors_by_type(num_neighbors, self.edge_types)
        kind = Sampling.of(sampling).chosen
        native_graph = native.GpuGraph(
            list(self.graph.space.counts.values()),
            self.graph.native_edges(self.num_neighbors),
            placed.native_edges(self.num_neighbors),
            kind.native(),
            disjoint,
            temporal_strategy == "last",
            self.graph.native_node_times(),
            placed.native_node_times(),
        )
        memory = next(iter(placed.topologies.values())).indptr.device
        self._slots = GpuSlots(
            *(native_graph, memory, device, timeout_secs, num_slots, output),
            has_weights=kind.needs_weights,
            disjoint=disjoint,
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
