"""Batches as DGL blocks, with dgl next to a torch that is newer than the one it was built for."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from lsm.loader.layers import Layer

if TYPE_CHECKING:
    from dgl import DGLBlock


def to_blocks(layers: Sequence[Layer], n_id: torch.Tensor) -> list[DGLBlock]:
    """As Batch.to_dgl(), for ``layers`` over the nodes ``n_id``."""
    dgl = import_dgl()
    blocks = []
    for layer in layers:
        block = dgl.create_block(
            ("csc", (layer.indptr, layer.edge_index[0], [])),
            num_src_nodes=layer.num_src,
            num_dst_nodes=layer.num_dst,
            device=n_id.device,
        )
        if layer.edge_weight is not None:
            block.edata["edge_weight"] = layer.edge_weight
        block.srcdata[dgl.NID] = n_id[: layer.num_src]
        block.dstdata[dgl.NID] = n_id[: layer.num_dst]
        blocks.append(block)
    return blocks


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
