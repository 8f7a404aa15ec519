"""One training batch: sampled graph, features, labels, and views for GNN layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch

from lsm import native
from lsm.core.device import moved, used_here
from lsm.graph.types import EDGE, NODE, EdgeType, TypedMap
from lsm.loader.dgl import to_blocks
from lsm.loader.layers import Edges, Layer, shapes, typed_edges
from lsm.loader.seed_links import SeedLinks
from lsm.sampler.neighbor import SampledGraph
from lsm.sampler.typed import SampledTypes

if TYPE_CHECKING:
    from dgl import DGLBlock
    from torch_geometric.data import Data, HeteroData


@dataclass(frozen=True)
class StoreValues:
    """Values of all nodes and edges of a store, by type and by PyG's name for them.

    nodes: y, time; each [N, ...]. edges: edge_attr, edge_weight, time; each [E, ...], in the order
    of the store's CSC.
    """

    nodes: TypedMap[str, dict[str, torch.Tensor]] = field(default_factory=TypedMap)
    edges: TypedMap[EdgeType, dict[str, torch.Tensor]] = field(default_factory=TypedMap)


@dataclass(frozen=True)
class Batch:
    """One mini-batch: the fields of PyG's, and its place in training.

    In a batch of several types, tensors hold all types, one after another (see SampledTypes), and
    ids are of one space. The views by type, ``n_id_dict, edge_index_dict`` and so on, are keyed by
    node type or by edge type, with ids of the type. They also take a graph of one type, whose types
    are ``node`` and ``(node, to, node)``. ``to_pyg()`` gives PyG's own classes.

    Attributes:
        x: [n, dim] features of ``n_id`` in the store's dtype; None if not fetched. Of a store with
            types, a dict by node type, without types that have no features.
        y: [batch_size] or [batch_size, k] labels of the seeds, int64 or float32; None without
            labels.
        n_id: [n] int64 global ids, seeds first, then each hop's new nodes as first seen.
        e_id: [e] int64, for each edge its index into the store's CSC; computed on first use.
        edge_index: [2, e] int64 local (source, destination), grouped by hop; see SampledGraph.
        indptr: [num_expanded + 1] int64; the edges into node i are ``indptr[i]`` to
            ``indptr[i + 1]``.
        batch_size: Number of seeds; of a LinkNeighborLoader, of links.
        num_sampled_nodes: Seeds, then new nodes per hop.
        num_sampled_edges: Edges per hop.
        edge_weight: [e] float32; None without weights.
        input_id: [batch_size] int64 positions of the seeds in the loader's ``input_nodes``, the
            seeds' ids if that is a mask, or positions of the links in ``edge_label_index``.
        epoch: Epoch, from 0.
        iteration: Iteration of the epoch, from 0.
        stats: Counters of lsm.core.counters and seconds per span of making the batch.
        find_edges: Returns ``e_id``; None for a batch that was not sampled from a store.
        types: The types of several; None: one.
        batch: [n] int64, for each node its seed's place in the batch, if each seed has a subgraph
            of its own.
        seed_time: [batch_size] int64 times of the seeds; None without times.
        store_values: The store's values of all nodes and edges, for ``to_pyg()``.
        links: The links that the batch is of; None: it is of nodes.
    """

    x: Any
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
    types: SampledTypes | None = field(default=None, compare=False, repr=False)
    batch: torch.Tensor | None = None
    seed_time: torch.Tensor | None = None
    store_values: StoreValues | None = field(default=None, compare=False, repr=False)
    links: SeedLinks | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_sampled(
        cls,
        sampled: SampledGraph,
        *,
        x: Any = None,
        y: torch.Tensor | None = None,
        input_id: torch.Tensor | None = None,
        find_edges: Callable[[], torch.Tensor] | None = None,
        epoch: int = 0,
        iteration: int = 0,
        stats: dict[str, float] | None = None,
        seed_time: torch.Tensor | None = None,
        store_values: StoreValues | None = None,
        batch_size: int | None = None,
        batch: torch.Tensor | None = None,
        links: SeedLinks | None = None,
    ) -> Batch:
        """Makes the batch of a sampled graph. The other arguments are the fields of their names;
        None of ``batch_size`` and ``batch``: those of the graph.

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
            batch_size=sampled.num_sampled_nodes[0] if batch_size is None else batch_size,
            num_sampled_nodes=sampled.num_sampled_nodes,
            num_sampled_edges=sampled.num_sampled_edges,
            edge_weight=sampled.edge_weight,
            input_id=input_id,
            epoch=epoch,
            iteration=iteration,
            stats=stats or {},
            find_edges=find_edges,
            types=sampled.types,
            batch=sampled.batch if batch is None else batch,
            seed_time=seed_time,
            store_values=store_values,
            links=links,
        )

    def __repr__(self) -> str:
        return shapes(self)

    def __copy__(self) -> Batch:
        return replace(self)

    def __getstate__(self) -> dict[str, Any]:
        if self.find_edges is not None:
            raise TypeError(
                "a Batch stays in the process that sampled it, which finds its e_id; send or copy "
                "batch.to_pyg()"
            )
        return self.__dict__

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
        found = self._found_edges
        return None if found is None else moved(found, self.n_id.device)

    @cached_property
    def _found_edges(self) -> torch.Tensor | None:
        """``e_id`` where the sampler leaves it. Values of a store lie on the host, as it mostly
        does."""
        return None if self.find_edges is None else self.find_edges()

    @property
    def x_dict(self) -> TypedMap[str, torch.Tensor]:
        """Features by node type, without types that have none."""
        if self.types is not None:
            return self.x or TypedMap()
        return TypedMap() if self.x is None else TypedMap({NODE: self.x})

    @cached_property
    def n_id_dict(self) -> TypedMap[str, torch.Tensor]:
        """Nodes by type: [n] int64 ids of the type."""
        return TypedMap({NODE: self.n_id}) if self.types is None else self.types.ids(self.n_id)

    @property
    def num_sampled_nodes_dict(self) -> TypedMap[str, list[int]]:
        """By node type: seeds, then new nodes per hop."""
        if self.types is not None:
            return self.types.num_sampled_nodes
        return TypedMap({NODE: self.num_sampled_nodes})

    @property
    def num_sampled_edges_dict(self) -> TypedMap[EdgeType, list[int]]:
        """By edge type: edges per hop."""
        if self.types is not None:
            return self.types.num_sampled_edges
        return TypedMap({EDGE: self.num_sampled_edges})

    @property
    def edge_index_dict(self) -> TypedMap[EdgeType, torch.Tensor]:
        """Edges by type: [2, e] int64, each end counted from the first node of its type."""
        return self._edges_dict(self.edge_index)

    @property
    def edge_weight_dict(self) -> TypedMap[EdgeType, torch.Tensor]:
        """Weights of edges by type: [e] float32; empty without weights."""
        return self._edges_dict(self.edge_weight)

    @property
    def e_id_dict(self) -> TypedMap[EdgeType, torch.Tensor]:
        """``e_id`` by edge type, as indices into the CSC of the type."""
        return self._edges_dict(self.e_id)

    def edge_values(self, name: str) -> TypedMap[EdgeType, torch.Tensor]:
        """Returns the values that the store has of the batch's edges.

        The batch is sampled again (see ``e_id``), unless the store has no such values.

        Args:
            name: Their name: ``edge_weight``, ``edge_attr`` or ``time``.

        Returns:
            The values by edge type, each [e, ...]; a type without them is missing.
        """
        stored = TypedMap() if self.store_values is None else self.store_values.edges
        named = {each: values[name] for each, values in stored.items() if name in values}
        ids = self._edges_dict(self._found_edges if named else None)
        device = self.n_id.device
        return TypedMap(
            {each: select(named[each], ids[each], device) for each in named if each in ids}
        )

    def _edges_dict(self, values: torch.Tensor | None) -> TypedMap[EdgeType, torch.Tensor]:
        if values is None:
            return TypedMap()
        return TypedMap({EDGE: values}) if self.types is None else self.types.edges(values)

    def layers(self) -> list[Layer]:
        """Returns the bipartite graphs of a GNN with as many layers as hops.

        Layer l computes the nodes within L - 1 - l hops of the seeds from those within L - l hops;
        the last one computes the seeds. So a layer's output is the next one's input, row by row.

        Returns:
            A Layer per layer, the outermost hop's first. All are views of the batch.
        """
        nodes = self.num_sampled_nodes
        edges = Edges(
            self.indptr, self.edge_index, self.edge_weight, self.num_sampled_edges, nodes, nodes
        )
        return [edges.layer(last_hop) for last_hop in self._last_hops()]

    def typed_layers(self) -> list[TypedMap[EdgeType, Layer]]:
        """Returns the bipartite graphs of layers() for each edge type.

        Returns:
            Per layer, the outermost hop's first, a Layer of each edge type.
        """
        if self.types is None:
            return [TypedMap({EDGE: layer}) for layer in self.layers()]
        edges = typed_edges(self.types, self.indptr, self.edge_index, self.edge_weight)
        return [
            TypedMap({each: part.layer(last_hop) for each, part in edges.items()})
            for last_hop in self._last_hops()
        ]

    def _last_hops(self) -> range:
        """The last hop whose edges each layer takes."""
        return range(len(self.num_sampled_edges) - 1, -1, -1)

    def to_pyg(self) -> Data | HeteroData:
        """Returns the batch with the fields of PyG's loaders, ``y`` of all nodes included.

        ``e_id`` is among them, so the batch is sampled again (see ``e_id``).

        Returns:
            HeteroData for a batch of several types, else Data. Tensors are shared.
        """
        from lsm.loader.to_pyg import to_pyg  # torch_geometric takes long to import

        return to_pyg(self)

    def to_dgl(self) -> list[DGLBlock]:
        """Returns the layers as DGL blocks, of a batch of several types with all of them.

        Edges have ``dgl.EID``, so the batch is sampled again (see ``e_id``).

        Returns:
            A block per layer, the outermost hop's first, with ids of the type as ``dgl.NID``,
            ``e_id`` as ``dgl.EID``, and weights of edges, if any, as ``edge_weight``.

        Raises:
            RuntimeError: dgl is not installed.
        """
        return to_blocks(self)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Copies the tensors to a device.

        Args:
            device: The device.
            non_blocking: As in ``torch.Tensor.to()``.

        Returns:
            This batch with its tensors on ``device``.
        """
        return _moved(self, lambda tensor: tensor.to(device, non_blocking=non_blocking))


def select(values: torch.Tensor, ids: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The rows ``ids`` [n] of a store's ``values``, on ``device``. Raises OSError if mapped values
    cannot be read."""
    ids = ids.to(values.device) if ids.device != values.device else ids
    found = values.index_select(0, ids)
    native.check_mapped(values)
    return moved(found, device)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """``batch`` with its tensors on ``device``, as moved() copies them. On the host it is ``batch``
    itself."""
    if device.type == "cpu":
        return batch
    return _moved(batch, partial(moved, device=device))


def used_in_stream(batch: Batch) -> Batch:
    """``batch``, whose tensors this thread's current stream uses from now on: used_here()."""
    return _moved(batch, used_here) if torch.cuda.is_initialized() else batch


def _moved(batch: Batch, move: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
    """``batch`` with ``move`` applied to its tensors."""
    changes: dict[str, Any] = {
        each.name: move(value)
        for each in fields(batch)
        if isinstance(value := getattr(batch, each.name), torch.Tensor)
    }
    if isinstance(batch.x, TypedMap):
        changes["x"] = batch.x.apply(move)
    if batch.links is not None:
        changes["links"] = batch.links.apply(move)
    return replace(batch, **changes)
