"""Predictions of nodes: a class, several labels or numbers of each seed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lsm import native
from lsm.config.schema import Config
from lsm.config.train import TrainConfig
from lsm.data.graph_store import GraphStore
from lsm.data.node_data import NodeData
from lsm.distributed.collectives import World
from lsm.inference.options import Prediction
from lsm.loader.batch import Batch
from lsm.train.tasks.labels import (
    check_classes,
    check_labelled,
    check_loss,
    check_split_sizes,
    find_metrics,
    inverse_shares,
    is_labelled,
    kinds_of,
    prediction_of,
)
from lsm.train.tasks.losses import CrossEntropy, Loss, kinds_of_loss, open_loss
from lsm.train.tasks.metrics import METRICS, ScoreMetric, SumMetric
from lsm.train.tasks.tally import MetricTally
from lsm.train.tasks.task import Counts, Model, Task

_SCORES_AT_ONCE = 1 << 20  # numbers


class NodePrediction(Task):
    """Predicts the labels of each seed node: a class, several labels of 0 or 1, or numbers. Seeds
    and labels are those of the store.

    given_type: ``data.input_type``. options: with the loss and the metrics.
    """

    def __init__(self, given_type: str | None = None, options: TrainConfig | None = None) -> None:
        self._given_type, self._options = given_type, options or TrainConfig()
        self._loss: Loss = CrossEntropy()
        self._metrics: list[SumMetric | ScoreMetric] = [METRICS["accuracy"]]
        self._input_types: dict[Path, str] = {}

    @classmethod
    def of(cls, config: Config) -> NodePrediction:
        """The task of a configuration."""
        return cls(config.data.input_type, config.train)

    @property
    def metric(self) -> str:
        """The first metric."""
        return self._metrics[0].name

    @property
    def lower_is_better(self) -> bool:
        """Of the first metric."""
        return self._metrics[0].lower_is_better

    def check(self, config: Config, store: GraphStore, world_size: int) -> None:
        """Opens the loss and the metrics. Raises ValueError if they do not fit ``store``, or if it
        cannot be trained on: without labels, with too few nodes in a split, or with classes out of
        range."""
        nodes, options = self._nodes(store), self._options
        check_labelled(store, nodes)
        check_split_sizes(config, store, nodes, world_size)
        labels, found = nodes.labels(), {}
        for split in ("train", "valid", "test"):
            found[split] = labels[self.seeds(store, split)]
            check_classes(store, nodes, split, found[split])
        native.check_mapped(labels)
        weights = None
        if options.class_weights == "balanced" and nodes.num_classes > 0:
            weights = inverse_shares(found["train"], nodes.num_classes)
        self._loss = open_loss(options.loss, weights, options.label_smoothing)
        kinds = kinds_of(nodes, list(found.values()))
        kinds = check_loss(store, options.loss, self._loss, kinds)
        self._metrics = find_metrics(options.metrics, options.loss, kinds)

    def input_type(self, store: GraphStore) -> str:
        """As given, or the only type with labels and training nodes. Raises ValueError for another
        type, or none."""
        if store.path not in self._input_types:
            self._input_types[store.path] = self._find_input_type(store)
        return self._input_types[store.path]

    def _find_input_type(self, store: GraphStore) -> str:
        given, known = self._given_type, store.node_types
        if given is not None and given not in known:
            raise ValueError(
                f"data.input_type: expected one of {', '.join(known)} of {store.path}, got {given}"
            )
        if given is not None or len(known) == 1:
            return given or known[0]
        fitting = [name for name in known if is_labelled(store.nodes(name))]
        if len(fitting) != 1:
            raise ValueError(
                f"data.input_type: not set, and {store.path} has "
                f"{', '.join(fitting) or 'no type'} with labels and training nodes; name one of "
                f"{', '.join(fitting or known)}"
            )
        return fitting[0]

    def out_dim(self, store: GraphStore) -> int:
        """The number of classes, or of labels of each node."""
        nodes = self._nodes(store)
        return nodes.num_classes if nodes.label_meta is None else nodes.label_meta.width

    def seeds(self, store: GraphStore, split: str) -> Tensor:
        """The nodes of ``split``: [N] int64."""
        nodes = self._nodes(store)
        return nodes.split(split) if split in nodes.splits else torch.empty(0, dtype=torch.int64)

    def loss_sum(self, model: Model, batch: Batch) -> tuple[Tensor, Counts]:
        """Sum of the seeds' losses, and the sums of their metrics."""
        outputs, labels = model(batch), _labels_of(batch)
        counts: Counts = {}
        for each in self._of_training():
            counts |= each.sums(outputs.detach(), labels)
        return self._loss.sum(outputs, labels), counts

    def metrics(self, counts: Mapping[str, float], num_seeds: float) -> dict[str, float | None]:
        """The metrics that follow from a few sums."""
        sums = {name: torch.tensor(value, dtype=torch.float64) for name, value in counts.items()}
        return {
            each.name: each.value(sums, num_seeds) if num_seeds else None
            for each in self._of_training()
        }

    def tally(self) -> MetricTally:
        """The metrics of an evaluation."""
        return MetricTally(self._metrics)

    def prediction(self, store: GraphStore) -> Prediction:
        """By the labels that the loss takes; if it takes several kinds, by those of the store."""
        return prediction_of(self._nodes(store), kinds_of_loss(self._options.loss))

    def exact_outputs(self, model: nn.Module, store: GraphStore, split: str) -> dict[str, Any]:
        """Scores of the seeds, each of which comes once."""
        return {"nodes": torch.unique(self.seeds(store, split)), "outputs": ("scores",)}

    def exact_metrics(
        self, store: GraphStore, split: str, values: np.ndarray, world: World
    ) -> dict[str, float | None]:
        """The metrics of the seeds by their scores [n, out_dim]."""
        ids, labels = torch.unique(self.seeds(store, split)), self._nodes(store).labels()
        tally = self.tally()
        for part in _parts(len(ids), values.shape[1], world):
            outputs = torch.from_numpy(np.array(values[part]))
            tally.add_rows(outputs, labels.index_select(0, ids[part]))
        return tally.metrics(world)

    def _of_training(self) -> list[SumMetric]:
        return [each for each in self._metrics if isinstance(each, SumMetric) and each.in_training]

    def _nodes(self, store: GraphStore) -> NodeData:
        return store.nodes(self.input_type(store))


def _parts(num_rows: int, width: int, world: World) -> list[slice]:
    """This rank's part of the rows in pieces, as many on every rank."""
    pieces = -(-num_rows * width // (_SCORES_AT_ONCE * world.size)) or 1
    bounds = np.linspace(0, num_rows, world.size * pieces + 1).astype(int).tolist()
    first = world.rank * pieces
    return [slice(bounds[first + i], bounds[first + i + 1]) for i in range(pieces)]


def _labels_of(batch: Batch) -> Tensor:
    """``batch.y``: [batch_size]. Raises ValueError if the batch has no labels."""
    if batch.y is None:
        raise ValueError("expected a batch with labels, got one whose y is None")
    return batch.y
