"""Bytes that the routes of an inference move, counted before one is chosen.

The count is of a graph without types, and the choice is a function of the graph, the model and the
nodes alone: memory must not decide on it, as the routes differ in rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from lsm.graph.topology import Topology
from lsm.inference.levels import Level

_VALUE_BYTES = 4


def gather_moves_less(
    levels: Sequence[Level],
    needed: Sequence[Mapping[str, Tensor]] | None,
    topology: Topology,
    row_bytes: int,
) -> bool:
    """True if the route ``gather`` moves fewer bytes than ``intervals`` at every memory: more than
    it moves with none, ``intervals`` moves with enough for one pass. ``needed``: the nodes to
    compute at each level, [N] bool by type; None: all. ``row_bytes``: of the features.
    Precondition: levels are of one type of nodes, and each has a form that streams."""
    num_nodes, last = topology.num_nodes, len(levels) - 1
    by_gather, by_intervals = 0, num_nodes * row_bytes
    for place, level in enumerate(levels):
        ((name, layer),) = level.by_type.items()
        streamed = layer.streamed
        assert streamed is not None, "it has a form that streams"
        passed = streamed.width * (2 + (streamed.takes_own and not streamed.own_width))
        by_intervals += num_nodes * _VALUE_BYTES * (passed + 2 * streamed.own_width)
        count, num_edges = num_nodes, topology.num_edges
        if needed is not None:
            of_node = needed[place][name]
            count, num_edges = int(of_node.sum()), int(topology.indptr.diff()[of_node].sum())
        by_gather += (count + num_edges) * row_bytes
        row_bytes = _VALUE_BYTES * layer.width
        by_gather += count * row_bytes if place < last else 0
    return by_gather < by_intervals
