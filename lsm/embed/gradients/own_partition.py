"""Scores of entities in the partition of their query, from disk."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class OwnPartition:
    """Shifts the scores of entities that are in the partition of their query's entity."""

    rows: int
    """Rows of a partition in the buffer: partition in frame f starts with row ``f * rows``."""
    shift: float

    def firsts(self, entities: Tensor) -> Tensor:
        """First rows of the partitions of the ``entities`` of queries, as int32."""
        return (entities // self.rows * self.rows).int()

    def frames(self, ids: Tensor) -> Tensor:
        """The frames of rows ``ids``, with their shape."""
        return ids // self.rows

    def of_pairs(self, queries: Tensor, targets: Tensor) -> Tensor:
        """[c]: the shift of each query's score with the entity of the same row. By the frames [c]
        of both."""
        return (queries == targets) * self.shift

    def of_all(self, queries: Tensor, negatives: Tensor, like: Tensor) -> Tensor:
        """The shifts of negatives [k] for a query in each frame, [frames, k] of the dtype of
        ``like``. By the frames of queries [c] and negatives."""
        numbers = torch.arange(int(queries.max()) + 1, device=queries.device)
        return (negatives == numbers[:, None]).to(like.dtype) * self.shift
