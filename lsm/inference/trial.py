"""A trial of a layer on a small graph: its width, and that it can be computed by blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.inference.blocks import Block, make_block
from lsm.inference.convs import Conv

MakeLayer = Callable[[Topology], Conv]
_NUM_NODES, _NUM_EDGES = 24, 72
_NO_BLOCKS = "depends on more than the in-edges of a node, so that it cannot be computed by blocks"
_TOLERANCE = 1e-4  # of the rows' largest value; a layer that needs more than in-edges is far off


def try_layer(make: MakeLayer, width: int, node_type: str, edge_type: EdgeType, number: int) -> int:
    """The width of the rows that a layer makes of rows of ``width`` values.

    Raises ValueError, which names layer ``number``, if it cannot take such rows, or if the rows of
    some nodes differ when they are computed without the others.
    """
    draw = torch.Generator().manual_seed(number)
    topology = _topology(_NUM_NODES, _NUM_NODES, draw)
    x = torch.randn(_NUM_NODES, width, generator=draw)
    compute = make(topology)
    try:
        whole, parts = _twice(
            compute, node_type, {edge_type: topology}, {node_type: x, edge_type[0]: x}
        )
    except Exception as error:  # of the layer's own code
        raise ValueError(
            f"layer {number} of the model cannot be computed on rows of {width} values "
            f"({type(error).__name__}: {error}); is it a model of another store?"
        ) from error
    if whole.dim() != 2 or not _are_close(whole, parts):
        raise ValueError(f"layer {number} of the model {_NO_BLOCKS}")
    return whole.size(1)


def try_typed_layer(
    compute: Callable[[Block], Tensor | None],
    widths: Mapping[str, int],
    node_type: str,
    edge_types: Sequence[EdgeType],
    title: str,
) -> int | None:
    """As try_layer(), of a graph with types: the width of the rows that ``compute`` makes of the
    nodes of ``node_type``, by edges of ``edge_types`` into them; None if it makes none. ``widths``:
    of the rows before the layer, by type; types without rows are absent. ``title``: names the layer
    in errors."""
    draw = torch.Generator().manual_seed(0)
    ends = [*widths, *(each[0] for each in edge_types)]
    counts = {name: _NUM_NODES + place for place, name in enumerate(dict.fromkeys(ends))}
    topologies = {each: _topology(counts[each[0]], counts[node_type], draw) for each in edge_types}
    x = {name: torch.randn(counts[name], width, generator=draw) for name, width in widths.items()}
    block = make_block(node_type, torch.arange(counts[node_type]), topologies)
    block = _with_rows(block, x)
    block.rows = {**x, **block.rows}  # of types without edges into it, too
    found = compute(block)
    if found is None:
        return None
    whole, parts = _twice(cast(Conv, compute), node_type, topologies, x)
    if not (_are_close(whole, parts) and _are_close(found, whole)):
        raise ValueError(f"{title} of {node_type} {_NO_BLOCKS}")
    return whole.size(1)


def _topology(num_src: int, num_dst: int, draw: torch.Generator) -> Topology:
    """Random edges."""
    sources = torch.randint(num_src, (_NUM_EDGES,), generator=draw)
    targets = torch.randint(num_dst, (_NUM_EDGES,), generator=draw).sort().values
    counts = torch.bincount(targets, minlength=num_dst)
    return Topology(torch.cat([counts.new_zeros(1), counts.cumsum(0)]), sources)


def _twice(
    compute: Conv,
    node_type: str,
    topologies: Mapping[EdgeType, Topology],
    x: Mapping[str, Tensor],
) -> tuple[Tensor, Tensor]:
    """The rows of all nodes of a type: as one block, and as two."""

    def rows(first: int, end: int) -> Tensor:
        block = make_block(node_type, torch.arange(first, end), topologies)
        return compute(_with_rows(block, x))

    end = len(x[node_type])
    whole = rows(0, end)
    return whole, torch.cat([rows(0, end // 2), rows(end // 2, end)])


def _with_rows(block: Block, x: Mapping[str, Tensor]) -> Block:
    block.rows = {name: x[name][ids] for name, ids in block.ids.items() if name in x}
    return block


def _are_close(whole: Tensor, parts: Tensor) -> bool:
    if whole.shape != parts.shape:
        return False
    return bool(((whole - parts).abs().max() <= _TOLERANCE * whole.abs().max()).item())
