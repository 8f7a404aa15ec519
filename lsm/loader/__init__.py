"""Batches: neighbour sampling and feature reads in a pipeline ahead of training."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.loader.batch import Batch
    from lsm.loader.layers import Layer
    from lsm.loader.neighbor_loader import NeighborLoader

__all__ = ["Batch", "Layer", "NeighborLoader"]

__getattr__, __dir__ = lazily(
    __name__, {"Batch": "batch", "Layer": "layers", "NeighborLoader": "neighbor_loader"}
)
