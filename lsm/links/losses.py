"""Losses of links against their negatives."""

from __future__ import annotations

from typing import Literal, assert_never

import torch
from torch import Tensor
from torch.nn import functional

LinkLossName = Literal["infonce", "bce", "bpr"]


def link_loss_sum(name: LinkLossName, scores: Tensor) -> Tensor:
    """The sum of the losses of links with ``scores`` [p, 1 + k] of each link, then of its
    negatives; -inf is none.

    bce: the binary cross entropy of the link, plus the mean of its negatives'; bpr: the mean of
    -log sigmoid(link - negative) (Rendle et al., 2009); infonce: the cross entropy of the link
    among itself and its negatives.
    """
    if not len(scores):
        return scores.sum()
    positive, negative = scores[:, :1], scores[:, 1:]
    match name:
        case "infonce":
            return (scores.logsumexp(1, keepdim=True) - positive).sum()
        case "bpr":
            return _sum_of_means(functional.softplus(negative - positive), negative)
        case "bce":
            of_negatives = _sum_of_means(functional.softplus(negative), negative)
            return functional.softplus(-positive).sum() + of_negatives
        case unknown:
            assert_never(unknown)


def _sum_of_means(losses: Tensor, negative: Tensor) -> Tensor:
    """The sum over links of the mean of their negatives' ``losses`` [p, k]."""
    counts = torch.isfinite(negative).sum(1).clamp(min=1)
    return (losses.sum(1) / counts).sum()
