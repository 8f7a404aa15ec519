"""Models of the user for graphs with types, computed layer by layer.

A layer gets dicts by type, as a batch of PyG has them. A block computes the nodes of one type:
their rows come first in ``x_dict``, ``batch_size_dict`` holds their type alone, and types that it
does not need have no rows and no edges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import HeteroConv

from lsm.data.graph_store import GraphStore
from lsm.graph.types import EdgeType
from lsm.inference.blocks import Block
from lsm.inference.network import BlockLayer, Model, Network
from lsm.inference.trial import try_typed_layer
from lsm.nn.construct import call_own
from lsm.nn.own_models import OwnModel

TypedCall = Callable[[dict[str, Tensor], dict[EdgeType, Tensor], dict[str, int]], Any]
"""A layer of ``x_dict``, ``edge_index_dict`` and ``batch_size_dict``."""


@dataclass(frozen=True)
class _Layer:
    """A layer of a user's model.

    call: the layer. edge_types: those whose edges it aggregates over. empty_types: those that it
    gets without edges where a block has none.
    """

    call: TypedCall
    edge_types: tuple[EdgeType, ...]
    empty_types: tuple[EdgeType, ...]


@dataclass(frozen=True)
class _OnBlocks:
    """A layer on blocks with the rows before it.

    title: names it in errors. widths: of the rows before it, by type; a type without rows is
    absent.
    """

    layer: _Layer
    title: str
    widths: Mapping[str, int]

    def __call__(self, block: Block) -> Tensor:
        """Rows [num_dst, width] of the destinations. Raises ValueError for rows of another shape,
        RuntimeError for an error of the layer, with its place."""
        found = self.found(block)
        if found is None:
            raise ValueError(f"{self._of(block)} gives no rows")
        return found

    def found(self, block: Block) -> Tensor | None:
        """As __call__(); None if the layer gives no rows of the type."""
        name, num_dst = block.node_type, block.num_dst
        x = {each: _rows(block, each, width) for each, width in self.widths.items()}
        edges = {each: torch.empty(2, 0, dtype=torch.int64) for each in self.layer.empty_types}
        edges |= {each: block.edges[each].edge_index for each in block.edges}
        found = call_own(self._of(block), self.layer.call, x, edges, {name: num_dst})
        if isinstance(found, Mapping):
            found = found.get(name)
            if found is None:
                return None
        if not isinstance(found, Tensor) or found.dim() != 2 or len(found) != num_dst:
            got = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(
                f"{self._of(block)}: expected a row for each of the {num_dst} nodes in "
                f"batch_size_dict, [{num_dst}, width], or a dict with them, got {got}"
            )
        return found

    def _of(self, block: Block) -> str:
        return f"{self.title} of {block.node_type}"


def cut_typed_layers(model: Model, store: GraphStore, node_type: str) -> Network:
    """A user's model of a graph with types, or a list of layers, up to the rows of ``node_type``.

    Raises ValueError, which names the layer, if it cannot be computed by blocks.
    """
    tables: Mapping[str, nn.Embedding] = {}
    prefix, module, out_dim = "", model, None
    if isinstance(model, OwnModel):
        prefix, module, out_dim = f"model.name: {model.name}: ", model.network, model.out_dim
        tables = dict(model.embeddings.items())
    layers = _layers_of(module, store.edge_types)
    computed = _computed(layers, node_type)
    widths = _input_widths(store, tables)
    if node_type not in widths:
        raise ValueError(
            f"{node_type} has no features, and a list of layers no rows in their place"
        )
    found = list[dict[str, BlockLayer]]()
    for number, (layer, needed) in enumerate(zip(layers, computed, strict=True), 1):
        on_blocks = _OnBlocks(layer, f"{prefix}layer {number}", widths)
        made = _of_types(on_blocks, needed, tables if number == 1 else {}, store)
        if node_type not in made:
            raise ValueError(f"{on_blocks.title} gives no rows of {node_type}, which outputs need")
        found.append({name: each for name, each in made.items() if name in needed})
        widths = {name: each.width for name, each in made.items()}
    if out_dim not in (None, widths[node_type]):
        raise ValueError(
            f"{prefix}layer {len(layers)} of {node_type}: expected rows of {out_dim} values, got "
            f"{widths[node_type]}; take the width from the argument out_channels"
        )
    return Network(node_type, {}, found, None, widths[node_type])


def _of_types(
    on_blocks: _OnBlocks, needed: set[str], tables: Mapping[str, nn.Embedding], store: GraphStore
) -> dict[str, BlockLayer]:
    """A layer by type, of those that it gives rows of. Errors of types that are not ``needed`` mean
    that it gives none."""
    compute = partial(_with_tables, tables, on_blocks)
    input_width = max((each.embedding_dim for each in tables.values()), default=0)
    made = {}
    for name in on_blocks.widths:
        into = tuple(each for each in on_blocks.layer.edge_types if each[2] == name)
        width = None
        try:
            width = try_typed_layer(on_blocks.found, on_blocks.widths, name, into, on_blocks.title)
        except (ValueError, RuntimeError) as error:
            if name in needed:
                taken = _taken(on_blocks.widths, store)
                raise ValueError(f"{error}; it takes rows of {taken}") from error
        if width is not None:
            made[name] = BlockLayer(name, into, width, compute, input_width=input_width)
    return made


def _taken(widths: Mapping[str, int], store: GraphStore) -> str:
    """The rows before a layer, in words."""
    there = ", ".join(f"{name} [n, {width}]" for name, width in widths.items())
    absent = [name for name in store.node_types if name not in widths]
    return f"{there}; there are none of {', '.join(absent)}" if absent else there


def _layers_of(model: Any, edge_types: tuple[EdgeType, ...]) -> list[_Layer]:
    num_layers = getattr(model, "num_layers", None)
    if hasattr(model, "inference_per_layer") and isinstance(num_layers, int) and num_layers > 0:
        calls = [partial(model.inference_per_layer, number) for number in range(num_layers)]
        return [_Layer(call, edge_types, edge_types) for call in calls]
    if isinstance(model, Sequence | nn.ModuleList) and len(model):
        return [_listed(layer, edge_types) for layer in model]
    raise ValueError(
        f"{type(model).__name__} cannot be computed layer by layer on a graph with types: give it "
        "num_layers and inference_per_layer(layer, x_dict, edge_index_dict, batch_size_dict), or "
        "use a network of lsm train, or a list of torch_geometric.nn.HeteroConv"
    )


def _listed(layer: Callable[..., Any], edge_types: tuple[EdgeType, ...]) -> _Layer:
    """A layer of a list. HeteroConv takes each type of edges by itself, so it gets those alone that
    a block has."""
    call = partial(_cut_to_destinations, layer)
    if not isinstance(layer, HeteroConv):
        return _Layer(call, edge_types, edge_types)
    own = set(layer.convs.keys())
    return _Layer(call, tuple(each for each in edge_types if each in own), ())


def _cut_to_destinations(
    layer: Callable[..., Any],
    x: dict[str, Tensor],
    edges: dict[EdgeType, Tensor],
    sizes: dict[str, int],
) -> Any:
    found = layer(x, edges)
    if not isinstance(found, Mapping):
        raise TypeError(f"expected a dict of rows by type, got {type(found).__name__}")
    return {name: found[name][:size] for name, size in sizes.items() if found.get(name) is not None}


def _computed(layers: Sequence[_Layer], node_type: str) -> list[set[str]]:
    """The types of nodes that each layer computes: those that later layers need."""
    found = [{node_type}]
    for layer in layers[:0:-1]:
        found.insert(0, found[0] | {each[0] for each in layer.edge_types if each[2] in found[0]})
    return found


def _input_widths(store: GraphStore, tables: Mapping[str, nn.Embedding]) -> dict[str, int]:
    """The widths of the rows that the first layer takes, by type."""
    widths = {}
    for name in store.node_types:
        features = store.nodes(name).features
        if name in tables:
            widths[name] = tables[name].embedding_dim
        elif features is not None:
            widths[name] = features.dim
    return widths


def _with_tables(tables: Mapping[str, nn.Embedding], on_blocks: _OnBlocks, block: Block) -> Tensor:
    """The rows of a layer with the rows of ``tables`` for types without features."""
    for name, table in tables.items():
        if name in block.ids:
            block.rows[name] = table(block.ids[name])
    return on_blocks(block)


def _rows(block: Block, node_type: str, width: int) -> Tensor:
    return block.rows[node_type].float() if node_type in block.rows else torch.empty(0, width)
