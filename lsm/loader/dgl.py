"""Batches as DGL blocks, with dgl next to a torch that is newer than the one it was built for."""

from __future__ import annotations

import importlib
import sys
import types
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from lsm.graph.types import NODE, EdgeType, TypedMap
from lsm.loader.layers import Layer

if TYPE_CHECKING:
    from dgl import DGLBlock

    from lsm.loader.batch import Batch

Nodes = torch.Tensor | dict[str, torch.Tensor]
"""Ids of nodes; of a graph with types, by type."""


def to_blocks(batch: Batch) -> list[DGLBlock]:
    """As Batch.to_dgl()."""
    dgl, layers = import_dgl(), batch.typed_layers()
    last_hops = reversed(range(len(layers)))
    return [_block(dgl, batch, *each) for each in zip(last_hops, layers, strict=True)]


def _block(
    dgl: ModuleType, batch: Batch, last_hop: int, layers: TypedMap[EdgeType, Layer]
) -> DGLBlock:
    """The edges of hops 0 .. last_hop, of every type."""
    hops = batch.num_sampled_nodes_dict
    num_src = hops.apply(lambda counts: sum(counts[: last_hop + 2]))
    num_dst = hops.apply(lambda counts: sum(counts[: last_hop + 1]))
    block = dgl.create_block(
        {each: ("csc", (own.indptr, own.edge_index[0], [])) for each, own in layers.items()},
        num_src_nodes=num_src,
        num_dst_nodes=num_dst,
        device=batch.n_id.device,
    )
    for name, n_id in batch.n_id_dict.items():
        block.srcnodes[name].data[dgl.NID] = n_id[: num_src[name]]
        block.dstnodes[name].data[dgl.NID] = n_id[: num_dst[name]]
    e_id = batch.e_id_dict
    for each, own in layers.items():
        if each in e_id:
            block.edges[each].data[dgl.EID] = e_id[each][: own.edge_index.size(1)]
        if own.edge_weight is not None:
            block.edges[each].data["edge_weight"] = own.edge_weight
    return block


def to_item(batch: Batch) -> tuple[Nodes, Nodes, list[DGLBlock]]:
    """The batch as DGL's DataLoader delivers it: input nodes, output nodes, blocks.

    Features are ``feat`` of the first block's sources, and labels of the seeds are ``label`` of the
    last block's destinations.
    """
    blocks, inputs = to_blocks(batch), batch.n_id_dict
    seeds_type = NODE if batch.types is None else batch.types.input_type
    for name, rows in batch.x_dict.items():
        blocks[0].srcnodes[name].data["feat"] = rows
    if batch.y is not None:
        blocks[-1].dstnodes[seeds_type].data["label"] = batch.y
    outputs = TypedMap({seeds_type: inputs[seeds_type][: batch.batch_size]})
    return (inputs.only, outputs.only, blocks) if batch.types is None else (inputs, outputs, blocks)


def import_dgl() -> ModuleType:
    """The module ``dgl``. Raises RuntimeError with the cause if it cannot be imported.

    Two obstacles are removed, neither of which concerns blocks: dgl 1.1 reads
    ``setuptools.extern.packaging``, which newer setuptools lack; and dgl 2.1 loads
    ``dgl.graphbolt``, whose library exists only for older versions of torch.
    """
    if "dgl" in sys.modules:
        return sys.modules["dgl"]
    _alias_packaging()
    try:
        return importlib.import_module("dgl")
    except (ImportError, OSError) as error:
        first_error = error
    _forget_dgl()
    sys.modules["dgl.graphbolt"] = ModuleType("dgl.graphbolt")
    try:
        return importlib.import_module("dgl")
    except (ImportError, OSError):
        _forget_dgl()
        raise RuntimeError(
            f"dgl cannot be imported ({first_error}); `make test-dgl` shows an environment in "
            "which it can"
        ) from first_error


def _alias_packaging() -> None:
    try:
        importlib.import_module("setuptools.extern.packaging.version")
    except ImportError:
        packaging = importlib.import_module("packaging")
        importlib.import_module("packaging.version")
        extern = types.ModuleType("setuptools.extern")
        vars(extern)["packaging"] = packaging
        sys.modules["setuptools.extern"] = extern
        sys.modules["setuptools.extern.packaging"] = packaging
        sys.modules["setuptools.extern.packaging.version"] = packaging.version


def _forget_dgl() -> None:
    for name in [name for name in sys.modules if name == "dgl" or name.startswith("dgl.")]:
        del sys.modules[name]
