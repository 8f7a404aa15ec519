"""Builds and checks the parts of a training job on one rank."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from lsm.config.schema import Config
from lsm.data.graph_store import GraphStore
from lsm.distributed.collectives import World
from lsm.features.loader import FeatureLoader
from lsm.loader.neighbor_loader import NeighborLoader
from lsm.run.torch_setup import set_up_device
from lsm.train.gpu_memory import check_job_room
from lsm.train.loaders import build_loaders
from lsm.train.memory_facts import plan_memory
from lsm.train.memory_plan import MemoryPlan
from lsm.train.model import Network, build_network
from lsm.train.read_settings import find_read_settings
from lsm.train.rows import open_rows
from lsm.train.store import open_store
from lsm.train.tasks.node_classification import NodeClassification


@dataclass(frozen=True)
class Job:
    """The parts of a training job, on one rank."""

    config: Config
    """The configuration, with a number for each ``auto`` of memory."""
    memory: MemoryPlan
    """The memory that it takes."""
    world: World
    device: torch.device
    """The device of this rank."""
    store: GraphStore
    features: FeatureLoader
    loaders: dict[str, NeighborLoader]
    """By split: train, valid, test. All take their rows from ``features``."""
    network: Network
    task: NodeClassification

    @property
    def keeps_features(self) -> bool:
        """True if all rows lie in memory, and no cache is before them."""
        return self.features.engine == "memory" and self.config.cache.policy == "none"

    @property
    def run_dir(self) -> Path:
        return self.config.run_dir

    @property
    def checkpoint_dir(self) -> Path:
        return self.run_dir / "checkpoints"


@contextmanager
def open_job(config: Config, world: World) -> Iterator[Job]:
    """A context with the job of ``config``, which closes its features at the end. Raises ValueError
    or OSError, on every rank alike, if the store cannot be trained on.
    """
    settings = config.train
    device = set_up_device(
        config.device, world, settings.num_threads, settings.precision, settings.deterministic
    )
    task = NodeClassification()
    store = open_store(config, world, task)
    plan = plan_memory(config, world, device, store)
    reads = find_read_settings(plan.config, world, store)
    check_job_room(plan.config, world, store, device)
    with open_rows(plan, config.cache, world, device, store, reads.options) as features:
        loaders = build_loaders(plan, world, device, store, task, features, reads.read_ahead)
        network = build_network(plan.config, world, device, store, features)
        yield Job(plan.config, plan, world, device, store, features, loaders, network, task)
