"""The seeds, the sampler and the values of a NeighborLoader, from PyG's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lsm.core.arguments import flag
from lsm.core.ids import as_int64, tensor_of_integers
from lsm.data.graph_store import GraphStore
from lsm.data.links.splits import MessageEdges
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType, TypedMap
from lsm.loader.batch import StoreValues
from lsm.sampler.neighbor import NeighborSampler, checked_num_neighbors
from lsm.sampler.options import Sampling
from lsm.sampler.seeds import seed_nodes
from lsm.sampler.typed_neighbor import NumNeighbors, TypedNeighborSampler, TypedTopology

InputNodes = str | Tensor | tuple[str, str | Tensor | None] | None
"""Seeds as PyG's loader takes them, or a split's name in place of ids."""

TIME = "time"
"""The one name of times, in PyG's ``time_attr``."""
WEIGHT = "edge_weight"
"""The one name of weights, in PyG's ``weight_attr``."""


@dataclass(frozen=True)
class Drawing:
    """How neighbours are drawn, as PyG's loader names it."""

    num_neighbors: NumNeighbors
    sampling: Sampling
    disjoint: bool
    temporal_strategy: Literal["uniform", "last"]
    time_attr: str | None
    weight_attr: str | None

    def __post_init__(self) -> None:
        flag("disjoint", self.disjoint)
        for name, given, known in (
            ("time_attr", self.time_attr, TIME),
            ("weight_attr", self.weight_attr, WEIGHT),
        ):
            if given not in (None, known):
                raise ValueError(f"{name}: expected {known!r}, as stores name it, got {given!r}")
        if self.temporal_strategy not in ("uniform", "last"):
            raise ValueError(
                f"temporal_strategy: expected uniform or last, got {self.temporal_strategy!r}"
            )
        if self.weight_attr and self.time_attr and self.temporal_strategy == "last":
            raise ValueError("temporal_strategy: last takes the latest, and so no weight_attr")
        if self.weight_attr and not self.sampling.chosen.takes_weights:
            raise ValueError(
                f"weight_attr: expected sampling=neighbor with it, got {self.sampling.kind}"
            )

    @property
    def hops(self) -> list[int]:
        """Neighbours per hop in a graph without types. Raises ValueError for those by type."""
        if isinstance(self.num_neighbors, Mapping):
            raise ValueError("num_neighbors: expected numbers per hop of a graph without types")
        return checked_num_neighbors(self.num_neighbors)

    @property
    def is_disjoint(self) -> bool:
        """True if each seed has a subgraph: of its own time, where there are times."""
        return self.disjoint or self.time_attr is not None

    @property
    def is_plain(self) -> bool:
        """True if all seeds share a subgraph of neighbours that are all alike."""
        return not (self.is_disjoint or self.weight_attr)


def find_inputs(store: GraphStore, input_nodes: InputNodes) -> tuple[str, Tensor]:
    """The type of the seeds and the seeds, [n] int64 of the type. Raises ValueError."""
    if not store.is_typed:
        only = store.node_types[0]
        if isinstance(input_nodes, str) and input_nodes == only:
            input_nodes = None
        elif isinstance(input_nodes, tuple) and len(input_nodes) == 2 and input_nodes[0] == only:
            input_nodes = input_nodes[1]
        if isinstance(input_nodes, tuple):
            raise ValueError("input_nodes: expected ids or a split of a graph without types")
        return only, seed_nodes(store.nodes(), input_nodes)
    pair: tuple[Any, ...] = input_nodes if isinstance(input_nodes, tuple) else (input_nodes, None)
    node_type, ids = pair if len(pair) == 2 else (pair, None)
    if not isinstance(node_type, str) or node_type not in store.node_types:
        known = ", ".join(store.node_types)
        raise ValueError(
            f"input_nodes: expected a node type of {known}, or (type, ids or split), got "
            f"{node_type!r}"
        )
    return node_type, seed_nodes(store.nodes(node_type), ids)


def check_distinct(nodes: Tensor, batch_size: int, num_nodes: int, *, shuffle: bool) -> None:
    """Raises ValueError for seeds [n] int64 of a type of ``num_nodes`` that are equal and meet in a
    batch of ``batch_size``: any two that are equal, with ``shuffle``."""
    seen = torch.zeros(num_nodes, dtype=torch.bool)
    seen[nodes] = True
    if int(seen.sum()) == len(nodes):
        return
    order = torch.argsort(nodes, stable=True)
    first, second = order[:-1], order[1:]
    meet = nodes[first] == nodes[second]
    if not shuffle:
        meet &= first // batch_size == second // batch_size
    if meet.any():
        place = int(meet.nonzero()[0])
        raise ValueError(
            f"input_nodes: expected distinct ids in a batch, got {int(nodes[first[place]])} at "
            f"positions {int(first[place])} and {int(second[place])}; leave out repeats, such as "
            "with torch.unique(), or set disjoint=True, which gives each seed its own subgraph"
        )


def are_ids(input_nodes: InputNodes) -> bool:
    """True for ids of nodes, which may repeat, as those of a split, a mask or all nodes cannot."""
    ids = _ids(input_nodes)
    return not (ids is None or isinstance(ids, str) or is_mask(input_nodes))


def is_mask(input_nodes: InputNodes) -> bool:
    """True for a mask of nodes."""
    ids = _ids(input_nodes)
    return (
        not (ids is None or isinstance(ids, str))
        and tensor_of_integers("input_nodes", ids).dtype == torch.bool
    )


def _ids(input_nodes: InputNodes) -> str | Tensor | None:
    return input_nodes[-1] if isinstance(input_nodes, tuple) else input_nodes


def checked_labels(labels: Tensor, num_nodes: int) -> Tensor:
    """``labels`` of all ``num_nodes`` nodes of a type, as a tensor. Raises ValueError for another
    number of them."""
    labels = torch.as_tensor(labels)
    if labels.dim() not in (1, 2) or len(labels) != num_nodes:
        raise ValueError(
            f"labels: expected those of all {num_nodes} nodes of the seeds' type, [{num_nodes}] or "
            f"[{num_nodes}, k], got {list(labels.shape)}"
        )
    return labels


def find_seed_times(
    store: GraphStore, node_type: str, nodes: Tensor, drawing: Drawing, given: Tensor | None
) -> Tensor | None:
    """The times of the seeds: those given, or of the nodes; None without ``time_attr``."""
    if drawing.time_attr is None:
        if given is not None:
            raise ValueError(f"input_time: expected time_attr={TIME!r} with it")
        return None
    if given is not None:
        given = as_int64(tensor_of_integers("input_time", given))
        if given.shape != nodes.shape or given.dtype != torch.int64:
            raise ValueError(
                f"input_time: expected int64 [{len(nodes)}], one for each input node, got "
                f"{given.dtype} {list(given.shape)}"
            )
        return given
    data = store.nodes(node_type)
    if not data.has_times:
        raise ValueError(
            f"time_attr: {store.path}: nodes of type {node_type} have no times; convert with "
            "node_time.npy or Data.time, leave time_attr out, or give input_time"
        )
    return data.times().index_select(0, nodes)


def check_open(topology: Any, sampler: Any = None) -> None:
    """Raises TypeError for a ``topology`` or a ``sampler`` of another kind; None is of any."""
    if not isinstance(topology, Topology | TypedTopology | None):
        raise TypeError(
            f"topology: expected the result of store.topology(), got {type(topology).__name__}"
        )
    if sampler is not None and not all(
        callable(getattr(sampler, name, None)) for name in ("sample", "edge_ids")
    ):
        raise TypeError(
            "sampler: expected one with sample() and edge_ids(), such as "
            f"lsm.sampler.neighbor.NeighborSampler, got {type(sampler).__name__}"
        )


def open_topology(
    store: GraphStore, drawing: Drawing, in_memory: bool = False
) -> Topology | TypedTopology:
    """The topology that the sampler of a ``drawing`` takes, with values of edges if it asks for
    them. Raises ValueError for values that the store lacks."""
    if drawing.is_plain and not store.is_typed:
        return store.topology(in_memory)
    return open_typed_topology(store, drawing, in_memory)


def open_typed_topology(
    store: GraphStore,
    drawing: Drawing,
    in_memory: bool = False,
    message: Mapping[EdgeType, MessageEdges] | None = None,
    plain: Topology | None = None,
) -> TypedTopology:
    """open_topology() by type, also of a graph without types. ``message``: the edges to take, of
    types that differ from the store's. ``plain``: the store's topology, if it is open already.
    Raises ValueError for a plain topology of a store with types."""
    message = message or {}
    if plain is not None and store.is_typed:
        raise ValueError("topology: expected a TypedTopology of a store with types, got a Topology")

    def kept(each: EdgeType, values: Tensor) -> Tensor:
        return message[each].kept(values) if each in message else values

    edges = {each: store.edges(each) for each in store.edge_types}
    weights, times, node_times = {}, {}, {}
    if drawing.weight_attr:
        weights = {
            each: kept(each, own.weights(in_memory))
            for each, own in edges.items()
            if own.has_weights
        }
        if not weights:
            raise ValueError(f"weight_attr: {store.path} has no weights of edges")
    if drawing.time_attr:
        nodes = {name: store.nodes(name) for name in store.node_types}
        times = {
            each: kept(each, own.times(in_memory)) for each, own in edges.items() if own.has_times
        }
        node_times = {name: own.times(in_memory) for name, own in nodes.items() if own.has_times}
        if not (times or node_times):
            raise ValueError(f"time_attr: {store.path} has no times of nodes or edges")
    topologies = _of_one_dtype(
        {
            each: message[each].topology if each in message else plain or own.topology(in_memory)
            for each, own in edges.items()
        }
    )
    return TypedTopology(store.node_space, topologies, weights, times, node_times)


def open_sampler(
    topology: Topology | TypedTopology, input_type: str, drawing: Drawing
) -> NeighborSampler | TypedNeighborSampler:
    """The sampler of a topology that was opened for ``drawing``. Raises ValueError for numbers of
    neighbours that do not fit."""
    if isinstance(topology, Topology):
        return NeighborSampler(topology, drawing.hops, sampling=drawing.sampling)
    return open_typed_sampler(topology, input_type, drawing)


def open_typed_sampler(
    topology: TypedTopology, input_type: str, drawing: Drawing
) -> TypedNeighborSampler:
    """open_sampler() of a topology by type. Raises ValueError, too, for one without the values that
    ``drawing`` asks for."""
    if drawing.weight_attr and not topology.weights:
        raise ValueError("weight_attr: the topology has no weights of edges")
    if drawing.time_attr and not (topology.times or topology.node_times):
        raise ValueError("time_attr: the topology has no times of nodes or edges")
    return TypedNeighborSampler(
        topology,
        drawing.num_neighbors,
        input_type=input_type,
        sampling=drawing.sampling,
        disjoint=drawing.is_disjoint,
        temporal_strategy=drawing.temporal_strategy,
    )


def _of_one_dtype(topologies: Mapping[EdgeType, Topology]) -> TypedMap[EdgeType, Topology]:
    """``topologies`` with ids of one dtype, as sampling takes them."""
    if len({own.indices.dtype for own in topologies.values()}) <= 1:
        return TypedMap(topologies)
    return TypedMap(
        {each: Topology(own.indptr, own.indices.long()) for each, own in topologies.items()}
    )


def store_values(store: GraphStore, input_type: str, labels: Tensor | None) -> StoreValues:
    """The values of a store's nodes and edges that batches have. ``labels``: those of the seeds'
    type, if they are open already."""
    nodes: TypedMap[str, dict[str, Tensor]] = TypedMap()
    for name in store.node_types:
        own = store.nodes(name)
        nodes[name] = {"time": own.times()} if own.has_times else {}
        if labels is not None and name == input_type:
            nodes[name]["y"] = labels
        elif own.has_labels:
            nodes[name]["y"] = own.labels()
    return StoreValues(nodes, edge_values(store))


def edge_values(store: GraphStore) -> TypedMap[EdgeType, dict[str, Tensor]]:
    """The values of a store's edges by type and by PyG's name, [E, ...] each."""
    edges: TypedMap[EdgeType, dict[str, Tensor]] = TypedMap()
    for each in store.edge_types:
        of_type = store.edges(each)
        found = {
            "edge_attr": of_type.attr if of_type.has_attr else None,
            WEIGHT: of_type.weights if of_type.has_weights else None,
            TIME: of_type.times if of_type.has_times else None,
        }
        edges[each] = {name: values() for name, values in found.items() if values is not None}
    return edges
