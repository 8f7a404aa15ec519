"""Losses of edges against negatives; the gradients overwrite the scores."""

from __future__ import annotations

from typing import assert_never

import torch
from torch import Tensor
from torch.nn import functional

from lsm import native
from lsm.embed.models.kernels import on_host, takes
from lsm.embed.options import LossName


def replace_by_gradients(
    loss: LossName, positives: Tensor, negatives: Tensor, margin: float
) -> float | Tensor:
    """The sum of the losses of edges with scores ``positives`` [c] and negatives [c, k], as a
    number or a float64 tensor of one. Overwrites the scores with the gradients of that sum. A
    negative with score -inf is left out."""
    match loss:
        case "softmax" if takes(negatives):
            return on_host(native.softmax_loss, positives, negatives)
        case "softmax":
            total, of_positives = _softmax(positives, negatives)
        case "logistic":
            total, of_positives = _logistic(positives, negatives)
        case "margin":
            total, of_positives = _margin(positives, negatives, margin)
        case unknown:
            assert_never(unknown)
    positives.copy_(of_positives)
    return total.double()


def _softmax(positives: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
    largest = torch.maximum(negatives.amax(1), positives)
    of_positive = (positives - largest).exp_()
    negatives.sub_(largest[:, None]).exp_()
    total = negatives.sum(1).add_(of_positive)
    negatives.div_(total[:, None])
    loss = (total.log() + largest - positives).sum()
    return loss, of_positive.div_(total).sub_(1)


def _logistic(positives: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
    count = negatives.shape[1]
    loss = functional.softplus(-positives).sum() + functional.softplus(negatives).sum() / count
    negatives.sigmoid_().div_(count)
    return loss, -torch.sigmoid(-positives)


def _margin(positives: Tensor, negatives: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    count = negatives.shape[1]
    negatives.add_((margin - positives)[:, None]).clamp_(min=0)
    loss = negatives.sum() / count
    negatives.sign_().div_(count)
    return loss, -negatives.sum(1)
