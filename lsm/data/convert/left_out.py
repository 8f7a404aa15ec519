"""Names the data next to a graph that a conversion leaves out."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

logger = logging.getLogger(__name__)

EDGE_PAGE = "docs/tasks/edge-data.md"
_ARRAYS = (".npy", ".npz", ".pt")


def warn_of_left_out(folder: Path, expected: Collection[str], known: str) -> None:
    """Logs one warning per kind of array in ``folder`` that is not converted, and its use still.

    expected: names of files that need no warning. known: the names that the converter reads, in
    words.
    """
    others = _others(folder, expected)
    of_edges = [name for name in others if name.startswith("edge_")]
    of_nodes = [name for name in others if name.startswith("node_")]
    rest = [name for name in others if name not in of_edges and name not in of_nodes]
    _warn(
        folder,
        of_edges,
        "no names of values that are kept; in your own loop, batch.e_id indexes them once they are "
        f"sorted as the store's edges are ({EDGE_PAGE})",
    )
    _warn(
        folder,
        of_nodes,
        "a store keeps features, one class per node and splits; in your own loop, index other "
        "values of nodes with batch.n_id",
    )
    _warn(folder, rest, f"unknown names; the converter reads {known}")


def warn_of_unknown(folder: Path, expected: Collection[str]) -> None:
    """Logs one warning of the arrays in ``folder``, of a type of nodes or edges, that are none of
    ``expected``."""
    known = ", ".join(expected)
    _warn(folder, _others(folder, expected), f"unknown names; the converter reads {known}")


def warn_of_types(processed: Path, nodes: str, edges: str) -> None:
    """Logs one warning of the node and edge types of IGB's heterogeneous layout in ``processed``
    that are not converted: all folders but ``nodes`` and ``edges``."""
    folders = sorted(each.name for each in processed.iterdir() if each.is_dir())
    others = [f"{name}/" for name in folders if name not in (nodes, edges)]
    _warn(
        processed,
        others,
        f"a store has one type of node and one of edge, here {nodes} and {edges}; graphs of "
        "several types are not supported",
    )


def _others(folder: Path, expected: Collection[str]) -> list[str]:
    names = sorted(file.name for file in folder.iterdir() if file.suffix in _ARRAYS)
    return [name for name in names if name not in expected]


def _warn(folder: Path, names: list[str], reason: str) -> None:
    if names:
        logger.warning("%s: not converted: %s: %s", folder, ", ".join(names), reason)
