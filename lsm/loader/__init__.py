"""Batches: neighbour sampling and feature reads in a pipeline ahead of training."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.loader.batch import Batch
    from lsm.loader.layers import Layer
    from lsm.loader.link_neighbor_loader import LinkNeighborLoader
    from lsm.loader.neighbor_loader import NeighborLoader

__all__ = ["Batch", "Layer", "LinkNeighborLoader", "NeighborLoader"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "Batch": "batch",
        "Layer": "layers",
        "LinkNeighborLoader": "link_neighbor_loader",
        "NeighborLoader": "neighbor_loader",
    },
)
