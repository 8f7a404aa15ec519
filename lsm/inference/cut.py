"""Cuts a model into the stages of an inference."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

from lsm.data.graph_store import GraphStore
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.inference.blocks import Block
from lsm.inference.convs import Conv, block_conv
from lsm.inference.network import BlockLayer, Model, Network, as_it_is
from lsm.inference.options import InferenceOptions
from lsm.inference.streamed import stream_conv
from lsm.inference.trial import MakeLayer, try_layer
from lsm.inference.typed_layers import cut_typed_layers
from lsm.inference.typed_network import cut_typed
from lsm.nn.link_models import LinkNetwork
from lsm.nn.models import SampledGNN
from lsm.nn.own_models import OwnModel
from lsm.nn.typed_models import TypedGNN

logger = logging.getLogger(__name__)


def cut(
    model: Model,
    store: GraphStore,
    topologies: Mapping[EdgeType, Topology],
    options: InferenceOptions,
) -> Network:
    """``model`` as a Network that aggregates over ``topologies``.

    Raises ValueError if it has no layers that can be computed one by one, or a layer depends on
    more than a node's in-edges.
    """
    try:
        return _cut(model, store, topologies, options)
    except ValueError as error:
        if not isinstance(model, OwnModel):
            raise
        raise ValueError(f"{error}; --route sampled takes the model of a run") from error


def _cut(
    model: Model,
    store: GraphStore,
    topologies: Mapping[EdgeType, Topology],
    options: InferenceOptions,
) -> Network:
    if isinstance(model, LinkNetwork):
        network = cut(model.network, store, topologies, options)
        ends = [model.edge_type[0], model.edge_type[2]]
        if options.links is None:
            ends = [end_of(model, options.node_type)]
        return _scored(network, ends)
    if isinstance(model, TypedGNN):
        return cut_typed(model, store, topologies, options.edges)
    if isinstance(model, OwnModel):
        _check_values(store)
    if store.is_typed:
        node_type = model.input_type if isinstance(model, OwnModel) else options.node_type
        assert node_type is not None, "predict() looks"
        return cut_typed_layers(model, store, node_type)
    if isinstance(model, OwnModel):
        model = model.network
    (edge_type,), (node_type,) = topologies, store.node_types
    width, layers = store.feature_dim, []
    makers = _layers_of(model)
    if isinstance(model, BasicGNN | Sequence | nn.ModuleList):
        _warn_of_values(store, makers)
    for number, make in enumerate(makers, 1):
        topology, in_dim = topologies[edge_type], width
        width = try_layer(make, in_dim, node_type, edge_type, number)
        layer = BlockLayer(node_type, (edge_type,), width, make(topology))
        if isinstance(make, _ConvLayer):
            streamed = stream_conv(make.conv, topology, in_dim)
            layer = replace(layer, streamed=streamed, after=make.after)
        layers.append({node_type: layer})
    return Network(node_type, {}, layers, None, width)


def _scored(network: Network, ends: Sequence[str]) -> Network:
    """``network`` up to the rows that the scorer of links takes, of the nodes of types ``ends``."""
    last, head = {name: network.layers[-1][name] for name in ends}, network.head
    if head is not None:
        for name, layer in last.items():
            compute, typed = _headed(head, layer.compute), layer.typed
            if typed is not None:
                typed = replace(typed, finish=_headed(head, typed.finish))
            last[name] = replace(layer, width=network.num_scores, compute=compute, typed=typed)
    layers = [*network.layers[:-1], last]
    return replace(network, node_type=ends[-1], layers=layers, head=None, num_scores=0)


def end_of(model: LinkNetwork, node_type: str | None) -> str:
    """``node_type``, or that of the destinations. Raises ValueError if links have no such end."""
    ends = list(dict.fromkeys([model.edge_type[2], model.edge_type[0]]))
    name = ends[0] if node_type is None else node_type
    if name not in ends:
        raise ValueError(f"--node-type: expected {' or '.join(ends)}, got {name}")
    return name


def _headed(
    head: Callable[[Tensor], Tensor], rows_of: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    return lambda *arguments: head(rows_of(*arguments))


def _check_values(store: GraphStore) -> None:
    """Raises ValueError if an own model may have been trained with values of edges."""
    edges = [store.edges(each) for each in store.edge_types]
    if any(each.has_weights or each.has_attr for each in edges):
        raise ValueError(
            f"{store.path} has weights or attributes of edges, which an own model may take, and "
            "lsm predict computes own models layer by layer without them"
        )


def _warn_of_values(store: GraphStore, layers: Sequence[MakeLayer]) -> None:
    """Warns if layers could take values of edges, which ``store`` has and they do not get."""
    edges = store.edges(store.edge_types[0])
    has = {"edge_weight": edges.has_weights, "edge_attr": edges.has_attr}
    taken = {name for each in layers if isinstance(each, _ConvLayer) for name in each.takes}
    for name in sorted(taken & {name for name, is_there in has.items() if is_there}):
        logger.warning("%s: %s is not passed to the layers", store.path, name)


def _layers_of(model: Model) -> list[MakeLayer]:
    """The layers of a model of graphs without types."""
    if isinstance(model, SampledGNN):
        last = len(model.convs) - 1
        return [
            _ConvLayer(conv, as_it_is if number == last else torch.relu)
            for number, conv in enumerate(model.convs)
        ]
    if isinstance(model, BasicGNN):
        _check_jumps(model)
        after = copy.copy(model)  # with its norms and activations, and no convolutions
        convs = [lambda rows, _edge_index: rows] * model.num_layers
        after._modules = {**model._modules, "convs": convs}
        return [
            _ConvLayer(conv, partial(_after_conv, after, number))
            for number, conv in enumerate(model.convs)
        ]
    own: Any = model
    if hasattr(own, "inference_per_layer") and isinstance(getattr(own, "num_layers", None), int):
        layers = [partial(own.inference_per_layer, number) for number in range(own.num_layers)]
        return [partial(_opaque, layer) for layer in layers]
    if isinstance(model, Sequence | nn.ModuleList) and len(model):
        return [
            _ConvLayer(layer, as_it_is)
            if isinstance(layer, MessagePassing)
            else partial(_opaque, _cut_to_destinations(layer))
            for layer in model
        ]
    raise ValueError(
        f"{type(model).__name__} cannot be computed layer by layer: give it num_layers and "
        "inference_per_layer(layer, x, edge_index, batch_size), or use a network of lsm train, a "
        "model of torch_geometric.nn.models, or a list of layers"
    )


def _check_jumps(model: BasicGNN) -> None:
    if model.jk_mode not in (None, "last"):
        raise ValueError(
            f"{type(model).__name__} with jk={model.jk_mode!r} needs the rows of all layers at "
            "once, and cannot be computed layer by layer"
        )


@dataclass(frozen=True)
class _ConvLayer:
    """A convolution, and the map of its rows to those of the layer."""

    conv: nn.Module
    after: Callable[[Tensor], Tensor]

    @property
    def takes(self) -> set[str]:
        """The arguments of the convolution."""
        return set(inspect.signature(self.conv.forward).parameters)

    def __call__(self, topology: Topology) -> Conv:
        compute = block_conv(self.conv, topology)
        return lambda block: self.after(compute(block))


def _opaque(layer: Callable[[Tensor, Tensor, int], Tensor], _topology: Topology) -> Conv:
    def compute(block: Block) -> Tensor:
        (edges,) = block.edges.values()
        return layer(block.rows[block.node_type].float(), edges.edge_index, block.num_dst)

    return compute


def _cut_to_destinations(layer: Callable[..., Tensor]) -> Callable[[Tensor, Tensor, int], Tensor]:
    return lambda x, edge_index, num_dst: layer(x, edge_index)[:num_dst]


def _after_conv(model: BasicGNN, number: int, rows: Tensor) -> Tensor:
    """The rows of a layer from those of its convolution."""
    return model.inference_per_layer(number, rows, None, len(rows))
