"""Embeddings of nodes and relations, trained partition by partition."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.embed.order import Order, make_order

__all__ = ["Order", "make_order"]

__getattr__ = lazily(__name__, {"Order": "order", "make_order": "order"})
