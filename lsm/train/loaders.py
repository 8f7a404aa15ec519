"""The loaders of a job, one per split."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import torch

from lsm import native
from lsm.core.option_types import settled
from lsm.data.format import SPLITS
from lsm.features.sets import Features
from lsm.graph.topology import Topology
from lsm.loader.inputs import Drawing
from lsm.loader.loader import Loader
from lsm.loader.shared_arguments import run_ahead
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler, choose_placement, place_topology
from lsm.sampler.typed_neighbor import TypedTopology
from lsm.storage.read_ahead import ReadAhead
from lsm.train.memory_plan import MemoryPlan
from lsm.train.sampling import drawing_of, parts_of, topology_of
from lsm.train.setup import Setup

logger = logging.getLogger(__name__)

NewSampler = Callable[[Drawing], DeviceNeighborSampler | None]


def build_loaders(
    setup: Setup, plan: MemoryPlan, features: Features, read_ahead: ReadAhead
) -> Mapping[str, Loader]:
    """The loaders of a job by split."""
    config, store, task = setup.config, setup.store, setup.task
    if setup.world.is_main and task.protocol:
        logger.info("%s", task.protocol)
    in_memory = config.data.topology == "memory"
    trained = topology_of(setup, "train", in_memory)
    labels = task.labels(store, in_memory)
    new_sampler = _gpu_samplers(setup, trained)
    policy = run_ahead(
        read_ahead,
        settled(config.loader.staging_bytes),
        config.loader.num_threads,
        config.storage.timeout_secs,
        plan.window_bytes or None,
    )

    def loader(split: str) -> Loader:
        topology = topology_of(setup, split) if task.has_own_edges(split) else trained
        sampler = new_sampler(drawing_of(config, store, split))
        return Loader(
            parts_of(setup, split, topology, sampler=sampler, labels=labels), features, policy
        )

    return {split: loader(split) for split in SPLITS}


def _gpu_samplers(setup: Setup, topology: Topology | TypedTopology) -> NewSampler:
    """A function that makes samplers of ``topology`` on the GPU; it returns None where the host
    samples."""
    config, device = setup.config, setup.device
    if setup.task.samples_on_host:
        return lambda drawing: None
    free_bytes = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
    placement = choose_placement(config.topology.placement, device, topology.num_bytes, free_bytes)
    if placement == "host":
        return lambda drawing: None
    graph, input_type = TypedTopology.of(topology), setup.task.input_type(setup.store)
    placed = place_topology(graph, placement, device)
    for each in graph.arrays:  # a page of a mapped array may be unreadable
        native.check_mapped(each)
    return lambda drawing: DeviceNeighborSampler(
        graph,
        placed,
        drawing.num_neighbors,
        input_type=input_type,
        sampling=drawing.sampling,
        disjoint=drawing.is_disjoint,
        temporal_strategy=drawing.temporal_strategy,
        device=device.index,
        timeout_secs=config.storage.timeout_secs,
        num_slots=config.loader.num_threads,
    )
