"""Native samplers on a GPU, each for a thread at a time."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from lsm import native
from lsm.core.device import current, used_here
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import SampledGraph

Seeds = tuple[int, torch.Tensor, torch.Tensor | None]
"""The number of their type, ids [b] int64, and times [b] int64 where edges have some."""


class GpuSlots:
    """Up to ``num_slots`` samplers of a ``graph``.

    One batch is a chain of small kernels that leave most of a GPU idle, so several are sampled at a
    time, each with memory and a stream of its own. Native calls hold no GIL while they sample, copy
    and wait, so Python threads serve as lanes. memory: the device with the arrays of ``graph``.
    device: that of native.GpuSampler; output: of the sampled graphs. has_weights: True if edges get
    weights; disjoint: if each seed has a subgraph. Thread-safe.
    """

    def __init__(
        self,
        graph: native.GpuGraph,
        memory: torch.device,
        device: int,
        timeout_secs: float,
        num_slots: int,
        output: torch.device | str,
        *,
        has_weights: bool = False,
        disjoint: bool = False,
    ) -> None:
        self._graph, self._memory = graph, memory
        self._device, self._timeout_secs = device, timeout_secs
        self._output = torch.device(output)
        # Batches go to a GPU next, and its copy engine reads page-locked memory directly.
        self._is_pinned = self._output.type == "cpu" and device >= 0
        self._has_weights = has_weights
        self._disjoint = disjoint
        self._slots: queue.LifoQueue[native.GpuSampler | None] = queue.LifoQueue()
        for _ in range(num_slots - 1):
            self._slots.put(None)  # created on first use
        self._slots.put(self._new_slot())

    def sample(self, seeds: Seeds, name: BatchName) -> tuple[SampledGraph, native.SampleSizes]:
        """A batch, without its types, and its sizes by type. Tensors are complete."""
        with self._slot() as slot:
            sizes = slot.sample(seeds, name, False)
            edge_weight = batch = None
            with self._allocating_for(slot):
                n_id = self._empty(sizes.num_nodes)
                edge_index = self._empty(2, sizes.num_edges)
                indptr = self._empty(sizes.num_bounds)
                if self._has_weights:
                    edge_weight = self._empty(sizes.num_edges, dtype=torch.float32)
                if self._disjoint:
                    batch = self._empty(sizes.num_nodes)
            with current(self._output):
                slot.copy_to(n_id, edge_index, indptr, edge_weight, batch)
        for each in (n_id, edge_index, indptr, edge_weight, batch):
            if each is not None:
                used_here(each)
        sampled = SampledGraph(
            n_id=n_id,
            edge_index=edge_index,
            indptr=indptr,
            num_sampled_nodes=[sum(hop) for hop in zip(*sizes.num_sampled_nodes, strict=True)],
            num_sampled_edges=[sum(hop) for hop in zip(*sizes.num_sampled_edges, strict=True)],
            edge_weight=edge_weight,
            batch=batch,
        )
        return sampled, sizes

    def edge_ids(self, seeds: Seeds, name: BatchName) -> torch.Tensor:
        """Positions in each type's topology of the edges of sample()."""
        with self._slot() as slot:
            sizes = slot.sample(seeds, name, True)
            with self._allocating_for(slot):
                edge_ids = self._empty(sizes.num_edges)
            with current(self._output):
                slot.copy_edge_ids(edge_ids)
        return used_here(edge_ids)

    def _new_slot(self) -> native.GpuSampler:
        with current(self._memory):
            return native.GpuSampler(self._graph, self._device, self._timeout_secs)

    @contextmanager
    def _slot(self) -> Iterator[native.GpuSampler]:
        """A sampler for this thread alone. Blocks until one is free."""
        slot = self._slots.get()
        try:
            slot = slot or self._new_slot()
            yield slot
        finally:
            self._slots.put(slot)

    def _allocating_for(self, slot: native.GpuSampler) -> AbstractContextManager[None]:
        """A context whose tensors on a GPU belong to the stream of ``slot``, which writes them
        first: memory that torch hands out there is in use by no other stream, so the slot need not
        wait. Does nothing for the host."""
        if self._output.type == "cpu":
            return nullcontext()
        return torch.cuda.stream(torch.cuda.ExternalStream(slot.stream, device=self._output))

    def _empty(self, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=self._output, pin_memory=self._is_pinned)
