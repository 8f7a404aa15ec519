"""The loaders of a job, one per split."""

from __future__ import annotations

from collections.abc import Callable

import torch

from lsm import native
from lsm.core.option_types import settled
from lsm.features.loader import FeatureLoader
from lsm.graph.topology import Topology
from lsm.loader.neighbor_loader import NeighborLoader
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler, choose_placement, place_topology
from lsm.sampler.options import Sampling
from lsm.storage.read_ahead import ReadAhead
from lsm.train.memory_plan import MemoryPlan
from lsm.train.setup import Setup

Sampler = NeighborSampler | DeviceNeighborSampler


def build_loaders(
    setup: Setup, plan: MemoryPlan, features: FeatureLoader, read_ahead: ReadAhead
) -> dict[str, NeighborLoader]:
    """The loaders of a job by split."""
    config, store = setup.config, setup.store
    in_memory = config.data.topology == "memory"
    topology, labels = store.topology(in_memory), store.labels(in_memory)
    new_sampler = _sampler_factory(setup, topology)

    def loader(split: str, num_neighbors: list[int], batch_size: int) -> NeighborLoader:
        return NeighborLoader(
            store,
            num_neighbors,
            setup.task.seeds(store, split),
            batch_size,
            shuffle=split == "train",
            seed=config.train.seed,
            rank=setup.world.rank,
            world_size=setup.world.size,
            features=features,
            topology=topology,
            labels=labels,
            sampler=new_sampler(num_neighbors, config.sampler if split == "train" else Sampling()),
            prefetch=read_ahead,
            staging_bytes=settled(config.loader.staging_bytes),
            num_threads=config.loader.num_threads,
            timeout_secs=config.storage.timeout_secs,
            window_bytes=plan.window_bytes or None,
        )

    evaluation = (config.eval_num_neighbors, config.eval_batch_size)
    return {
        "train": loader("train", config.sampler.num_neighbors, config.train.batch_size),
        "valid": loader("valid", *evaluation),
        "test": loader("test", *evaluation),
    }


def _sampler_factory(setup: Setup, topology: Topology) -> Callable[[list[int], Sampling], Sampler]:
    """A function that makes samplers of ``topology`` on the GPU or on the host, for given numbers
    of neighbours and sampling options."""
    config, device, num_bytes = setup.config, setup.device, topology.num_bytes
    free_bytes = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
    placement = choose_placement(config.topology.placement, device, num_bytes, free_bytes)
    if placement == "host":
        return lambda num_neighbors, sampling: NeighborSampler(
            topology, num_neighbors, sampling=sampling
        )
    placed = place_topology(topology, placement, device)
    native.check_mapped(topology.indptr)
    native.check_mapped(topology.indices)
    return lambda num_neighbors, sampling: DeviceNeighborSampler(
        topology,
        placed,
        num_neighbors,
        sampling=sampling,
        device=device.index,
        timeout_secs=config.storage.timeout_secs,
        num_slots=config.loader.num_threads,
    )
