"""Node classification: the class of each seed, by cross-entropy and accuracy."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from lsm import native
from lsm.config.schema import Config
from lsm.data.graph_store import GraphStore
from lsm.loader.batch import Batch
from lsm.nn.models import loss_sum
from lsm.train.tasks.task import Counts, Model


class NodeClassification:
    """Predicts the class of each seed node. Seeds and labels are those of the store."""

    metric = "accuracy"
    count_names: tuple[str, ...] = ("num_correct",)

    def check(self, config: Config, store: GraphStore, world_size: int) -> None:
        """Raises ValueError if ``store`` cannot be trained on: without classes, with too few nodes
        in a split, or with labels out of range."""
        _check_classes(store)
        _check_split_sizes(config, store, world_size)
        labels = store.labels()
        for split in ("train", "valid", "test"):
            _check_labels(store, split, labels[self.seeds(store, split)])
        native.check_mapped(labels)

    def out_dim(self, store: GraphStore) -> int:
        """The number of classes."""
        return store.num_classes

    def seeds(self, store: GraphStore, split: str) -> Tensor:
        """The nodes of ``split``: [N] int64."""
        return store.split(split)

    def loss_sum(self, model: Model, batch: Batch) -> tuple[Tensor, Counts]:
        """Sum of the seeds' cross-entropies, and their counts."""
        scores, labels = model(batch), _labels_of(batch)
        return loss_sum(scores, labels), _counts(scores, labels)

    def counts(self, model: Model, batch: Batch) -> Counts:
        """The number of seeds whose class is predicted."""
        return _counts(model(batch), _labels_of(batch))

    def metrics(self, counts: Mapping[str, float], num_seeds: float) -> dict[str, float | None]:
        """The accuracy."""
        return {"accuracy": counts["num_correct"] / num_seeds if num_seeds else None}


def _labels_of(batch: Batch) -> Tensor:
    """``batch.y``: [batch_size]. Raises ValueError if the batch has no labels."""
    if batch.y is None:
        raise ValueError("expected a batch with labels, got one whose y is None")
    return batch.y


def _counts(scores: Tensor, labels: Tensor) -> Counts:
    """Rows of ``scores`` [b, classes] whose maximum is at ``labels`` [b]."""
    return {"num_correct": (scores.argmax(dim=1) == labels).sum()}


def _check_classes(store: GraphStore) -> None:
    remedy = "or train in your own loop over NeighborLoader (docs/tasks/own-loop.md)"
    if store.num_classes == 0:
        raise ValueError(
            f"data.path: {store.path} has no labels, and lsm train classifies nodes; convert the "
            f"graph again with node_label.npy beside its arrays, {remedy}"
        )
    if len(store.split("train")) == 0:
        raise ValueError(
            f"data.path: {store.path} has no training nodes; convert the graph again with "
            f"train_idx.npy or train_mask.npy beside its arrays, {remedy}"
        )


def _check_split_sizes(config: Config, store: GraphStore, world_size: int) -> None:
    num_train = len(store.split("train"))
    if num_train < world_size:
        raise ValueError(
            f"world size: {world_size} ranks need at least as many training nodes, but "
            f"{store.path} has {num_train}; start fewer processes"
        )
    if config.train.select == "best" and len(store.split("valid")) == 0:
        raise ValueError(
            f"train.select: best needs validation nodes, and {store.path} has none; "
            "set train.select=last"
        )


def _check_labels(store: GraphStore, split: str, labels: Tensor) -> None:
    if len(labels) == 0:
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= store.num_classes:
        raise ValueError(
            f"{store.path}: labels of split {split}: expected 0 to {store.num_classes - 1}, got "
            f"{low} to {high}; run `lsm data verify {store.path}` and convert again"
        )
