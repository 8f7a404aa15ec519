"""The loaders of a job, one per split."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch

from lsm import native
from lsm.core.option_types import settled
from lsm.data.format import SPLITS
from lsm.features.sets import Features
from lsm.graph.topology import Topology
from lsm.loader.inputs import Drawing, open_topology
from lsm.loader.loader import Loader
from lsm.loader.neighbor_loader import NeighborLoader
from lsm.loader.shared_arguments import run_ahead
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler, choose_placement, place_topology
from lsm.sampler.typed_gpu import DeviceTypedNeighborSampler, place_types
from lsm.sampler.typed_neighbor import TypedTopology
from lsm.storage.read_ahead import ReadAhead
from lsm.train.memory_plan import MemoryPlan
from lsm.train.sampling import batch_size, drawing_of, links_of, topology_of
from lsm.train.setup import Setup
from lsm.train.tasks.link_prediction import LinkPrediction

logger = logging.getLogger(__name__)

NewSampler = Callable[[Drawing], DeviceNeighborSampler | DeviceTypedNeighborSampler | None]


def build_loaders(
    setup: Setup, plan: MemoryPlan, features: Features, read_ahead: ReadAhead
) -> Mapping[str, Loader]:
    """The loaders of a job by split."""
    config, store, task = setup.config, setup.store, setup.task
    if isinstance(task, LinkPrediction):
        return _loaders_of_links(setup, task, plan, features, read_ahead)
    in_memory = config.data.topology == "memory"
    topology = open_topology(store, drawing_of(config, store, "train"), in_memory)
    input_type = task.input_type(store)
    labels = store.nodes(input_type).labels(in_memory)
    new_sampler = _gpu_samplers(setup, topology)

    def loader(split: str) -> NeighborLoader:
        drawing, seeds = drawing_of(config, store, split), task.seeds(store, split)
        return NeighborLoader(
            store,
            drawing.num_neighbors,
            (input_type, seeds) if store.is_typed else seeds,
            batch_size(config, split),
            shuffle=split == "train",
            seed=config.train.seed,
            rank=setup.world.rank,
            world_size=setup.world.size,
            features=features,
            topology=topology,
            labels=labels,
            disjoint=drawing.disjoint,
            time_attr=drawing.time_attr,
            temporal_strategy=drawing.temporal_strategy,
            weight_attr=drawing.weight_attr,
            sampling=drawing.sampling,
            sampler=new_sampler(drawing),
            prefetch=read_ahead,
            staging_bytes=settled(config.loader.staging_bytes),
            num_threads=config.loader.num_threads,
            timeout_secs=config.storage.timeout_secs,
            window_bytes=plan.window_bytes or None,
        )

    return {split: loader(split) for split in SPLITS}


def _loaders_of_links(
    setup: Setup,
    task: LinkPrediction,
    plan: MemoryPlan,
    features: Features,
    read_ahead: ReadAhead,
) -> dict[str, Loader]:
    config = setup.config
    if setup.world.is_main:
        logger.info("links are ranked so: %s, mean rank on ties", task.protocol)
    trained = topology_of(setup, "train", config.data.topology == "memory")
    loaders: dict[str, Loader] = {}
    for split in SPLITS:
        is_later = split == "test" and task.splits.message_edges == "earlier"
        topology = topology_of(setup, split) if is_later else trained
        assert isinstance(topology, TypedTopology), "that of links is by type"
        parts = links_of(setup, split, topology)
        loaders[split] = Loader(
            parts.seeds,
            parts.batches.sample,
            features,
            parts.batches.make,
            run_ahead(
                read_ahead,
                settled(config.loader.staging_bytes),
                config.loader.num_threads,
                config.storage.timeout_secs,
                plan.window_bytes or None,
            ),
        )
    return loaders


def _gpu_samplers(setup: Setup, topology: Topology | TypedTopology) -> NewSampler:
    """A function that makes samplers of ``topology`` on the GPU; it returns None where the host
    samples."""
    config, device = setup.config, setup.device
    free_bytes = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
    placement = choose_placement(config.topology.placement, device, topology.num_bytes, free_bytes)
    if placement == "host":
        return lambda drawing: None
    options: dict[str, Any] = {
        "device": device.index,
        "timeout_secs": config.storage.timeout_secs,
        "num_slots": config.loader.num_threads,
    }
    if isinstance(topology, TypedTopology):
        graph, input_type = topology, setup.task.input_type(setup.store)
        placed_types = place_types(graph, placement, device)
        _check_mapped(graph.arrays)
        return lambda drawing: DeviceTypedNeighborSampler(
            graph,
            placed_types,
            drawing.num_neighbors,
            input_type=input_type,
            sampling=drawing.sampling,
            disjoint=drawing.is_disjoint,
            temporal_strategy=drawing.temporal_strategy,
            **options,
        )
    plain, placed = topology, place_topology(topology, placement, device)
    _check_mapped([plain.indptr, plain.indices])
    return lambda drawing: DeviceNeighborSampler(
        plain, placed, drawing.hops, sampling=drawing.sampling, **options
    )


def _check_mapped(arrays: list[torch.Tensor]) -> None:
    """Raises OSError if a page of a mapped array could not be read."""
    for each in arrays:
        native.check_mapped(each)
