"""A network of `lsm train` for graphs with types, cut into the stages of an inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from lsm.data.graph_store import GraphStore
from lsm.data.links.splits import MessageEdges
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.inference.blocks import Block
from lsm.inference.network import BlockLayer, Network
from lsm.inference.streamed import TypedStreamed, stream_conv
from lsm.loader.layers import Layer
from lsm.nn.typed_convs import Relation, RelationConvs, relation
from lsm.nn.typed_models import TypedGNN, TypedLayer


def cut_typed(
    model: TypedGNN,
    store: GraphStore,
    topologies: Mapping[EdgeType, Topology],
    edges: Mapping[EdgeType, MessageEdges],
) -> Network:
    """Hidden rows of each type first, then the layers; the last one's rows are the embeddings."""
    width = model.output.in_features
    inputs = {
        name: BlockLayer(name, (), width, partial(_input_rows, of_type))
        for name, of_type in model.inputs.items()
    }
    layers = []
    for module in model.layers:
        layer = cast(TypedLayer, module)
        compute = partial(_typed_rows, layer, list(inputs), store, edges, width)
        names: list[str] = list(layer.norms.keys())
        by_type = {}
        for name in names:
            into = tuple(each for each in store.edge_types if each[2] == name)
            typed = _stream_typed(layer, name, into, store, topologies)
            by_type[name] = BlockLayer(name, into, width, compute, typed=typed)
        layers.append(by_type)
    return Network(model.input_type, inputs, layers, model.output, model.output.out_features)


def _stream_typed(
    layer: TypedLayer,
    name: str,
    edge_types: Sequence[EdgeType],
    store: GraphStore,
    topologies: Mapping[EdgeType, Topology],
) -> TypedStreamed | None:
    """The rows of nodes of type ``name`` as rows that stream by; None if they have no such form, or
    depend on values of edges."""
    conv = layer.conv
    if not isinstance(conv, RelationConvs) or any(
        ("edge_weight" in conv.values and store.edges(each).has_weights)
        or ("edge_attr" in conv.values and store.edges(each).has_attr)
        for each in edge_types
    ):
        return None
    relations = {}
    for each in edge_types:
        streamed = stream_conv(conv.convs[each], topologies[each], layer.norms[name].weight.numel())
        if streamed is None:
            return None
        relations[each] = streamed

    def finish(own: Tensor, sums: Tensor | None) -> Tensor:
        return layer.finish(name, own, conv.with_own(name, own, sums))

    return TypedStreamed(relations, finish)


def _input_rows(of_type: nn.Module, block: Block) -> Tensor:
    if isinstance(of_type, nn.Embedding):
        return of_type(block.own_ids)
    return of_type(block.rows[block.node_type].float())


def _typed_rows(
    layer: TypedLayer,
    types: list[str],
    store: GraphStore,
    message: Mapping[EdgeType, MessageEdges],
    width: int,
    block: Block,
) -> Tensor:
    nothing = torch.empty(0, width)
    x = {name: block.rows.get(name, nothing) for name in types}
    sizes = dict.fromkeys(types, 0) | {block.node_type: block.num_dst}
    no_edges = Layer(torch.zeros(1, dtype=torch.int64), torch.empty(2, 0, dtype=torch.int64), 0, 0)
    values = _values(layer.conv.values, store, message, block)
    relations = {each: Relation(no_edges) for each in store.edge_types}
    for each, edges in block.edges.items():
        relations[each] = relation(edges, each, values)
    return layer(x, sizes, relations)[block.node_type]


def _values(
    names: Sequence[str],
    store: GraphStore,
    message: Mapping[EdgeType, MessageEdges],
    block: Block,
) -> dict[str, Any]:
    """The store's values of the edges of a block, by name and type."""
    found: dict[str, Any] = {name: {} for name in names}
    for each, e_ids in block.e_ids.items():
        edges = store.edges(each)
        if each in message:
            e_ids = message[each].positions(e_ids)
        if "edge_weight" in found and edges.has_weights:
            found["edge_weight"][each] = edges.weights()[e_ids]
        if "edge_attr" in found and edges.has_attr:
            found["edge_attr"][each] = edges.attr()[e_ids]
    return found
