"""The task of a training: its seeds, its loss and its metrics. The loop knows no more of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from lsm.cache import scores
from lsm.config.schema import Config
from lsm.data.graph_store import GraphStore
from lsm.data.links.splits import MessageEdges
from lsm.distributed.collectives import World
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.inference.options import Prediction
from lsm.loader.batch import Batch
from lsm.loader.inputs import Drawing, open_topology
from lsm.loader.parts import LoaderParts, open_node_parts
from lsm.sampler.typed_neighbor import TypedTopology

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


class Task(ABC):
    """Something to learn from a store."""

    cache_score = scores.AUTO
    """The score that ``cache.score=auto`` stands for."""
    samples_on_host = False
    """True if the host samples the task's batches also for a GPU that trains."""

    @property
    @abstractmethod
    def metric(self) -> str:
        """The metric to select models by."""

    @property
    @abstractmethod
    def lower_is_better(self) -> bool:
        """Of that metric."""

    @abstractmethod
    def check(self, config: Config, store: GraphStore, world_size: int) -> None:
        """Raises ValueError if ``store`` cannot be trained on."""

    @abstractmethod
    def input_type(self, store: GraphStore) -> str:
        """The node type of the seeds."""

    @abstractmethod
    def out_dim(self, store: GraphStore) -> int:
        """Width of the network's output."""

    @abstractmethod
    def seeds(self, store: GraphStore, split: str) -> Tensor:
        """The nodes of ``split``, by their ids in the type: [N] int64."""

    def on_host(self, batch: Batch) -> Batch:
        """``batch`` with the values that the loss takes from the host. A batch that the host
        samples is still there."""
        return batch

    @abstractmethod
    def loss_sum(self, model: Model, batch: Batch) -> tuple[Tensor, Counts]:
        """Sum of the seeds' losses, to be differentiated, and their counts, without waiting for a
        GPU. Without seeds, a sum of 0 that depends on the output of ``model``, as DDP needs."""

    @abstractmethod
    def metrics(self, counts: Mapping[str, float], num_seeds: float) -> dict[str, float | None]:
        """Metrics of training by name, from the sums of counts over ``num_seeds`` seeds; None
        without seeds."""

    @abstractmethod
    def tally(self) -> Tally:
        """The start of an evaluation."""

    def open(self, store: GraphStore) -> None:  # noqa: B027 (few tasks have such files)
        """Opens the files that the task's network needs besides the store."""

    def network(self, model: nn.Module) -> nn.Module:
        """The network to train, of one that gives the rows of nodes."""
        return model

    def other_types(self) -> tuple[str, ...]:
        """Node types whose rows the network gives besides those of the seeds."""
        return ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a resumed run must share, by name."""
        return {}

    def prediction(self, store: GraphStore) -> Prediction:
        """The meaning of scores. value: they are the predictions."""
        return "value"

    def exact_outputs(self, model: nn.Module, store: GraphStore, split: str) -> dict[str, Any]:
        """The options of an inference over all neighbours whose output exact_metrics() takes.
        Raises ValueError for a task without."""
        raise ValueError("give this task exact_outputs() and exact_metrics()")

    def exact_metrics(
        self, store: GraphStore, split: str, values: np.ndarray, world: World
    ) -> dict[str, float | None]:
        """Metrics of ``split`` by name from the rows of that output, in a mapped file. A
        collective."""
        raise ValueError("give this task exact_outputs() and exact_metrics()")

    @property
    def protocol(self) -> str:
        """A line that tells how seeds are evaluated, if that needs one."""
        return ""

    def labels(self, store: GraphStore, in_memory: bool = False) -> Tensor | None:
        """The labels of the seeds' type, [N] or [N, k]; None for a task without."""
        return store.nodes(self.input_type(store)).labels(in_memory)

    def has_own_edges(self, split: str) -> bool:
        """True if ``split`` samples other edges than training."""
        return False

    def message_graph(
        self, store: GraphStore, split: str, in_memory: bool = False
    ) -> Mapping[EdgeType, MessageEdges]:
        """The edges that a split may sample, of types that do not take all of the store's."""
        return {}

    def open_topology(
        self, store: GraphStore, split: str, drawing: Drawing, in_memory: bool = False
    ) -> Topology | TypedTopology:
        """The edges that ``split`` samples, with the values that ``drawing`` needs."""
        return open_topology(store, drawing, in_memory)

    def open_parts(
        self,
        store: GraphStore,
        split: str,
        drawing: Drawing,
        topology: Topology | TypedTopology,
        *,
        sampler: Any = None,
        labels: Tensor | None = None,
        **schedule: Any,
    ) -> LoaderParts:
        """The parts of the loader of ``split``; arguments as open_node_parts() takes them."""
        seeds = self.seeds(store, split)
        return open_node_parts(
            store,
            drawing,
            (self.input_type(store), seeds) if store.is_typed else seeds,
            labels=labels,
            topology=topology,
            sampler=sampler,
            **schedule,
        )
