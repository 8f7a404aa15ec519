"""The task of a training: its seeds, its loss and its metrics. The loop knows no more of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from torch import Tensor

from lsm.config.schema import Config
from lsm.data.graph_store import GraphStore
from lsm.distributed.collectives import World
from lsm.loader.batch import Batch

Model = Callable[[Batch], Tensor]
"""Outputs of the seeds of a batch, [batch_size, out_dim]."""

Counts = dict[str, Tensor]
"""Sums over the seeds of a batch by name, each of one number."""


class Tally(Protocol):
    """The record of an evaluation on a rank."""

    def add(self, model: Model, batch: Batch) -> None:
        """Counts the seeds of a batch."""

    def metrics(self, world: World) -> dict[str, float | None]:
        """Metrics of the seeds of all ranks by name; None without seeds. A collective."""


class Task(Protocol):
    """Something to learn from the nodes of a store."""

    @property
    def metric(self) -> str:
        """The metric to select models by."""

    @property
    def lower_is_better(self) -> bool:
        """Of that metric."""

    def check(self, config: Config, store: GraphStore, world_size: int) -> None:
        """Raises ValueError if ``store`` cannot be trained on."""

    def input_type(self, store: GraphStore) -> str:
        """The node type of the seeds."""

    def out_dim(self, store: GraphStore) -> int:
        """Width of the network's output."""

    def seeds(self, store: GraphStore, split: str) -> Tensor:
        """The nodes of ``split``, by their ids in the type: [N] int64."""

    def loss_sum(self, model: Model, batch: Batch) -> tuple[Tensor, Counts]:
        """Sum of the seeds' losses, to be differentiated, and their counts. Without seeds, a sum
        of 0 that depends on the output of ``model``, as DDP needs."""

    def metrics(self, counts: Mapping[str, float], num_seeds: float) -> dict[str, float | None]:
        """Metrics of training by name, from the sums of counts over ``num_seeds`` seeds; None
        without seeds."""

    def tally(self) -> Tally:
        """The start of an evaluation."""
