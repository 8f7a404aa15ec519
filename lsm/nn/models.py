"""GraphSAGE, GCN and GAT from ``torch_geometric.nn`` convolutions on sampled batches.

Layer l computes only the nodes that later layers still need (``Batch.layers``). For the seeds this
equals PyG's own models with ``num_sampled_nodes_per_hop`` trimming, whose weights have the same
names here, so that a trained model loads into them. A weighted edge counts in proportion to its
weight, relative to the mean weight of its destination's edges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv, SAGEConv

from lsm.loader.batch import Batch
from lsm.loader.layers import Layer
from lsm.nn import self_loops
from lsm.nn.attention import WeightedGATConv
from lsm.nn.embeddings import no_outputs
from lsm.nn.options import ModelOptions
from lsm.nn.templates import remove_templates


class SampledGNN(nn.Module, ABC):
    """A stack of convolutions with ReLU and dropout between them. Subclasses define convolve().

    ``convs[l]`` maps [num_src, width] to [num_dst, width'] over ``batch.layers()[l]``. The last one
    states its widths as PyG's do: ``in_channels`` and ``out_channels``.
    """

    def __init__(self, convs: Sequence[nn.Module], dropout: float) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.embedding_dim = int(convs[-1].in_channels)  # type: ignore[arg-type]
        self.out_dim = int(convs[-1].out_channels)  # type: ignore[arg-type]
        self.dropout = dropout
        remove_templates()

    @abstractmethod
    def convolve(self, conv: nn.Module, x: Tensor, layer: Layer) -> Tensor:
        """Output of one convolution: x [num_src, in] -> [num_dst, out]."""

    def forward(self, batch: Batch) -> Tensor:
        """Outputs of the seeds, such as class scores: [batch_size, out_dim] float32.

        A batch without seeds gives [0, out_dim] that still depends on every parameter, as DDP
        expects of each rank. Raises ValueError when the batch has another number of hops.
        """
        return self.with_embeddings(batch)[1]

    def with_embeddings(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The rows of the seeds that the last layer takes, [batch_size, width], and forward()."""
        layers = batch.layers()
        if len(layers) != len(self.convs):
            raise ValueError(
                f"model: expected batches of {len(self.convs)} hops, one per layer, got "
                f"{len(layers)}; set sampler.num_neighbors and model.num_layers alike"
            )
        if batch.batch_size == 0:
            nothing = no_outputs(self, self.out_dim)
            return nothing, nothing
        if batch.x is None:
            raise ValueError("model: expected a batch with features, got one whose x is None")
        x = own = batch.x
        for index, (conv, layer) in enumerate(zip(self.convs, layers, strict=True)):
            if index > 0:
                x = functional.dropout(x.relu(), self.dropout, self.training)
            own = x[: batch.batch_size]
            # Sums over neighbours are float32 under autocast too; 16-bit features widen here.
            x = self.convolve(conv, x.float(), layer)
        return own, x.float()


class GraphSAGE(SampledGNN):
    """Mean aggregation (Hamilton et al., 2017): SAGEConv as a sparse-dense product per layer."""

    def convolve(self, conv: nn.Module, x: Tensor, layer: Layer) -> Tensor:
        return conv((x, x[: layer.num_dst]), layer.adj)


class GCN(SampledGNN):
    """Symmetric normalisation (Kipf and Welling, 2017) with self loops.

    Degrees are those of the sampled layer, as in PyG: a node whose neighbours are not sampled in
    this layer has only its self loop.
    """

    def convolve(self, conv: Any, x: Tensor, layer: Layer) -> Tensor:
        return self_loops.gcn(conv, x, layer)


class GAT(SampledGNN):
    """Attention over the sampled neighbours and the node itself (Velickovic et al., 2018)."""

    def convolve(self, conv: Any, x: Tensor, layer: Layer) -> Tensor:
        return self_loops.gat(conv, x, layer)


def build_model(options: ModelOptions, in_dim: int, out_dim: int, num_layers: int) -> SampledGNN:
    """The network that ``options`` name, with weights from torch's default generator. Precondition:
    it is one of graphs without types."""
    widths = [in_dim] + [options.hidden_dim] * (num_layers - 1) + [out_dim]
    ends = list(pairwise(widths))
    if options.name == "graphsage":
        return GraphSAGE([SAGEConv(*end) for end in ends], options.dropout)
    if options.name == "gcn":
        return GCN([GCNConv(*end) for end in ends], options.dropout)
    assert options.name == "gat", f"{options.name} has no network"
    heads, dropout = options.heads, options.dropout
    # Heads are concatenated in hidden layers and averaged in the last one, as in PyG's GAT.
    hidden = [WeightedGATConv(a, b // heads, heads, dropout=dropout) for a, b in ends[:-1]]
    last = WeightedGATConv(*ends[-1], heads, concat=False, dropout=dropout)
    return GAT([*hidden, last], options.dropout)


def loss_sum(
    scores: Tensor,
    labels: Tensor,
    *,
    class_weights: Tensor | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy summed over seeds (0 for none): scores [b, classes], labels [b] int64,
    class_weights [classes]."""
    if len(labels) == 0:
        return scores.sum()
    return functional.cross_entropy(
        scores, labels, class_weights, reduction="sum", label_smoothing=label_smoothing
    )
