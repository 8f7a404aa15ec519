"""Models."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.nn.models import GAT, GCN, GraphSAGE
    from lsm.nn.options import ModelOptions

__all__ = ["GAT", "GCN", "GraphSAGE", "ModelOptions"]

__getattr__, __dir__ = lazily(
    __name__, {"GAT": "models", "GCN": "models", "GraphSAGE": "models", "ModelOptions": "options"}
)
