"""Attention over edges that have weights, attributes, both or neither."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import GATConv
from torch_geometric.utils import softmax

LEAST_WEIGHT = 1e-30
"""Stands for smaller weights in logarithms and quotients, which are then finite."""


class WeightedGATConv(GATConv):
    """GATConv that takes a weight of each edge, which then counts as many times.

    The weight is the column of ``edge_attr`` [e, edge_dim + 1] after the attributes; [e, edge_dim]
    and None have no weights. Self loops have weight 1.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options, fill_value=1.0)  # the weight of self loops

    def edge_update(
        self,
        alpha_j: Tensor,
        alpha_i: Tensor | None,
        edge_attr: Tensor | None,
        index: Tensor,
        ptr: Tensor | None,
        dim_size: int | None,
    ) -> Tensor:
        dim = self.edge_dim or 0
        if edge_attr is None or edge_attr.size(1) == dim or alpha_i is None or len(index) == 0:
            return super().edge_update(alpha_j, alpha_i, edge_attr, index, ptr, dim_size)
        alpha = alpha_j + alpha_i
        if self.lin_edge is not None:
            attr = self.lin_edge(edge_attr[:, :dim]).view(-1, self.heads, self.out_channels)
            alpha = alpha + (attr * self.att_edge).sum(dim=-1)
        weight = edge_attr[:, dim:]
        score = functional.leaky_relu(alpha, self.negative_slope)
        score = score + weight.clamp(min=LEAST_WEIGHT).log()
        alpha = softmax(score, index, ptr, dim_size) * (weight > 0)
        return functional.dropout(alpha, p=self.dropout, training=self.training)
