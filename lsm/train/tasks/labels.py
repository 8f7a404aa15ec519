"""Checks of a store's labels and splits, and of the loss and the metrics that they are for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lsm.config.schema import Config
from lsm.data.graph_store import GraphStore
from lsm.data.node_data import NodeData
from lsm.inference.options import Prediction
from lsm.train.tasks.losses import Loss
from lsm.train.tasks.metrics import METRICS, Kind, ScoreMetric, SumMetric, in_columns

_IN_WORDS: dict[Kind, str] = {
    "classes": "a class of each node",
    "labels": "labels of 0 or 1",
    "values": "numbers",
}
_LOSS_OF: dict[Kind, str] = {"classes": "cross_entropy", "labels": "bce", "values": "mse"}
_PREDICTION_OF: dict[Kind, Prediction] = {"classes": "class", "labels": "labels", "values": "value"}
_METRIC_OF: dict[Kind, str] = {"classes": "accuracy", "labels": "f1_micro", "values": "rmse"}


def is_labelled(nodes: NodeData) -> bool:
    """True for nodes with labels, of which some are for training."""
    return nodes.has_labels and "train" in nodes.splits and len(nodes.split("train")) > 0


def check_labelled(store: GraphStore, nodes: NodeData) -> None:
    """Raises ValueError without labels or without training nodes."""
    remedy = "or train in your own loop over NeighborLoader (docs/tasks/own-loop.md)"
    of_type = f" of type {nodes.node_type}" if store.is_typed else ""
    if not nodes.has_labels:
        raise ValueError(
            f"data.path: {store.path} has no labels{of_type}, and lsm train classifies nodes; "
            f"convert the graph again with node_label.npy next to its arrays, {remedy}"
        )
    if not is_labelled(nodes):
        raise ValueError(
            f"data.path: {store.path} has no training nodes{of_type}; convert the graph again with "
            f"train_idx.npy or train_mask.npy next to its arrays, {remedy}"
        )


def check_split_sizes(config: Config, store: GraphStore, nodes: NodeData, world_size: int) -> None:
    """Raises ValueError for too few training or validation nodes."""
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


def check_classes(store: GraphStore, nodes: NodeData, split: str, labels: Tensor) -> None:
    """Raises ValueError for a class of a ``split`` that there is not."""
    if len(labels) == 0 or nodes.num_classes == 0:
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= nodes.num_classes:
        raise ValueError(
            f"{store.path}: labels of split {split}: expected 0 to {nodes.num_classes - 1}, got "
            f"{low} to {high}; run `lsm data verify {store.path}` and convert again"
        )


def kinds_of(nodes: NodeData, labels: Sequence[Tensor]) -> list[Kind]:
    """The kinds that the ``labels`` of the splits may be taken for."""
    if nodes.num_classes > 0:
        return ["classes"]
    columns = (in_columns(each)[0] for each in labels)
    are_flags = all(bool(((each == 0) | (each == 1)).all()) for each in columns)
    return ["labels", "values"] if are_flags else ["values"]


def prediction_of(nodes: NodeData, kinds: Sequence[Kind] = ()) -> Prediction:
    """The meaning of scores for labels of ``kinds``; unless there is one, for the labels of
    ``nodes``."""
    if len(kinds) != 1:
        kinds = kinds_of(nodes, [nodes.labels()]) if nodes.has_labels else ["classes"]
    return _PREDICTION_OF[kinds[0]]


def check_loss(store: GraphStore, name: str, loss: Loss, kinds: Sequence[Kind]) -> list[Kind]:
    """The kinds of labels that ``loss`` takes those of the store for. Raises ValueError if it takes
    none."""
    found = [kind for kind in kinds if kind in loss.kinds]
    if not found:
        wanted = " or ".join(_IN_WORDS[kind] for kind in loss.kinds)
        raise ValueError(
            f"train.loss: {name} takes {wanted}, and the labels of {store.path} are "
            f"{_IN_WORDS[kinds[0]]}; set train.loss={_LOSS_OF[kinds[0]]}"
        )
    return found


def find_metrics(
    names: Sequence[str] | None, loss: str, kinds: Sequence[Kind]
) -> list[SumMetric | ScoreMetric]:
    """The metrics that ``train.metrics`` names, or that of the ``loss``. Raises ValueError for one
    that does not fit labels of ``kinds``."""
    if names is None:
        names = ["mae" if loss == "mae" else _METRIC_OF[kinds[0]]]
    fitting = [name for name, each in METRICS.items() if set(each.kinds) & set(kinds)]
    for name in names:
        if name not in fitting:
            raise ValueError(
                f"train.metrics: {name} does not fit train.loss={loss} and its labels "
                f"({_IN_WORDS[kinds[0]]}); expected among {', '.join(fitting)}"
            )
    return [METRICS[name] for name in dict.fromkeys(names)]


def inverse_shares(labels: Tensor, num_classes: int) -> Tensor:
    """A weight for each class, 1 on average over ``labels`` [n]; of absent classes 0."""
    counts = torch.bincount(labels, minlength=num_classes)
    present = int((counts > 0).sum())
    shares = len(labels) / (present * counts.clamp(min=1)).float()
    return torch.where(counts > 0, shares, 0.0)
