"""Losses of the seeds' outputs, as sums over seeds. Labels are as in ``metrics``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor
from torch.nn import functional

from lsm.core.imported import import_named, is_imported
from lsm.nn.models import loss_sum
from lsm.train.tasks.metrics import Kind, in_columns


class Loss(Protocol):
    """The loss of outputs [b, k] for labels."""

    kinds: tuple[Kind, ...]
    """The labels that it takes."""

    def sum(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The sum over seeds, to be differentiated. Without seeds, a 0 that depends on
        ``outputs``."""


class CrossEntropy:
    """Cross entropy over classes.

    class_weights: [classes], or None. label_smoothing: Share of each target that is spread over all
    classes.
    """

    kinds: tuple[Kind, ...] = ("classes",)

    def __init__(self, class_weights: Tensor | None = None, label_smoothing: float = 0.0) -> None:
        self._class_weights, self._label_smoothing = class_weights, label_smoothing

    def sum(self, outputs: Tensor, labels: Tensor) -> Tensor:
        if self._class_weights is not None and self._class_weights.device != outputs.device:
            self._class_weights = self._class_weights.to(outputs.device)
        return loss_sum(
            outputs,
            labels,
            class_weights=self._class_weights,
            label_smoothing=self._label_smoothing,
        )


class ColumnLoss:
    """A loss of each column, of which each seed has the mean over its known ones."""

    def __init__(self, of_each: Callable[..., Tensor], *kinds: Kind) -> None:
        self._of_each, self.kinds = of_each, kinds

    def sum(self, outputs: Tensor, labels: Tensor) -> Tensor:
        wanted, known = in_columns(labels)
        losses = self._of_each(outputs, wanted, reduction="none") * known
        return (losses.sum(dim=1) / known.sum(dim=1).clamp(min=1)).sum()


class OwnLoss:
    """A function of the user on outputs and labels. It returns the mean over seeds, as torch's
    losses do, or the loss of each seed, [b]."""

    kinds: tuple[Kind, ...] = ("classes", "labels", "values")

    def __init__(self, name: str) -> None:
        found: Any = import_named("train.loss", name)
        self._name, self._function = name, found() if isinstance(found, type) else found
        if not callable(self._function):
            raise ValueError(f"train.loss: expected a function, got {name}: {found!r}")

    def sum(self, outputs: Tensor, labels: Tensor) -> Tensor:
        if len(labels) == 0:
            return outputs.sum()
        # torch's losses would broadcast [b, 1] and [b] to [b, b].
        is_flat = labels.is_floating_point() and labels.dim() == 1
        found = self._function(outputs.squeeze(1) if is_flat else outputs, labels)
        shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        if shape == []:
            return found * len(labels)
        if shape != [len(labels)]:
            raise ValueError(
                f"train.loss: {self._name}: expected the mean over seeds, or a loss for each of "
                f"the {len(labels)} seeds, got {shape}"
            )
        return found.sum()


def open_loss(name: str, class_weights: Tensor | None, label_smoothing: float) -> Loss:
    """The loss that ``train.loss`` names. Raises ValueError for a function that cannot be
    imported."""
    if name == "cross_entropy":
        return CrossEntropy(class_weights, label_smoothing)
    if name == "bce":
        return ColumnLoss(functional.binary_cross_entropy_with_logits, "labels")
    if name == "mse":
        return ColumnLoss(functional.mse_loss, "values")
    if name == "mae":
        return ColumnLoss(functional.l1_loss, "values")
    return OwnLoss(name)


def kinds_of_loss(name: str) -> tuple[Kind, ...]:
    """The labels that the loss takes. Imports no function of the user."""
    return OwnLoss.kinds if is_imported(name) else open_loss(name, None, 0.0).kinds
