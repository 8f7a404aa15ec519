"""Node classification: the class of each seed, by cross-entropy and accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from lsm import native
from lsm.config.schema import Config
from lsm.data.graph_store import GraphStore
from lsm.data.node_data import NodeData
from lsm.loader.batch import Batch
from lsm.nn.models import loss_sum
from lsm.train.tasks.task import Counts, Model


class NodeClassification:
    """Predicts the class of each seed node. Seeds and labels are those of the store.

    given_type: ``data.input_type``. balances: Weigh the classes in the loss of training, inversely
    proportional to their training nodes. label_smoothing: Share of each target that is spread over
    all classes there.
    """

    metric = "accuracy"
    count_names: tuple[str, ...] = ("num_correct",)

    def __init__(
        self,
        given_type: str | None = None,
        *,
        balances: bool = False,
        label_smoothing: float = 0.0,
    ) -> None:
        self._given_type, self._balances = given_type, balances
        self._label_smoothing = label_smoothing
        self._class_weights: Tensor | None = None
        self._input_types: dict[Path, str] = {}

    @classmethod
    def of(cls, config: Config) -> NodeClassification:
        """The task of a configuration."""
        options = config.train
        return cls(
            config.data.input_type,
            balances=options.class_weights == "balanced",
            label_smoothing=options.label_smoothing,
        )

    def check(self, config: Config, store: GraphStore, world_size: int) -> None:
        """Raises ValueError if ``store`` cannot be trained on: without classes, with too few nodes
        in a split, or with labels out of range."""
        nodes = self._nodes(store)
        _check_classes(store, nodes)
        _check_split_sizes(config, store, nodes, world_size)
        labels = nodes.labels()
        for split in ("train", "valid", "test"):
            _check_labels(store, nodes, split, labels[self.seeds(store, split)])
        if self._balances:
            train = labels[self.seeds(store, "train")]
            self._class_weights = _inverse_shares(train, nodes.num_classes)
        native.check_mapped(labels)

    def input_type(self, store: GraphStore) -> str:
        """As given, or the only type with classes and training nodes. Raises ValueError for another
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
        fitting = [name for name in known if _is_classified(store.nodes(name))]
        if len(fitting) != 1:
            raise ValueError(
                f"data.input_type: not set, and {store.path} has "
                f"{', '.join(fitting) or 'no type'} with labels and training nodes; name one of "
                f"{', '.join(fitting or known)}"
            )
        return fitting[0]

    def out_dim(self, store: GraphStore) -> int:
        """The number of classes."""
        return self._nodes(store).num_classes

    def seeds(self, store: GraphStore, split: str) -> Tensor:
        """The nodes of ``split``: [N] int64."""
        nodes = self._nodes(store)
        return nodes.split(split) if split in nodes.splits else torch.empty(0, dtype=torch.int64)

    def loss_sum(self, model: Model, batch: Batch) -> tuple[Tensor, Counts]:
        """Sum of the seeds' cross-entropies, and their counts."""
        scores, labels = model(batch), _labels_of(batch)
        if self._class_weights is not None:
            self._class_weights = self._class_weights.to(scores.device)
        loss = loss_sum(
            scores,
            labels,
            class_weights=self._class_weights,
            label_smoothing=self._label_smoothing,
        )
        return loss, _counts(scores, labels)

    def counts(self, model: Model, batch: Batch) -> Counts:
        """The number of seeds whose class is predicted."""
        return _counts(model(batch), _labels_of(batch))

    def metrics(self, counts: Mapping[str, float], num_seeds: float) -> dict[str, float | None]:
        """The accuracy."""
        return {"accuracy": counts["num_correct"] / num_seeds if num_seeds else None}

    def _nodes(self, store: GraphStore) -> NodeData:
        return store.nodes(self.input_type(store))


def _inverse_shares(labels: Tensor, num_classes: int) -> Tensor:
    """A weight for each class, 1 on average over ``labels`` [n]; of absent classes 0."""
    counts = torch.bincount(labels, minlength=num_classes)
    present = int((counts > 0).sum())
    shares = len(labels) / (present * counts.clamp(min=1)).float()
    return torch.where(counts > 0, shares, 0.0)


def _is_classified(nodes: NodeData) -> bool:
    return nodes.num_classes > 0 and "train" in nodes.splits and len(nodes.split("train")) > 0


def _labels_of(batch: Batch) -> Tensor:
    """``batch.y``: [batch_size]. Raises ValueError if the batch has no labels."""
    if batch.y is None:
        raise ValueError("expected a batch with labels, got one whose y is None")
    return batch.y


def _counts(scores: Tensor, labels: Tensor) -> Counts:
    """Rows of ``scores`` [b, classes] whose maximum is at ``labels`` [b]."""
    return {"num_correct": (scores.argmax(dim=1) == labels).sum()}


def _check_classes(store: GraphStore, nodes: NodeData) -> None:
    remedy = "or train in your own loop over NeighborLoader (docs/tasks/own-loop.md)"
    of_type = f" of type {nodes.node_type}" if store.is_typed else ""
    if nodes.num_classes == 0:
        raise ValueError(
            f"data.path: {store.path} has no labels{of_type}, and lsm train classifies nodes; "
            f"convert the graph again with node_label.npy beside its arrays, {remedy}"
        )
    if "train" not in nodes.splits or len(nodes.split("train")) == 0:
        raise ValueError(
            f"data.path: {store.path} has no training nodes{of_type}; convert the graph again with "
            f"train_idx.npy or train_mask.npy beside its arrays, {remedy}"
        )


def _check_split_sizes(config: Config, store: GraphStore, nodes: NodeData, world_size: int) -> None:
    num_train = len(nodes.split("train"))
    if num_train < world_size:
        raise ValueError(
            f"world size: {world_size} ranks need at least as many training nodes, but "
            f"{store.path} has {num_train}; start fewer processes"
        )
    has_valid = "valid" in nodes.splits and len(nodes.split("valid")) > 0
    if config.train.select == "best" and not has_valid:
        raise ValueError(
            f"train.select: best needs validation nodes, and {store.path} has none; "
            "set train.select=last"
        )


def _check_labels(store: GraphStore, nodes: NodeData, split: str, labels: Tensor) -> None:
    if len(labels) == 0:
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= nodes.num_classes:
        raise ValueError(
            f"{store.path}: labels of split {split}: expected 0 to {nodes.num_classes - 1}, got "
            f"{low} to {high}; run `lsm data verify {store.path}` and convert again"
        )
