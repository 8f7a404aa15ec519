"""The seeds and the batches of links, from PyG's arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from lsm.core.arguments import flag
from lsm.data.graph_store import GraphStore
from lsm.data.links.splits import LinkSplits
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.links.negative_sampling import NegativeSampling
from lsm.loader.inputs import (
    Drawing,
    check_open,
    open_typed_sampler,
    open_typed_topology,
    store_values,
)
from lsm.loader.link_batches import LinkBatches
from lsm.loader.link_inputs import InputLinks, find_edges, find_excluded, open_draws, open_splits
from lsm.loader.link_seeds import LinkSeeds
from lsm.loader.parts import LoaderParts, describe
from lsm.sampler.typed_neighbor import TypedTopology


def open_link_parts(
    store: GraphStore,
    drawing: Drawing,
    edge_label_index: InputLinks,
    *,
    edge_label: Tensor | None = None,
    edge_label_time: Tensor | None = None,
    links: LinkSplits | str | Path | None = None,
    negatives: NegativeSampling | None = None,
    exclude_seed_edges: bool = True,
    reverse_type: EdgeType | Literal["auto"] | None = "auto",
    topology: Topology | TypedTopology | None = None,
    **schedule: Any,
) -> LoaderParts:
    """The parts of a loader of links. ``schedule``: the batch size, and the arguments of
    SeedSource. The other arguments and the errors are those of LinkNeighborLoader."""
    check_open(topology)
    splits = open_splits(store, links)
    edges, split = find_edges(
        *(store, edge_label_index, splits, edge_label, edge_label_time),
        *(drawing.time_attr, negatives),
    )
    is_disjoint = drawing.is_disjoint
    excluded = find_excluded(store, edges.edge_type, splits, reverse_type)
    seeds = LinkSeeds(
        edges,
        negatives,
        open_draws(store, edges, negatives, is_disjoint=is_disjoint),
        is_disjoint=is_disjoint,
        excluded_types=excluded if flag("exclude_seed_edges", exclude_seed_edges) else {},
        **schedule,
    )
    message = {} if splits is None else splits.message_graph(store, split)
    if not isinstance(topology, TypedTopology):
        topology = open_typed_topology(store, drawing, message=message, plain=topology)
    destination_type = edges.edge_type[2]
    sampler = open_typed_sampler(topology, destination_type, drawing)
    values = store_values(store, destination_type, None)
    batches = LinkBatches(sampler, values, message)
    description = describe(store, drawing, schedule, links=seeds.num_seeds)
    return LoaderParts(seeds, sampler, batches, description)
