"""Builds and checks the parts of a training job on one rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from lsm.config.schema import Config
from lsm.distributed.collectives import World
from lsm.features.sets import Features
from lsm.loader.loader import Loader
from lsm.run.torch_setup import set_up_device
from lsm.train.gpu_memory import check_job_room
from lsm.train.loaders import build_loaders
from lsm.train.memory_facts import plan_memory
from lsm.train.memory_plan import MemoryPlan
from lsm.train.model import Network, build_network
from lsm.train.read_settings import find_read_settings
from lsm.train.rows import open_rows
from lsm.train.setup import Setup
from lsm.train.store import open_store
from lsm.train.tasks.task import Task


@dataclass(frozen=True)
class Job(Setup):
    """The parts of a training job, on one rank."""

    memory: MemoryPlan
    """The memory that it takes."""
    features: Features
    loaders: Mapping[str, Loader]
    """By split: train, valid, test. All take their rows from ``features``."""
    network: Network

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
def open_job(config: Config, world: World, task: Task) -> Iterator[Job]:
    """A context with the job of ``config`` for ``task``, which closes its features at the end.
    Raises ValueError or OSError, on every rank alike, if the store cannot be trained on."""
    settings = config.train
    device = set_up_device(
        config.device, world, settings.num_threads, settings.precision, settings.deterministic
    )
    setup = Setup(config, world, device, open_store(config, world, task), task)
    plan = plan_memory(setup)
    setup = replace(setup, config=plan.config)
    reads = find_read_settings(setup)
    check_job_room(setup)
    with open_rows(setup, plan, config.cache, reads.options) as features:
        loaders = build_loaders(setup, plan, features, reads.read_ahead)
        network = build_network(setup, features, len(loaders["train"]))
        yield Job(**vars(setup), memory=plan, features=features, loaders=loaders, network=network)
