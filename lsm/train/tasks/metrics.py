"""Metrics of the seeds' outputs: from sums over seeds, or from the scores of all of them.

Labels are classes, [b] int64, or numbers, [b] or [b, k]. Of these, NaN or a negative integer is
unknown and does not count. Outputs are [b, classes] or [b, k]; those of labels 0 and 1 are logits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

Kind = Literal["classes", "labels", "values"]
"""Labels: a class of each seed, several labels of 0 or 1, or numbers."""

Sums = Mapping[str, Tensor]


def are_classes(labels: Tensor) -> bool:
    """True for a class of each seed."""
    return labels.dim() == 1 and not labels.is_floating_point()


def in_columns(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers as [b, k] float32, 0 where unknown; and True where known, [b, k]."""
    columns = labels.unsqueeze(1) if labels.dim() == 1 else labels
    known = ~columns.isnan() if labels.is_floating_point() else columns >= 0
    return torch.where(known, columns, 0).float(), known


class SumMetric(ABC):
    """A metric that follows from sums over seeds."""

    name: ClassVar[str]
    kinds: ClassVar[tuple[Kind, ...]]
    lower_is_better: ClassVar[bool] = False
    in_training: ClassVar[bool] = True
    """Each sum is one number, which training keeps, too."""

    @abstractmethod
    def sums(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The sums of a batch by name."""

    @abstractmethod
    def value(self, sums: Sums, num_seeds: float) -> float | None:
        """The metric; None if nothing is known."""


class Accuracy(SumMetric):
    """The share of seeds whose class has the highest score."""

    name, kinds = "accuracy", ("classes",)

    def sums(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"num_correct": (outputs.argmax(dim=1) == labels).sum()}

    def value(self, sums: Sums, num_seeds: float) -> float | None:
        return sums["num_correct"].item() / num_seeds if num_seeds else None


_CONFUSIONS = ("true_positives", "false_positives", "false_negatives")


def _confusions(outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """True positives, false positives and false negatives of each class or label: [k] each."""
    width = outputs.size(1)
    if are_classes(labels):
        found = outputs.argmax(dim=1)
        right = found == labels
        cases = ((labels, right), (found, ~right), (labels, ~right))
        # A GPU would be awaited for the sizes of bincount() and of masks as indices.
        none = labels.new_zeros(width)
        counts = [none.scatter_add(0, classes, count.long()) for classes, count in cases]
        return dict(zip(_CONFUSIONS, counts, strict=True))
    (wanted, known), found = in_columns(labels), outputs > 0
    is_one = wanted > 0.5
    parts = (found & is_one, found & ~is_one, ~found & is_one)
    return {name: (part & known).sum(0) for name, part in zip(_CONFUSIONS, parts, strict=True)}


class F1Micro(SumMetric):
    """The harmonic mean of precision and recall over all classes or labels together."""

    name, kinds = "f1_micro", ("classes", "labels")

    def sums(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {name: each.sum() for name, each in _confusions(outputs, labels).items()}

    def value(self, sums: Sums, num_seeds: float) -> float | None:
        right, wrong, missed = (sums[name].item() for name in _CONFUSIONS)
        total = 2 * right + wrong + missed
        return 2 * right / total if total else None


class F1Macro(SumMetric):
    """The mean over classes or labels of their F1, without those that neither occur nor are
    predicted."""

    name, kinds, in_training = "f1_macro", ("classes", "labels"), False

    def sums(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {f"{name}_of_each": of for name, of in _confusions(outputs, labels).items()}

    def value(self, sums: Sums, num_seeds: float) -> float | None:
        right, wrong, missed = (sums[f"{name}_of_each"] for name in _CONFUSIONS)
        totals = 2 * right + wrong + missed
        of_each = (2 * right / totals)[totals > 0]
        return of_each.mean().item() if len(of_each) else None


class RootMeanSquaredError(SumMetric):
    """The square root of the mean squared difference."""

    name, kinds, lower_is_better = "rmse", ("values",), True

    def sums(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        wanted, known = in_columns(labels)
        squares = (outputs - wanted).double().square()
        return {"squared_error": torch.where(known, squares, 0).sum(), "num_values": known.sum()}

    def value(self, sums: Sums, num_seeds: float) -> float | None:
        count = sums["num_values"].item()
        return (sums["squared_error"].item() / count) ** 0.5 if count else None


class MeanAbsoluteError(SumMetric):
    """The mean absolute difference."""

    name, kinds, lower_is_better = "mae", ("values",), True

    def sums(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        wanted, known = in_columns(labels)
        errors = (outputs - wanted).double().abs()
        return {"absolute_error": torch.where(known, errors, 0).sum(), "num_values": known.sum()}

    def value(self, sums: Sums, num_seeds: float) -> float | None:
        count = sums["num_values"].item()
        return sums["absolute_error"].item() / count if count else None


class ScoreMetric:
    """The mean over classes or labels of a curve over the scores of all seeds. Those that all
    seeds have, or none, do not count.

    Of two classes, that of the second counts; of more, each against the others.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("classes", "labels")
    lower_is_better: ClassVar[bool] = False

    def __init__(self, name: str, curve: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.name, self._curve = name, curve

    def value(self, outputs: Tensor, labels: Tensor) -> float | None:
        """The metric of outputs [n, k]; None if no class or label counts."""
        found = [
            self._curve(scores, is_one)
            for scores, is_one in _score_columns(outputs, labels)
            if 0 < int(is_one.sum()) < len(is_one)
        ]
        return torch.stack(found).mean().item() if found else None


def _score_columns(outputs: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Scores [n], and True for those that should be high, of each class or label."""
    if not are_classes(labels):
        wanted, known = in_columns(labels)
        for column in range(outputs.size(1)):
            rows = known[:, column]
            yield outputs[rows, column], wanted[rows, column] > 0.5
    elif outputs.size(1) == 2:
        yield outputs[:, 1] - outputs[:, 0], labels == 1
    else:
        odds = _log_odds(outputs.double())
        for column in range(outputs.size(1)):
            yield odds[:, column], labels == column


def _log_odds(outputs: Tensor) -> Tensor:
    """log(p / (1 - p)) of the softmax p of ``outputs``, [n, k]. It grows with p, and shares that
    round to 0 or 1 are no ties. Rows that differ by a constant, or in their order, have equal
    ones."""
    outputs = outputs - outputs.amax(dim=1, keepdim=True)
    ascending = outputs.sort(dim=1).values
    whole = ascending.logsumexp(dim=1, keepdim=True)
    shares = outputs - whole
    without_top = ascending[:, :-1].logsumexp(dim=1, keepdim=True) - whole
    rest = torch.where(outputs == 0, without_top, torch.log1p(-shares.exp()))
    return shares - rest  # only the share of the top may be near 1


def auroc(scores: Tensor, is_one: Tensor) -> Tensor:
    """The share of pairs of a one and a zero in which the one scores higher; ties count half."""
    _, places, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum(0).double() - (counts.double() - 1) / 2)[places]  # means of ties, from 1
    ones = int(is_one.sum())
    above = ranks[is_one].sum() - ones * (ones + 1) / 2
    return above / (ones * (len(scores) - ones))


def average_precision(scores: Tensor, is_one: Tensor) -> Tensor:
    """The mean over ones of the precision at their score; ties have one threshold."""
    _, places, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    found = torch.bincount(places[is_one], minlength=len(counts)).flip(0).double()
    precision = found.cumsum(0) / counts.flip(0).cumsum(0)
    return (precision * found).sum() / found.sum()


METRICS: dict[str, SumMetric | ScoreMetric] = {
    each.name: each
    for each in (
        Accuracy(),
        F1Micro(),
        F1Macro(),
        ScoreMetric("auroc", auroc),
        ScoreMetric("average_precision", average_precision),
        RootMeanSquaredError(),
        MeanAbsoluteError(),
    )
}
"""By the name in ``train.metrics``."""
