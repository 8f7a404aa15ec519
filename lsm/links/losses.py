"""Losses of links against their negatives."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def link_loss_sum(name: str, scores: Tensor) -> Tensor:
    """The sum of the losses of links with ``scores`` [p, 1 + k] of each link, then of its
    negatives; -inf is none.

    bce: the binary cross entropy of the link, plus the mean of its negatives'; bpr: the mean of
    -log sigmoid(link - negative) (Rendle et al., 2009); infonce: the cross entropy of the link
    among itself and its negatives.
    """
    if not len(scores):
        return scores.sum()
    positive, negative = scores[:, :1], scores[:, 1:]
    if name == "infonce":
        return (scores.logsumexp(1, keepdim=True) - positive).sum()
    counts = torch.isfinite(negative).sum(1).clamp(min=1)
    if name == "bpr":
        return (functional.softplus(negative - positive).sum(1) / counts).sum()
    of_negatives = functional.softplus(negative).sum(1) / counts
    return functional.softplus(-positive).sum() + of_negatives.sum()
