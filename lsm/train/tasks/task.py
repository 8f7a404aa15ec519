"""The task of a training: its seeds, its loss and its metrics. The loop knows no more of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from torch import Tensor

from lsm.config.schema import Config
from lsm.data.graph_store import GraphStore
from lsm.loader.batch import Batch

Model = Callable[[Batch], Tensor]
"""Outputs of the seeds of a batch, [batch_size, out_dim]."""

Counts = dict[str, Tensor]
"""Sums over the seeds of a batch by name, each of one number."""


class Task(Protocol):
    """Something to learn from the nodes of a store."""

    metric: str
    """The metric to select models by; higher is better."""
    count_names: tuple[str, ...]
    """Names of the counts."""

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

    def counts(self, model: Model, batch: Batch) -> Counts:
        """The counts of the seeds alone, for an evaluation."""

    def metrics(self, counts: Mapping[str, float], num_seeds: float) -> dict[str, float | None]:
        """Metrics by name, from the sums of counts over ``num_seeds`` seeds; None without seeds."""
