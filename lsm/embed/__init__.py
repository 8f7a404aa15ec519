"""Embeddings of nodes and relations, trained partition by partition."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.embed.edge_trainer import BatchLoss, EdgeTrainer
    from lsm.embed.embeddings import Embeddings, open_run
    from lsm.embed.options import EmbedOptions
    from lsm.embed.order import Order, make_order

__all__ = [
    "BatchLoss",
    "EdgeTrainer",
    "EmbedOptions",
    "Embeddings",
    "Order",
    "make_order",
    "open_run",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "BatchLoss": "edge_trainer",
        "EdgeTrainer": "edge_trainer",
        "EmbedOptions": "options",
        "Embeddings": "embeddings",
        "Order": "order",
        "make_order": "order",
        "open_run": "embeddings",
    },
)
