"""Neighbour sampling on a GPU, with the batches of lsm.sampler.neighbor."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lsm import native
from lsm.core.device import locking, memory_errors
from lsm.core.ids import as_int64
from lsm.core.stream_pool import allocated
from lsm.core.units import format_bytes
from lsm.graph.topology import Topology
from lsm.sampler.gpu_slots import GpuSlots
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import SampledGraph, checked_num_neighbors
from lsm.sampler.options import Sampling

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


def place_topology(topology: Topology, placement: str, device: torch.device) -> Topology:
    """``topology`` in memory that the GPU reads; see place_array()."""
    return Topology(
        *(place_array(each, placement, device) for each in (topology.indptr, topology.indices))
    )


def place_array(array: torch.Tensor, placement: str, device: torch.device) -> torch.Tensor:
    """``array`` of a topology in memory that the GPU reads. Raises RuntimeError if it cannot be
    page-locked."""
    if placement == "device":
        with memory_errors("for the topology"):
            return allocated(lambda: array.to(device))
    with locking(array.nbytes, "set topology.placement=host"):
        return _locked(array, device)


def _locked(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy in page-locked memory of its size; torch's would have the next power of two."""
    block = native.LockedBlock(tensor.nbytes, device.index or 0)
    locked = native.as_tensor(block, tensor.dtype, tensor.numel())
    return locked.view(tensor.shape).copy_(tensor)


class DeviceNeighborSampler:
    """A NeighborSampler on a GPU, with the same batches.

    topology: on the host; placed: the same in memory that the GPU reads (place_topology). device:
    the GPU's number, or native.TWIN or native.TWIN_BACKWARDS for a host loop over the GPU's code.
    output: device of the sampled graphs. Thread-safe: up to num_slots batches are sampled at a
    time.
    """

    def __init__(
        self,
        topology: Topology,
        placed: Topology,
        num_neighbors: Sequence[int],
        *,
        sampling: str | Sampling = "neighbor",
        device: int,
        output: torch.device | str = "cpu",
        timeout_secs: float = 60.0,
        num_slots: int = 1,
    ) -> None:
        self.num_neighbors = checked_num_neighbors(num_neighbors)
        kind = Sampling.of(sampling).chosen
        edges, copies = (
            [native.TypedEdges(own.indptr, own.indices, 0, 0, self.num_neighbors)]
            for own in (topology, placed)
        )
        num_nodes = [len(topology.indptr) - 1]
        graph = native.GpuGraph(num_nodes, edges, copies, kind.native())
        self._slots = GpuSlots(
            *(graph, placed.indptr.device, device, timeout_secs, num_slots, output),
            has_weights=kind.needs_weights,
        )

    def sample(self, seeds: torch.Tensor, name: BatchName) -> SampledGraph:
        """As NeighborSampler.sample(), with complete tensors on ``output``."""
        return self._slots.sample((0, as_int64(seeds), None), name)[0]

    def edge_ids(self, seeds: torch.Tensor, name: BatchName) -> torch.Tensor:
        """As NeighborSampler.edge_ids(), on ``output``."""
        return self._slots.edge_ids((0, as_int64(seeds), None), name)
