"""The sampling of a job: which neighbours each split draws, and from which arrays."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lsm.config.schema import Config
from lsm.data.graph_store import GraphStore
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.loader.inputs import Drawing
from lsm.loader.parts import LoaderParts
from lsm.sampler.options import Sampling
from lsm.sampler.typed_neighbor import NumNeighbors, TypedTopology
from lsm.train.setup import Setup


def batch_size(config: Config, split: str) -> int:
    """Seeds per rank and iteration of a split."""
    return config.train.batch_size if split == "train" else config.eval_batch_size


def left_out(config: Config) -> list[str]:
    """The edge types without which a run trains."""
    return [name for name, hops in config.sampler.edge_types.items() if not any(hops)]


def drawing_of(
    config: Config, store: GraphStore, split: str, num_neighbors: list[int] | None = None
) -> Drawing:
    """How a split of a store draws neighbours; ``num_neighbors``: in place of those that the
    configuration has. Types that are left out stay so. Raises ValueError for an unknown type."""
    options, trains = config.sampler, split == "train"
    hops, by_type = options.num_neighbors, options.edge_types
    if not trains:
        num_neighbors = num_neighbors or config.train.eval.num_neighbors
        hops = num_neighbors or config.eval_num_neighbors
    if num_neighbors is not None:
        by_type = {name: [0] * len(hops) for name in left_out(config)}
    return Drawing(
        _num_neighbors(store, hops, by_type),
        options if trains else Sampling(),
        options.disjoint,
        options.temporal_strategy,
        options.time_attr,
        options.weight_attr,
    )


def topology_of(setup: Setup, split: str, in_memory: bool = False) -> Topology | TypedTopology:
    """The edges that a split samples."""
    drawing = drawing_of(setup.config, setup.store, split)
    return setup.task.open_topology(setup.store, split, drawing, in_memory)


def parts_of(
    setup: Setup,
    split: str,
    topology: Topology | TypedTopology,
    *,
    sampler: Any = None,
    labels: Tensor | None = None,
) -> LoaderParts:
    """The parts of a split's loader on this rank. Raises ValueError for options that do not suit
    the task.

    Args:
        setup: The job.
        split: Name of the split.
        topology: Of topology_of().
        sampler: One to take instead of the host's.
        labels: Those of the seeds' type, if they are open already.
    """
    config = setup.config
    return setup.task.open_parts(
        setup.store,
        split,
        drawing_of(config, setup.store, split),
        topology,
        sampler=sampler,
        labels=labels,
        batch_size=batch_size(config, split),
        shuffle=split == "train",
        drop_last=False,
        seed=config.train.seed,
        rank=setup.world.rank,
        world_size=setup.world.size,
    )


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
