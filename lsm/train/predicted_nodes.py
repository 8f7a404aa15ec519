"""The nodes whose rows `lsm predict` is asked for."""

from __future__ import annotations

from pathlib import Path

import torch

from lsm.core.files import read_utf8
from lsm.core.ids import vector_of_ids
from lsm.data.convert.array_file import ArrayFile
from lsm.data.graph_store import GraphStore

_LARGEST_ID = 2**63 - 1


def predicted_nodes(
    nodes: str | Path | torch.Tensor, store: GraphStore, node_type: str | None
) -> torch.Tensor | None:
    """The ids that ``nodes`` name; None: all. Raises ValueError, FileNotFoundError.

    nodes: ``all``, a split, a file of ids or names, or ids. node_type: None without types.
    """
    if not isinstance(nodes, str | Path):
        return vector_of_ids(nodes, "--nodes").cpu()
    data = store.nodes(node_type)
    if nodes == "all":
        return None
    if nodes in data.splits or nodes == "val":
        return data.split(str(nodes))
    path = Path(nodes)
    if not path.is_file():
        known = ", ".join(["all", *data.splits])
        raise FileNotFoundError(
            f"--nodes: expected {known} or a file of ids or names, got {nodes}, which is no file"
        )
    if path.suffix == ".npy":
        try:
            with ArrayFile(path, masks=True) as file:
                ids = file.read_all()
        except ValueError as error:
            raise ValueError(f"--nodes: {error}") from None
        return vector_of_ids(ids, f"--nodes: {path}")
    try:
        lines = [line for line in read_utf8(path).split("\n") if line.strip()]
    except ValueError as error:
        raise ValueError(f"--nodes: {error}") from None
    if all(line.strip().isascii() and line.strip().isdecimal() for line in lines):
        numbers = list(map(int, lines))
        if (largest := max(numbers, default=0)) > _LARGEST_ID:
            raise ValueError(
                f"--nodes: expected ids from 0 to {data.num_nodes - 1}, got {largest} in {path}"
            )
        return torch.tensor(numbers, dtype=torch.int64)
    if not data.has_names:
        raise ValueError(f"--nodes: {path}: expected ids, as {store.path} has no names of nodes")
    try:
        return torch.tensor(data.find(lines), dtype=torch.int64)
    except ValueError as error:
        raise ValueError(f"--nodes: {path}: {error}") from None
