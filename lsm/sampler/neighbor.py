"""Neighbour sampling: draws the nodes and edges of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Protocol

import torch
from torch import Tensor

from lsm import native
from lsm.core.device import HOST, copies_to, empty_locked, memory_errors, page_locked
from lsm.core.ids import as_int64
from lsm.graph.topology import Topology
from lsm.sampler.name import BatchName
from lsm.sampler.options import Sampling
from lsm.sampler.typed import SampledTypes

MAX_NEIGHBORS = 2**29
"""Most neighbours drawn per node and hop, unless all are taken."""


class Sampler(Protocol):
    """Draws the subgraphs of batches; see NeighborSampler for arguments and results."""

    def sample(self, seeds: Tensor, name: BatchName) -> SampledGraph:
        """The subgraph of ``seeds`` [b] int64."""

    def edge_ids(self, seeds: Tensor, name: BatchName) -> Tensor:
        """Positions of the subgraph's edges in the topology: [e] int64."""


@dataclass(frozen=True)
class SampledGraph:
    """A sampled subgraph with local indices; the fields of a PyG batch, in PyG's order.

    ``n_id`` [n] int64: global ids, seeds first, then each hop's new nodes as first seen.
    ``edge_index`` [2, e] int64: local (source, destination), grouped by hop, and within a hop by
    destination in the order of ``n_id``. ``indptr`` [num_expanded + 1] int64: the edges into node i
    are ``edge_index[:, indptr[i]:indptr[i + 1]]``; every node but the last hop's new ones is
    expanded, once. ``num_sampled_nodes``: seeds, then new nodes per hop; ``num_sampled_edges``:
    edges per hop. ``edge_weight`` [e] float32, of ladies only: a row-normalised adjacency, or with
    debias an estimate of one.

    ``batch`` [n] int64: the subgraph of each node, if each seed has one.

    In a graph of several ``types``, tensors hold all types, one after another, and the numbers per
    hop are sums; see SampledTypes.
    """

    n_id: torch.Tensor
    edge_index: torch.Tensor
    indptr: torch.Tensor
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]
    edge_weight: torch.Tensor | None = None
    batch: torch.Tensor | None = None
    types: SampledTypes | None = None

    @property
    def ids(self) -> Tensor:
        """``n_id``: the nodes whose rows a batch takes."""
        return self.n_id

    @property
    def repeats(self) -> bool:
        """True if a node may be in several subgraphs."""
        return self.batch is not None

    @property
    def is_packed(self) -> bool:
        """True if ``edge_index`` holds sources alone."""
        return self.edge_index.size(0) == 1

    @property
    def num_bytes(self) -> int:
        """Memory that the tensors take."""
        others = sum(each.nbytes for each in (self.edge_weight, self.batch) if each is not None)
        return self.n_id.nbytes + self.edge_index.nbytes + self.indptr.nbytes + others

    def pack(self) -> SampledGraph:
        """A copy in less memory, for the time that it waits in the window.

        ``edge_index`` is [1, e] int32: sources, which are below 2^30. ``indptr`` gives the
        destinations. A graph of [15, 10, 5] neighbours takes half. The memory is its own. A packed
        graph is returned as it is.
        """
        if self.is_packed:
            return self
        packed = torch.empty((1, self.edge_index.size(1)), dtype=torch.int32)
        native.pack_sources(self.edge_index.select(0, 0), packed)
        return SampledGraph(
            _copy(self.n_id),
            packed,
            _copy(self.indptr),
            self.num_sampled_nodes,
            self.num_sampled_edges,
            None if self.edge_weight is None else _copy(self.edge_weight),
            None if self.batch is None else _copy(self.batch),
            self.types,
        )

    def unpack(self, device: torch.device = HOST) -> SampledGraph:
        """The graph with both rows of ``edge_index``, in new memory; itself if it is not packed.
        device: a GPU gets a copy of the edges, which has arrived; ``n_id`` and ``batch`` go to
        page-locked memory, since the host makes more of them."""
        graph = self._unpacked(device) if self.is_packed else self
        if device.type == "cpu":
            return graph
        with memory_errors("for the graph of a batch"), copies_to(device) as copy:
            return replace(
                graph,
                n_id=page_locked(graph.n_id),
                edge_index=copy(graph.edge_index),
                indptr=copy(graph.indptr),
                edge_weight=None if graph.edge_weight is None else copy(graph.edge_weight),
                batch=None if graph.batch is None else page_locked(graph.batch),
            )

    def _unpacked(self, device: torch.device) -> SampledGraph:
        """The graph on the host; its edges, if they go to a GPU, in page-locked memory."""
        shape, dtype = (2, self.edge_index.size(1)), torch.int64
        if device.type == "cpu":
            edges = torch.empty(shape, dtype=dtype)
        else:
            edges = empty_locked(shape, dtype, "make loader.prefetch smaller")
        if self.types is None:
            native.unpack_edges(self.edge_index, self.indptr, *edges.unbind())
        else:
            packed, unpacked = self.types.edges(self.edge_index), self.types.edges(edges)
            for each, indptr in self.types.indptrs(self.indptr).items():
                native.unpack_edges(packed[each], indptr, *unpacked[each].unbind())
        return replace(self, edge_index=edges)


def _copy(values: Tensor) -> Tensor:
    """A copy by NumPy, on this thread; torch would start OpenMP threads for each sampler."""
    return torch.from_numpy(values.numpy().copy())


def checked_num_neighbors(num_neighbors: Any) -> list[int]:
    """``num_neighbors`` as a list. Raises ValueError unless all are valid numbers of neighbours."""
    if not isinstance(num_neighbors, Iterable):
        raise ValueError(f"num_neighbors: expected a number for each hop, got {num_neighbors!r}")
    for number in num_neighbors:
        if not isinstance(number, Integral) or not -1 <= int(number) <= MAX_NEIGHBORS:
            raise ValueError(
                f"num_neighbors: expected -1 (all) or 0 to 2^29 per hop, got {number!r}"
            )
    return [int(number) for number in num_neighbors]


class NeighborSampler:
    """Draws up to ``num_neighbors[h]`` in-neighbours per node at hop h, without replacement.

    -1 takes all neighbours. ``sampling``: the method of drawing; with neighbor and labor, all
    neighbours of a node are equally likely. ``topology`` is used in place, also when it is
    memory-mapped. ``num_threads`` threads share the drawing of one batch; for throughput, call
    :meth:`sample` from several Python threads instead. Raises ValueError if ``indptr`` is not that
    of a graph.
    """

    def __init__(
        self,
        topology: Topology,
        num_neighbors: Sequence[int],
        num_threads: int = 1,
        *,
        sampling: str | Sampling = "neighbor",
    ) -> None:
        self.num_neighbors = checked_num_neighbors(num_neighbors)
        self._native = native.NeighborSampler(
            topology.indptr,
            topology.indices,
            self.num_neighbors,
            num_threads,
            Sampling.of(sampling).chosen.native(),
        )

    def sample(self, seeds: torch.Tensor, name: BatchName) -> SampledGraph:
        """The subgraph of ``seeds`` [b] int64 or of a smaller integer type, distinct: a function
        of the arguments and the graph, whatever the number of threads.

        Thread-safe; releases the GIL. The tensors share memory that returns to the sampler after
        the last of them is freed. Raises ValueError if seeds are repeated or out of range, or if
        the topology names a node that does not exist.
        """
        result = self._native.sample(as_int64(seeds), name, False)
        num_edges, weights = result.num_edges, result.weights
        edges = native.as_tensor(result.edges, torch.int64, 2 * num_edges)
        return SampledGraph(
            n_id=native.as_tensor(result.n_id, torch.int64, result.num_nodes),
            edge_index=edges.view(2, num_edges),
            indptr=native.as_tensor(result.indptr, torch.int64, result.num_expanded + 1),
            num_sampled_nodes=result.num_sampled_nodes,
            num_sampled_edges=result.num_sampled_edges,
            edge_weight=None
            if weights is None
            else native.as_tensor(weights, torch.float32, num_edges),
        )

    def edge_ids(self, seeds: torch.Tensor, name: BatchName) -> torch.Tensor:
        """Positions in the topology of the edges of sample() with the same arguments: [e] int64.

        The source of edge i is ``indices[edge_ids[i]]``. Samples the batch again, since a sample is
        a function of its arguments: edge ids that nobody requests take neither time nor memory.
        Thread-safe; raises as sample() does.
        """
        result = self._native.sample(as_int64(seeds), name, True)
        return native.as_tensor(result.edge_ids, torch.int64, result.num_edges)
