"""Losses of edges against negatives, with gradients that replace the scores."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from lsm.embed import host_kernels
from lsm.embed.options import LossName


def loss_and_gradient(
    loss: LossName, positives: Tensor, negatives: Tensor, margin: float
) -> tuple[Tensor | float, Tensor]:
    """The sum of the losses of edges with scores ``positives`` [c] and negatives [c, k], and its
    gradient by ``positives``. Overwrites ``negatives`` by their gradient, and may overwrite
    ``positives``. A negative of score -inf is left out."""
    if loss == "softmax" and host_kernels.takes(negatives):
        return host_kernels.softmax_loss(positives, negatives), positives
    if loss == "softmax":
        return _softmax(positives, negatives)
    if loss == "logistic":
        return _logistic(positives, negatives)
    return _margin(positives, negatives, margin)


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
