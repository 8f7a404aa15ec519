"""The columns with the highest scores, and the first of equal ones."""

from __future__ import annotations

import torch
from torch import Tensor


def highest(scores: Tensor, k: int) -> Tensor:
    """Columns [q, k] of the highest ``scores`` [q, n], ascending; the first of equal scores."""
    least = scores.topk(k, dim=1).values[:, -1:]
    above, equal = scores > least, scores == least
    wanted = k - above.sum(1, keepdim=True)
    taken = above | (equal & (equal.cumsum(1, dtype=torch.int32) <= wanted))
    return taken.nonzero()[:, 1].view(-1, k)
