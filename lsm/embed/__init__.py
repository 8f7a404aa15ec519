"""Embeddings of nodes and relations, trained partition by partition."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.embed.config import EmbedConfig, load_embed_config
    from lsm.embed.edge_trainer import BatchLoss, EdgeTrainer
    from lsm.embed.options import EmbedOptions
    from lsm.embed.orders.order import Order, make_order
    from lsm.embed.trainer import train
    from lsm.embed.use.embeddings import Embeddings, open_run

__all__ = [
    "BatchLoss",
    "EdgeTrainer",
    "EmbedConfig",
    "EmbedOptions",
    "Embeddings",
    "Order",
    "load_embed_config",
    "make_order",
    "open_run",
    "train",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "BatchLoss": "edge_trainer",
        "EdgeTrainer": "edge_trainer",
        "EmbedConfig": "config",
        "EmbedOptions": "options",
        "Embeddings": "use.embeddings",
        "Order": "orders.order",
        "load_embed_config": "config",
        "make_order": "orders.order",
        "open_run": "use.embeddings",
        "train": "trainer",
    },
)
