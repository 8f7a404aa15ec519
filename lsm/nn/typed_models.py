"""Networks of graphs with types: R-SAGE, R-GCN, R-GAT and HGT on sampled batches.

Rows of each type become hidden rows: features by a linear map, types without features by an
embedding for each node. A layer then adds the sum over a node's neighbours to its own row, and
normalises. Layer l computes only the nodes that later layers still need (``Batch.typed_layers``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn.module_dict import ModuleDict

from lsm.data.graph_store import GraphStore
from lsm.graph.types import EdgeType
from lsm.loader.batch import Batch
from lsm.nn.embeddings import no_outputs
from lsm.nn.options import ModelOptions
from lsm.nn.templates import remove_templates
from lsm.nn.typed_convs import (
    HGT,
    RGAT,
    RGCN,
    RSAGE,
    Relation,
    RelationConvs,
    Relations,
    Rows,
    TypedConv,
    relation,
)


@dataclass(frozen=True)
class TypedInputs:
    """The sizes of a graph with types that the weights of a network depend on.

    feature_dims: width of the features by node type; None: the type has none. num_nodes: by node
    type. edge_dims: width of the attributes by edge type; None: it has none. input_type: the type
    of the seeds. other_types: further types of seeds.
    """

    feature_dims: Mapping[str, int | None]
    num_nodes: Mapping[str, int]
    edge_dims: Mapping[EdgeType, int | None]
    input_type: str
    other_types: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, store: GraphStore, input_type: str, other_types: tuple[str, ...] = ()
    ) -> TypedInputs:
        """Those of a store."""
        edge_dims: dict[EdgeType, int | None] = {}
        for each in store.edge_types:
            edges = store.edges(each)
            edge_dims[each] = math.prod(edges.attr().shape[1:]) if edges.has_attr else None
        nodes = {name: store.nodes(name) for name in store.node_types}
        return cls(
            {name: own.features.dim if own.features else None for name, own in nodes.items()},
            {name: own.num_nodes for name, own in nodes.items()},
            edge_dims,
            input_type,
            other_types,
        )

    def layers(self, num_layers: int) -> list[LayerTypes]:
        """The types of each layer, the outermost hop's first: those that later layers need."""
        found: list[LayerTypes] = []
        computed = {self.input_type, *self.other_types}
        for _ in range(num_layers):
            edge_types = [each for each in self.edge_dims if each[2] in computed]
            needed = computed | {each[0] for each in edge_types}
            found.append(LayerTypes(edge_types, self._ordered(computed), self._ordered(needed)))
            computed = needed
        return found[::-1]

    def _ordered(self, names: set[str]) -> list[str]:
        return [name for name in self.num_nodes if name in names]


class LayerTypes(NamedTuple):
    """The types of edges in a layer, of the nodes that it computes, and of the nodes it takes."""

    edge_types: list[EdgeType]
    computed: list[str]
    taken: list[str]


class TypedLayer(nn.Module):
    """A convolution, added to a node's own row, then normalisation, ReLU and dropout."""

    def __init__(
        self, conv: TypedConv, computed: Iterable[str], width: int, dropout: float
    ) -> None:
        """computed: the types of nodes that it computes."""
        super().__init__()
        self.conv = conv
        self.norms = ModuleDict({name: nn.LayerNorm(width) for name in computed})
        self.dropout = dropout

    def forward(self, x: Rows, sizes: Mapping[str, int], relations: Relations) -> dict[str, Tensor]:
        """The rows of the first ``sizes`` nodes of each type that it computes, [size, width]."""
        # Sums over neighbours are float32 under autocast too.
        x = {name: rows.float() for name, rows in x.items()}
        own = {name: x[name][: sizes[name]] for name in self.norms.keys()}  # noqa: SIM118 (PyG's)
        sums = self.conv(x, own, relations)
        return {name: self.finish(name, rows, sums.get(name)) for name, rows in own.items()}

    def finish(self, name: str, own: Tensor, sums: Tensor | None) -> Tensor:
        """The rows of nodes of type ``name`` from their ``own`` ones and the convolution's, if
        any."""
        rows: Tensor = self.norms[name](own if sums is None else own + sums)
        return functional.dropout(rows.relu(), self.dropout, self.training)


class TypedGNN(nn.Module):
    """Layers over hidden rows of each node type, and a linear map of the seeds' last rows.

    convs: of each layer, the outermost hop's first. width: of hidden rows. dropout: the probability
    of dropping a hidden value.
    """

    def __init__(
        self,
        inputs: TypedInputs,
        convs: Sequence[TypedConv],
        width: int,
        out_dim: int,
        dropout: float,
    ) -> None:
        super().__init__()
        types = inputs.layers(len(convs))
        self.inputs = ModuleDict({name: _input(inputs, name, width) for name in types[0].taken})
        self.layers = nn.ModuleList(
            TypedLayer(conv, of_layer.computed, width, dropout)
            for conv, of_layer in zip(convs, types, strict=True)
        )
        self.output = nn.Linear(width, out_dim)
        self.input_type, self._values = inputs.input_type, convs[0].values
        remove_templates()

    @property
    def out_dim(self) -> int:
        """Width of the output."""
        return self.output.out_features

    def forward(self, batch: Batch) -> Tensor:
        """Outputs of the seeds of the input type, such as class scores: [batch_size, out_dim]
        float32.

        A batch without seeds gives [0, out_dim] that still depends on every parameter with dense
        gradients, as DDP expects of each rank. Raises ValueError when the batch has another number
        of hops.
        """
        return self.outputs(batch, (self.input_type,))[self.input_type]

    def outputs(self, batch: Batch, types: Iterable[str]) -> dict[str, Tensor]:
        """forward() for the seeds of each of ``types``, which are among those of the inputs."""
        if batch.batch_size == 0:
            self._relations(batch)
            return {name: no_outputs(self, self.out_dim) for name in types}
        x = self.embeddings(batch)
        return {name: self.output(x[name]).float() for name in types}

    def embeddings(self, batch: Batch) -> dict[str, Tensor]:
        """The rows of the seeds that the last linear map takes, by type: [n, width]. Precondition:
        a batch with seeds."""
        relations = self._relations(batch)
        x, sampled = self._rows(batch), batch.num_sampled_nodes_dict
        for index, layer in enumerate(self.layers):
            hops = len(relations) - index
            sizes = {name: sum(nodes[:hops]) for name, nodes in sampled.items()}
            x = layer(x, sizes, relations[index])
        return x

    def _rows(self, batch: Batch) -> dict[str, Tensor]:
        """The hidden rows of a batch's nodes by type."""
        features, ids = batch.x_dict, batch.n_id_dict
        rows = {}
        for name, of_type in self.inputs.items():
            of_nodes = isinstance(of_type, nn.Embedding)
            rows[name] = of_type(ids[name] if of_nodes else features[name].float())
        return rows

    def _relations(self, batch: Batch) -> list[dict[EdgeType, Relation]]:
        """The edges of each layer, with the store's values that the layers take."""
        layers = batch.typed_layers()
        if len(layers) != len(self.layers):
            raise ValueError(
                f"model: expected batches of {len(self.layers)} hops, one per layer, got "
                f"{len(layers)}; set sampler.num_neighbors and model.num_layers alike"
            )
        values = {name: batch.edge_values(name) for name in self._values}
        return [
            {each: relation(layer, each, values) for each, layer in of_layer.items()}
            for of_layer in layers
        ]


def _input(inputs: TypedInputs, name: str, width: int) -> nn.Module:
    """The map of a type's nodes to hidden rows."""
    dim = inputs.feature_dims[name]
    if dim is not None:
        return nn.Linear(dim, width)
    return embedding(inputs.num_nodes[name], width)


def embedding(num_nodes: int, width: int) -> nn.Embedding:
    """The table of a type without features. Its gradients are sparse."""
    table = nn.Embedding(num_nodes, width, sparse=True)
    nn.init.normal_(table.weight, std=width**-0.5)  # longer rows learn more slowly
    return table


def build_typed_model(
    options: ModelOptions, inputs: TypedInputs, out_dim: int, num_layers: int
) -> TypedGNN:
    """The network that ``options`` name, with weights from torch's default generator."""
    layers = inputs.layers(num_layers)
    convs = [_conv(options, inputs, layer) for layer in layers]
    return TypedGNN(inputs, convs, options.hidden_dim, out_dim, options.dropout)


def _conv(options: ModelOptions, inputs: TypedInputs, layer: LayerTypes) -> TypedConv:
    width, heads = options.hidden_dim, options.heads
    if options.name == "rsage":
        return RSAGE(layer.edge_types, width)
    if options.name == "rgcn":
        return RGCN(layer.edge_types, layer.computed, width)
    if options.name == "rgat":
        edge_dims = {each: inputs.edge_dims[each] for each in layer.edge_types}
        return RGAT(edge_dims, width, heads, options.dropout)
    assert options.name == "hgt", f"{options.name} has no network"
    if not layer.edge_types:  # HGTConv needs one
        return RelationConvs({})
    return HGT(layer.edge_types, layer.taken, width, heads)
