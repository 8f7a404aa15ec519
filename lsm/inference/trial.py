"""A trial of a layer on a small graph: its width, and that it can be computed by blocks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.inference.blocks import Block, make_block
from lsm.inference.convs import Conv

MakeLayer = Callable[[Topology], Conv]
_NUM_NODES, _NUM_EDGES = 24, 72
_TOLERANCE = 1e-4  # of the rows' largest value; a layer that needs more than in-edges is far off


def try_layer(make: MakeLayer, width: int, node_type: str, edge_type: EdgeType, number: int) -> int:
    """The width of the rows that a layer makes of rows of ``width`` values.

    Raises ValueError, which names layer ``number``, if it cannot take such rows, or if the rows of
    some nodes differ when they are computed without the others.
    """
    draw = torch.Generator().manual_seed(number)
    ends = torch.randint(_NUM_NODES, (2, _NUM_EDGES), generator=draw)
    targets, order = ends[1].sort(stable=True)
    counts = torch.bincount(targets, minlength=_NUM_NODES)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    topology = Topology(indptr, ends[0][order])
    x = torch.randn(_NUM_NODES, width, generator=draw)
    compute = make(topology)

    def rows(first: int, end: int) -> Tensor:
        block = make_block(node_type, torch.arange(first, end), {edge_type: topology})
        return compute(_with_rows(block, x))

    try:
        whole = rows(0, _NUM_NODES)
        parts = torch.cat([rows(0, _NUM_NODES // 2), rows(_NUM_NODES // 2, _NUM_NODES)])
    except Exception as error:  # of the layer's own code
        raise ValueError(
            f"layer {number} of the model cannot be computed on rows of {width} values "
            f"({type(error).__name__}: {error}); is it a model of another store?"
        ) from error
    if whole.dim() != 2 or whole.shape != parts.shape or not _are_close(whole, parts):
        raise ValueError(
            f"layer {number} of the model depends on more than the in-edges of a node, so that it "
            "cannot be computed by blocks"
        )
    return whole.size(1)


def _with_rows(block: Block, x: Tensor) -> Block:
    block.rows = {name: x[ids] for name, ids in block.ids.items()}
    return block


def _are_close(whole: Tensor, parts: Tensor) -> bool:
    return bool(((whole - parts).abs().max() <= _TOLERANCE * whole.abs().max()).item())
