"""Models."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.nn.models import GAT, GCN, GraphSAGE

__all__ = ["GAT", "GCN", "GraphSAGE"]

__getattr__ = lazily(__name__, {"GAT": "models", "GCN": "models", "GraphSAGE": "models"})
