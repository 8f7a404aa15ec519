"""The nearest entities of given ones, in one pass over all embeddings."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from lsm.embed.use.highest import highest_of_blocks

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
    NaN score lowest. Memory: that of :func:`lsm.embed.use.highest.highest_of_blocks`.
    """
    exact = queries.double()
    if measure == "cosine":
        exact = torch.nn.functional.normalize(exact, dim=1)

    def scores_of(chunk: slice, first: int, rows: Tensor) -> Tensor:
        found = exact[chunk] @ rows.T
        if measure == "cosine":
            found /= rows.norm(dim=1).clamp_(min=torch.finfo(rows.dtype).tiny)
        return found.float().nan_to_num_(-torch.inf, torch.inf, -torch.inf)

    # One more, because the entity itself is removed later.
    ids, scores = highest_of_blocks(blocks, len(queries), k + 1, scores_of)
    # Others first, in their order: of k + 1 rows at most one is left out.
    order = (ids != own[:, None]).int().argsort(dim=1, descending=True, stable=True)[:, :k]
    return ids.gather(1, order), scores.gather(1, order)
