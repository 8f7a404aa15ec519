"""The loaders of a job, one per split."""

from __future__ import annotations

import torch

from lsm.core.option_types import settled
from lsm.data.graph_store import GraphStore
from lsm.distributed.collectives import World
from lsm.features.loader import FeatureLoader
from lsm.loader.neighbor_loader import NeighborLoader
from lsm.sampler.options import Sampling
from lsm.storage.read_ahead import ReadAhead
from lsm.train.budget import MemoryPlan
from lsm.train.placement import sampler_factory
from lsm.train.tasks.node_classification import NodeClassification


def build_loaders(
    plan: MemoryPlan,
    world: World,
    device: torch.device,
    store: GraphStore,
    task: NodeClassification,
    features: FeatureLoader,
    read_ahead: ReadAhead,
) -> dict[str, NeighborLoader]:
    config = plan.config
    in_memory = config.data.topology == "memory"
    topology, labels = store.topology(in_memory), store.labels(in_memory)
    new_sampler = sampler_factory(config, device, topology)

    def loader(split: str, num_neighbors: list[int], batch_size: int) -> NeighborLoader:
        return NeighborLoader(
            store,
            num_neighbors,
            task.seeds(store, split),
            batch_size,
            shuffle=split == "train",
            seed=config.train.seed,
            rank=world.rank,
            world_size=world.size,
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
