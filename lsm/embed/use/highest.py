"""The highest scores of rows that are read block by block, and the first of equal ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

SCORE_BYTES = 16 << 20
"""Memory of the scores, in float64, that are computed at a time."""


def highest_of_blocks(
    blocks: Iterable[tuple[int, Tensor]],
    num_queries: int,
    k: int,
    scores_of: Callable[[slice, int, Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """The rows with the highest scores for each query: ids [q, k] int64 and scores [q, k] float32,
    best first, lower ids first among equals. If there are fewer rows, -1 and -inf follow.

    ``blocks``: first id and rows [n, dim] float32, by ascending id; read once. ``scores_of``: takes
    some queries, the first id of a block and its rows in float64, and returns scores [c, n] float32
    without NaN. Memory: two blocks, SCORE_BYTES, and the answers.
    """
    ids = torch.full((num_queries, k), -1, dtype=torch.int64)
    best = torch.full((num_queries, k), -torch.inf)
    num_found = 0  # of each query
    for first, rows in blocks:
        exact = rows.double()
        size = max(1, SCORE_BYTES // (8 * len(rows)))
        end = min(k, num_found + len(rows))
        for begin in range(0, num_queries, size):
            chunk = slice(begin, min(begin + size, num_queries))
            scores = scores_of(chunk, first, exact)
            places = highest(scores, min(k, len(rows)))
            both = torch.cat((best[chunk, :num_found], scores.gather(1, places)), dim=1)
            both_ids = torch.cat((ids[chunk, :num_found], places + first), dim=1)
            order = both.argsort(dim=1, descending=True, stable=True)[:, :end]
            best[chunk, :end], ids[chunk, :end] = both.gather(1, order), both_ids.gather(1, order)
        num_found = end
    return ids, best


def highest(scores: Tensor, k: int) -> Tensor:
    """Columns [q, k] of the highest ``scores`` [q, n], ascending; the first of equal scores."""
    if k == scores.size(1):
        return torch.arange(k).expand(len(scores), k)
    values, places = scores.topk(k + 1, dim=1)
    places = places[:, :k].sort(dim=1).values
    # topk takes any of equal scores: where the next one equals the last, the first are sought.
    is_tie = values[:, k - 1] == values[:, k]
    if is_tie.any():
        places[is_tie] = _first_highest(scores[is_tie], values[is_tie, k - 1 : k], k)
    return places


def _first_highest(scores: Tensor, least: Tensor, k: int) -> Tensor:
    """As :func:`highest`, where ``least`` [q, 1] are the k-th highest scores."""
    above, equal = scores > least, scores == least
    wanted = k - above.sum(1, keepdim=True)
    taken = above | (equal & (equal.cumsum(1, dtype=torch.int32) <= wanted))
    return taken.nonzero()[:, 1].view(-1, k)
