"""The parts of a loader: its seeds, its sampler, and its batches of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lsm.data.graph_store import GraphStore
from lsm.graph.topology import Topology
from lsm.loader.inputs import (
    Drawing,
    InputNodes,
    are_ids,
    check_distinct,
    check_open,
    checked_labels,
    find_inputs,
    find_seed_times,
    is_mask,
    open_sampler,
    open_topology,
    open_typed_topology,
    store_values,
)
from lsm.loader.node_batches import NodeBatches
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.seeds import NodeSeeds, SeedSource
from lsm.sampler.typed_neighbor import TypedTopology


@dataclass(frozen=True)
class LoaderParts:
    """Everything of a loader but its rows and its pipeline."""

    seeds: SeedSource
    sampler: Any
    """A Sampler, or one that takes the values that the seeds have in addition to ids."""
    batches: NodeBatches
    description: str
    """For the loader's repr()."""


def open_node_parts(
    store: GraphStore,
    drawing: Drawing,
    input_nodes: InputNodes,
    *,
    input_time: Tensor | None = None,
    labels: Tensor | None = None,
    topology: Topology | TypedTopology | None = None,
    sampler: Any = None,
    **schedule: Any,
) -> LoaderParts:
    """The parts of a loader of nodes. ``schedule``: the batch size, and the arguments of
    SeedSource. The other arguments and the errors are those of NeighborLoader."""
    input_type, nodes = find_inputs(store, input_nodes)
    times = find_seed_times(store, input_type, nodes, drawing, input_time)
    seeds = NodeSeeds(nodes, times=times, **schedule)
    if sampler is None and not drawing.is_disjoint and are_ids(input_nodes):
        all_ranks = schedule["batch_size"] * schedule["world_size"]
        num_nodes = store.nodes(input_type).num_nodes
        check_distinct(nodes, all_ranks, num_nodes, shuffle=schedule["shuffle"])
    if labels is not None:
        labels = checked_labels(labels, store.nodes(input_type).num_nodes)
    values = store_values(store, input_type, labels)
    check_open(topology, sampler)
    if sampler is None:
        if isinstance(topology, Topology) and (store.is_typed or not drawing.is_plain):
            topology = open_typed_topology(store, drawing, plain=topology)
        topology = topology or open_topology(store, drawing)
        sampler = open_sampler(topology, input_type, drawing)
    elif isinstance(sampler, NeighborSampler) and not drawing.is_plain:
        raise ValueError(
            "sampler: expected one by type with disjoint, time_attr or weight_attr, got a "
            f"{type(sampler).__name__}, which ignores them"
        )
    labels = values.nodes[input_type].get("y")
    batches = NodeBatches(sampler, values, labels, gives_node_ids=is_mask(input_nodes))
    description = describe(store, drawing, schedule, seeds=seeds.num_seeds)
    return LoaderParts(seeds, sampler, batches, description)


def describe(store: GraphStore, drawing: Drawing, schedule: dict[str, Any], **counts: int) -> str:
    """The arguments of a loader that tell it from others, in words."""
    told: dict[str, Any] = {"num_neighbors": drawing.num_neighbors, **counts}
    told |= {name: schedule[name] for name in ("batch_size", "shuffle")}
    told["sampling"] = drawing.sampling.kind
    told |= {name: schedule[name] for name in ("rank", "world_size")}
    return ", ".join([repr(store), *(f"{name}={value!r}" for name, value in told.items())])
