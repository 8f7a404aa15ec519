"""The sampling of a job: which neighbours each split draws, and from which arrays."""

from __future__ import annotations

from typing import Any

from lsm.config.schema import Config
from lsm.data.graph_store import GraphStore
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.loader.inputs import (
    Drawing,
    find_seed_times,
    open_sampler,
    open_topology,
    open_typed_topology,
)
from lsm.loader.link_parts import LinkParts, open_link_parts
from lsm.sampler.options import Sampling
from lsm.sampler.seeds import NodeSeeds, SeedSource
from lsm.sampler.typed_neighbor import NumNeighbors, TypedTopology
from lsm.train.setup import Setup
from lsm.train.tasks.link_prediction import LinkPrediction


def batch_size(config: Config, split: str) -> int:
    """Seeds per rank and iteration of a split."""
    return config.train.batch_size if split == "train" else config.eval_batch_size


def drawing_of(config: Config, store: GraphStore, split: str) -> Drawing:
    """How a split of a store draws neighbours. Raises ValueError for an unknown edge type."""
    options, trains = config.sampler, split == "train"
    hops = options.num_neighbors if trains else config.eval_num_neighbors
    given_eval = config.train.eval.num_neighbors is not None
    by_type = {} if given_eval and not trains else options.edge_types
    return Drawing(
        _num_neighbors(store, hops, by_type),
        options if trains else Sampling(),
        options.disjoint,
        options.temporal_strategy,
        options.time_attr,
        options.weight_attr,
    )


def topology_of(setup: Setup, split: str, in_memory: bool = False) -> Topology | TypedTopology:
    """The topology that a split samples; of links, its message graph."""
    config, store, task = setup.config, setup.store, setup.task
    drawing = drawing_of(config, store, split)
    if not isinstance(task, LinkPrediction):
        return open_topology(store, drawing, in_memory)
    message = task.message_graph(store, split, in_memory)
    return open_typed_topology(store, drawing, in_memory, message)


def links_of(setup: Setup, split: str, topology: TypedTopology) -> LinkParts:
    """The links of a split, for a task of links. Raises ValueError for options that do not suit
    them."""
    config, store, task = setup.config, setup.store, setup.task
    assert isinstance(task, LinkPrediction), "the caller has looked"
    drawing = drawing_of(config, store, split)
    is_disjoint = drawing.disjoint or drawing.time_attr is not None
    return open_link_parts(
        store,
        drawing,
        split,
        links=task.splits,
        negatives=task.negatives(split, is_disjoint=is_disjoint),
        exclude_seed_edges=task.exclude_seed_edges,
        topology=topology,
        batch_size=batch_size(config, split),
        **_schedule(setup, split),
    )


def sampler_of(setup: Setup, split: str, topology: Topology | TypedTopology) -> Any:
    """The sampler of a split on the host."""
    if isinstance(setup.task, LinkPrediction):
        assert isinstance(topology, TypedTopology), "topology_of() opens it by type"
        return links_of(setup, split, topology).sampler
    drawing = drawing_of(setup.config, setup.store, split)
    return open_sampler(topology, setup.task.input_type(setup.store), drawing)


def seeds_of(
    setup: Setup, split: str, topology: Topology | TypedTopology | None = None
) -> SeedSource:
    """The batches of seeds of a split on this rank. ``topology``: of topology_of(), if it is
    open."""
    config, store, task = setup.config, setup.store, setup.task
    if isinstance(task, LinkPrediction):
        opened = topology or topology_of(setup, split)
        assert isinstance(opened, TypedTopology), "topology_of() opens it by type"
        return links_of(setup, split, opened).seeds
    nodes, input_type = task.seeds(store, split), task.input_type(store)
    return NodeSeeds(
        nodes,
        batch_size(config, split),
        times=find_seed_times(store, input_type, nodes, drawing_of(config, store, split), None),
        **_schedule(setup, split),
    )


def _schedule(setup: Setup, split: str) -> dict[str, Any]:
    """The arguments of a SeedSource but its batch size."""
    return {
        "shuffle": split == "train",
        "drop_last": False,
        "seed": setup.config.train.seed,
        "rank": setup.world.rank,
        "world_size": setup.world.size,
    }


def _num_neighbors(
    store: GraphStore, hops: list[int], by_type: dict[str, list[int]]
) -> NumNeighbors:
    if not by_type:
        return hops
    known: dict[str, EdgeType] = {",".join(each): each for each in store.edge_types}
    for name in by_type:
        if name not in known or not store.is_typed:
            types = "; ".join(known) if store.is_typed else "none, since the graph has no types"
            raise ValueError(
                f"sampler.edge_types: {name} is no edge type of {store.path}; expected: {types}"
            )
    return {each: by_type.get(name, hops) for name, each in known.items()}
