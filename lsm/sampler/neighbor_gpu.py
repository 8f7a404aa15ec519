"""Neighbour sampling on a GPU, with the batches of lsm.sampler.neighbor."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from lsm import native
from lsm.core.device import current, memory_errors
from lsm.core.ids import as_int64
from lsm.core.units import format_bytes
from lsm.graph.topology import Topology
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import SampledGraph, checked_num_neighbors
from lsm.sampler.options import Sampling

PLACEMENTS = ("auto", "host", "uva", "device")

TOPOLOGY_SHARE = 0.5
"""Largest share of the GPU's free memory that ``auto`` gives to the topology."""


def choose_placement(placement: str, device: torch.device, num_bytes: int, free_bytes: int) -> str:
    """The place of the topology: host (host threads sample), uva (page-locked host memory that the
    GPU reads) or device. auto: device if ``num_bytes`` are at most TOPOLOGY_SHARE of
    ``free_bytes``, else uva; host where the host trains. Raises ValueError for a place that is
    unknown or impossible."""
    if placement not in PLACEMENTS:
        raise ValueError(
            f"topology.placement: expected one of {', '.join(PLACEMENTS)}, got {placement!r}"
        )
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
    """``topology`` in memory that the GPU reads. Raises RuntimeError if it cannot be
    page-locked."""
    if placement == "device":
        with memory_errors("for the topology"):
            return Topology(topology.indptr.to(device), topology.indices.to(device))
    try:
        return Topology(_locked(topology.indptr, device), _locked(topology.indices, device))
    except RuntimeError as error:
        first = str(error).strip().partition("\n")[0]
        raise RuntimeError(
            f"could not page-lock {format_bytes(topology.num_bytes)} for the topology "
            f"({first}); set topology.placement=host, or raise `ulimit -l`"
        ) from error


def _locked(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy in page-locked memory of its size; torch's would have the next power of two."""
    block = native.LockedBlock(tensor.nbytes, device.index or 0)
    return native.as_tensor(block, tensor.dtype).view(tensor.shape).copy_(tensor)


class DeviceNeighborSampler:
    """A NeighborSampler on a GPU, with the same batches.

    topology: on the host; placed: the same in memory that the GPU reads (place_topology). device:
    the GPU's number, or native.TWIN or native.TWIN_BACKWARDS for a host loop over the GPU's code.
    output: device of the sampled graphs. Thread-safe: up to num_slots batches are sampled at a
    time, each with memory and a stream of its own, because one batch is a chain of small kernels
    that leave most of a GPU idle.
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
        self._output = torch.device(output)
        # Batches go to a GPU next, and its copy engine reads page-locked memory directly.
        self._is_pinned = self._output.type == "cpu" and device >= 0
        kind = Sampling.of(sampling).chosen
        self._has_weights = kind.needs_weights
        self._slot_arguments = (
            *(topology.indptr, placed.indptr, placed.indices),
            *(self.num_neighbors, kind.native(), device, timeout_secs),
        )
        self._slots: queue.LifoQueue[native.GpuSampler | None] = queue.LifoQueue()
        for _ in range(num_slots - 1):
            self._slots.put(None)  # created on first use
        self._slots.put(self._new_slot())

    def sample(self, seeds: torch.Tensor, name: BatchName) -> SampledGraph:
        """As NeighborSampler.sample(), with complete tensors on ``output``."""
        with self._slot() as slot:
            sizes = slot.sample(as_int64(seeds), name, False)
            n_id = self._empty(sizes.num_nodes)
            edge_index = self._empty(2, sizes.num_edges)
            indptr = self._empty(sizes.num_expanded + 1)
            edge_weight = None
            if self._has_weights:
                edge_weight = self._empty(sizes.num_edges, dtype=torch.float32)
            with current(self._output):
                slot.copy_to(n_id, edge_index, indptr, edge_weight)
        return SampledGraph(
            n_id=n_id,
            edge_index=edge_index,
            indptr=indptr,
            num_sampled_nodes=sizes.num_sampled_nodes,
            num_sampled_edges=sizes.num_sampled_edges,
            edge_weight=edge_weight,
        )

    def edge_ids(self, seeds: torch.Tensor, name: BatchName) -> torch.Tensor:
        """As NeighborSampler.edge_ids(), on ``output``."""
        with self._slot() as slot:
            sizes = slot.sample(as_int64(seeds), name, True)
            edge_ids = self._empty(sizes.num_edges)
            with current(self._output):
                slot.copy_edge_ids(edge_ids)
        return edge_ids

    @contextmanager
    def _slot(self) -> Iterator[native.GpuSampler]:
        """A sampler for this thread alone. Blocks until one is free."""
        slot = self._slots.get()
        try:
            slot = slot or self._new_slot()
            yield slot
        finally:
            self._slots.put(slot)

    def _new_slot(self) -> native.GpuSampler:
        placed = self._slot_arguments[1]
        with current(placed.device):
            return native.GpuSampler(*self._slot_arguments)

    def _empty(self, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=dtype, device=self._output, pin_memory=self._is_pinned)
        if tensor.is_cuda:
            # The native sampler writes in a stream of its own, and torch may hand out memory that
            # this stream still uses.
            torch.cuda.current_stream(tensor.device).synchronize()
        return tensor
