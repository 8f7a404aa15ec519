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

    def of_pairs(self, entities: Tensor, ids: Tensor) -> Tensor:
        """[c]: the shift of each query's score with the entity of the same row."""
        return (entities // self.rows == ids // self.rows) * self.shift

    def of_all(self, entities: Tensor, ids: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """The shifts of ids [k] for a query in each frame, [frames, k] of the dtype of ``like``;
        and the frame [c] of each query."""
        frames = entities // self.rows
        numbers = torch.arange(int(frames.max()) + 1, device=ids.device)
        return (ids // self.rows == numbers[:, None]).to(like.dtype) * self.shift, frames
