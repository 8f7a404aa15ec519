"""One training batch: sampled graph, features, labels, and views for GNN layers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from lsm.loader.dgl import import_dgl
from lsm.sampler.neighbor import SampledGraph

if TYPE_CHECKING:
    from dgl import DGLBlock


# Layer.adj uses only the product of sparse CSR, which PyTorch has long had.
warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")


@dataclass(frozen=True)
class Layer:
    """The bipartite graph that one GNN layer aggregates over.

    Sources are the first ``num_src`` nodes of the batch, destinations the first ``num_dst`` of
    those. ``edge_index`` [2, e] int64 is grouped by destination, and ``indptr`` [num_dst + 1]
    int64 bounds the groups. Both are views of the batch.
    """

    indptr: torch.Tensor
    edge_index: torch.Tensor
    num_src: int
    num_dst: int
    edge_weight: torch.Tensor | None = None
    """[e] float32; None: all edges of a node have the same weight."""

    def __repr__(self) -> str:
        return _shapes(self)

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
class Batch:
    """One mini-batch: the fields of PyG's, and its place in training.

    Attributes:
        x: [n, dim] features of ``n_id`` in the store's dtype; None if not fetched.
        y: [batch_size] int64 labels of the seeds; None without labels.
        n_id: [n] int64 global ids, seeds first, then each hop's new nodes as first seen.
        e_id: [e] int64, for each edge its index into the store's CSC; computed on first use.
        edge_index: [2, e] int64 local (source, destination), grouped by hop; see SampledGraph.
        indptr: [num_expanded + 1] int64; the edges into node i are ``indptr[i]`` to
            ``indptr[i + 1]``.
        batch_size: Number of seeds.
        num_sampled_nodes: Seeds, then new nodes per hop.
        num_sampled_edges: Edges per hop.
        edge_weight: [e] float32; None without weights.
        input_id: [batch_size] int64 positions of the seeds in the loader's ``input_nodes``.
        epoch: Epoch, from 0.
        iteration: Iteration of the epoch, from 0.
        stats: Counters of lsm.core.counters and seconds per span of making the batch.
        find_edges: Returns ``e_id``; None for a batch that was not sampled from a store.
    """

    x: torch.Tensor | None
    y: torch.Tensor | None
    n_id: torch.Tensor
    edge_index: torch.Tensor
    indptr: torch.Tensor
    batch_size: int
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]
    edge_weight: torch.Tensor | None = None
    input_id: torch.Tensor | None = None
    epoch: int = 0
    iteration: int = 0
    stats: dict[str, float] = field(default_factory=dict, compare=False)
    find_edges: Callable[[], torch.Tensor] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_sampled(
        cls,
        sampled: SampledGraph,
        *,
        x: torch.Tensor | None = None,
        y: torch.Tensor | None = None,
        input_id: torch.Tensor | None = None,
        find_edges: Callable[[], torch.Tensor] | None = None,
        epoch: int = 0,
        iteration: int = 0,
        stats: dict[str, float] | None = None,
    ) -> Batch:
        """Makes the batch of a sampled graph. The other arguments are the fields of their names.

        Args:
            sampled: The sampled graph.

        Returns:
            The batch, with the tensors of ``sampled``.
        """
        return cls(
            x=x,
            y=y,
            n_id=sampled.n_id,
            edge_index=sampled.edge_index,
            indptr=sampled.indptr,
            batch_size=sampled.num_sampled_nodes[0],
            num_sampled_nodes=sampled.num_sampled_nodes,
            num_sampled_edges=sampled.num_sampled_edges,
            edge_weight=sampled.edge_weight,
            input_id=input_id,
            epoch=epoch,
            iteration=iteration,
            stats=stats or {},
            find_edges=find_edges,
        )

    def __repr__(self) -> str:
        return _shapes(self)

    @property
    def num_nodes(self) -> int:
        """Nodes of the batch, seeds included."""
        return self.n_id.numel()

    @property
    def num_edges(self) -> int:
        """Edges of the batch."""
        return self.edge_index.size(1)

    @cached_property
    def e_id(self) -> torch.Tensor | None:
        """For each edge its index into the store's CSC (``store.topology().indices``): [e] int64.

        It lies on the device of ``n_id``. None if the batch was not sampled from a store.

        Computed on first use by sampling the batch again. Blocks for as long as sampling took.
        """
        return None if self.find_edges is None else self.find_edges().to(self.n_id.device)

    def layers(self) -> list[Layer]:
        """Returns the bipartite graphs of a GNN with as many layers as hops.

        Layer l computes the nodes within L - 1 - l hops of the seeds from those within L - l hops;
        the last one computes the seeds. So a layer's output is the next one's input, row by row.

        Returns:
            A Layer per layer, the outermost hop's first. All are views of the batch.
        """
        num_hops = len(self.num_sampled_edges)
        return [self._layer(num_hops - 1 - layer) for layer in range(num_hops)]

    def _layer(self, last_hop: int) -> Layer:
        """The edges of hops 0 .. last_hop."""
        num_dst = sum(self.num_sampled_nodes[: last_hop + 1])
        num_edges = sum(self.num_sampled_edges[: last_hop + 1])
        return Layer(
            indptr=self.indptr[: num_dst + 1],
            edge_index=self.edge_index[:, :num_edges],
            num_src=num_dst + self.num_sampled_nodes[last_hop + 1],
            num_dst=num_dst,
            edge_weight=None if self.edge_weight is None else self.edge_weight[:num_edges],
        )

    def to_dgl(self) -> list[DGLBlock]:
        """Returns the layers as DGL blocks.

        Returns:
            A block per layer, the outermost hop's first, with global ids as ``dgl.NID`` and weights
            of edges, if any, as ``edge_weight``.

        Raises:
            RuntimeError: dgl is not installed.
        """
        dgl = import_dgl()
        blocks = []
        for layer in self.layers():
            block = dgl.create_block(
                ("csc", (layer.indptr, layer.edge_index[0], [])),
                num_src_nodes=layer.num_src,
                num_dst_nodes=layer.num_dst,
                device=self.n_id.device,
            )
            if layer.edge_weight is not None:
                block.edata["edge_weight"] = layer.edge_weight
            block.srcdata[dgl.NID] = self.n_id[: layer.num_src]
            block.dstdata[dgl.NID] = self.n_id[: layer.num_dst]
            blocks.append(block)
        return blocks

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Copies the tensors to a device.

        Args:
            device: The device.
            non_blocking: As in ``torch.Tensor.to()``.

        Returns:
            This batch with its tensors on ``device``.
        """
        moved: dict[str, Any] = {
            f.name: value.to(device, non_blocking=non_blocking)
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), torch.Tensor)
        }
        return replace(self, **moved)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """``batch`` with its tensors on ``device``, copied there through page-locked memory by the
    current stream. On the host it is ``batch`` itself."""
    if device.type == "cpu":
        return batch
    moved: dict[str, Any] = {
        field.name: value.pin_memory().to(device, non_blocking=True)
        for field in fields(batch)
        if isinstance(value := getattr(batch, field.name), torch.Tensor) and not value.is_cuda
    }
    return replace(batch, **moved)


def _shapes(data: Batch | Layer) -> str:
    """The fields of ``data`` that are there, tensors by their shapes: Layer(edge_index=[2, 9])."""
    given = {field.name: getattr(data, field.name) for field in fields(data) if field.compare}
    texts = [
        f"{name}={list(value.shape) if isinstance(value, torch.Tensor) else value}"
        for name, value in given.items()
        if value is not None
    ]
    return f"{type(data).__name__}({', '.join(texts)})"
