"""The loaders of a job, one per split."""

from __future__ import annotations

from collections.abc import Callable

import torch

from lsm import native
from lsm.core.option_types import settled
from lsm.features.sets import Features
from lsm.graph.topology import Topology
from lsm.loader.inputs import Drawing, open_topology
from lsm.loader.neighbor_loader import NeighborLoader
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler, choose_placement, place_topology
from lsm.sampler.typed_neighbor import TypedTopology
from lsm.storage.read_ahead import ReadAhead
from lsm.train.memory_plan import MemoryPlan
from lsm.train.sampling import batch_size, drawing_of
from lsm.train.setup import Setup

NewSampler = Callable[[Drawing], DeviceNeighborSampler | None]


def build_loaders(
    setup: Setup, plan: MemoryPlan, features: Features, read_ahead: ReadAhead
) -> dict[str, NeighborLoader]:
    """The loaders of a job by split."""
    config, store, task = setup.config, setup.store, setup.task
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

    return {split: loader(split) for split in ("train", "valid", "test")}


def _gpu_samplers(setup: Setup, topology: Topology | TypedTopology) -> NewSampler:
    """A function that makes samplers of ``topology`` on the GPU; it returns None where the host
    samples."""
    config, device, num_bytes = setup.config, setup.device, topology.num_bytes
    given = config.topology.placement
    free_bytes = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
    placement = choose_placement(given, device, num_bytes, free_bytes)
    if isinstance(topology, TypedTopology) and given in ("uva", "device"):
        raise ValueError(
            f"topology.placement: {given} samples graphs of one type, without times, weights or "
            "subgraphs; set it to auto or host"
        )
    if placement == "host" or isinstance(topology, TypedTopology):
        return lambda drawing: None
    placed = place_topology(topology, placement, device)
    native.check_mapped(topology.indptr)
    native.check_mapped(topology.indices)
    return lambda drawing: DeviceNeighborSampler(
        topology,
        placed,
        drawing.hops,
        sampling=drawing.sampling,
        device=device.index,
        timeout_secs=config.storage.timeout_secs,
        num_slots=config.loader.num_threads,
    )
