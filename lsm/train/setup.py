"""The facts that every part of a training job is built from."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lsm.config.schema import Config
from lsm.data.graph_store import GraphStore
from lsm.distributed.collectives import World
from lsm.train.tasks.task import Task


@dataclass(frozen=True)
class Setup:
    """A configuration on one rank, with the store and the task that it names."""

    config: Config
    """The configuration; once memory is divided, with a number for each ``auto`` of memory."""
    world: World
    device: torch.device
    """The device of this rank."""
    store: GraphStore
    task: Task

    def autocast(self) -> torch.autocast:
        """A context in which the network computes with ``train.precision``."""
        bf16 = self.config.train.precision == "bf16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=bf16)
