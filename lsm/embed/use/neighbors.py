"""The nearest entities of given ones, in one pass over all embeddings."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from lsm.embed.use.highest import highest

MEASURES = ("cosine", "dot")


def nearest(
    blocks: Iterable[tuple[int, Tensor]],
    queries: Tensor,
    own: Tensor,
    k: int,
    measure: str = "cosine",
) -> tuple[Tensor, Tensor]:
    """(ids [q, k] int64, scores [q, k] float32) of the entities that score highest with each of
    ``queries`` [q, dim], best first, lower ids first among equals.

    ``blocks``: first id and embeddings [n, dim] float32, by ascending id. ``own``: [q] int64, an
    entity that is left out of each answer. k: at most the number of other entities. Embeddings of
    NaN score lowest. Memory: two blocks, and three numbers per query and row of a block.
    """
    if measure == "cosine":
        queries = torch.nn.functional.normalize(queries, dim=1)
    ids = torch.empty((len(queries), 0), dtype=torch.int64)
    scores = torch.empty((len(queries), 0))
    for first, rows in blocks:
        here = queries @ rows.T
        if measure == "cosine":
            here /= rows.norm(dim=1).clamp_(min=torch.finfo(rows.dtype).tiny)
        here.nan_to_num_(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
        numbers = torch.arange(first, first + len(rows))
        # One more, because the entity itself is removed later.
        places = highest(here, min(k + 1, len(rows)))
        ids = torch.cat((ids, numbers[places]), dim=1)
        scores = torch.cat((scores, here.gather(1, places)), dim=1)
        ids, scores = _best(ids, scores, k + 1)
    is_other = ids != own[:, None]
    # Others first, in their order: of k + 1 rows at most one is left out.
    order = is_other.int().argsort(dim=1, descending=True, stable=True)[:, :k]
    return ids.gather(1, order), scores.gather(1, order)


def _best(ids: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    order = scores.argsort(dim=1, descending=True, stable=True)[:, :k]
    return ids.gather(1, order), scores.gather(1, order)
