"""The levels of rows that an inference needs, and the nodes of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.inference.link_outputs import LinkOutputs
from lsm.inference.network import BlockLayer, Network
from lsm.inference.outputs import Outputs

_EDGES_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Level:
    """The rows after ``number`` layers, by type; number 0: the maps of inputs."""

    number: int
    by_type: Mapping[str, BlockLayer]


def needed_levels(network: Network, outputs: Outputs) -> list[Level]:
    """The levels that the outputs need, in their order."""
    last = len(network.layers) if outputs.has_scores else network.embedding_level
    levels = [Level(0, network.inputs)] if network.inputs else []
    return levels + [Level(i + 1, network.layers[i]) for i in range(last)]


def needed_nodes(
    levels: Sequence[Level],
    outputs: Outputs,
    network: Network,
    topologies: Mapping[EdgeType, Topology],
    num_nodes: Mapping[str, int],
    links: LinkOutputs | None,
) -> list[dict[str, Tensor]] | None:
    """The nodes to compute at each level by type, [N] bool; None: all."""
    if outputs.selection is None and links is None:
        return None

    def nothing() -> dict[str, Tensor]:
        return {name: torch.zeros(count, dtype=torch.bool) for name, count in num_nodes.items()}

    masks = nothing()
    if links is not None:
        masks |= links.wanted(num_nodes)
    else:
        masks[network.node_type][outputs.selection] = True
    found = [masks]
    for level in levels[:0:-1]:
        masks = {name: mask.clone() for name, mask in found[0].items()}
        for name, layer in level.by_type.items():
            for each in layer.edge_types:
                _mark_sources(masks[each[0]], found[0][name], topologies[each])
        found.insert(0, masks)
    return found


def _mark_sources(sources: Tensor, wanted: Tensor, topology: Topology) -> None:
    """Marks the sources of all edges into the ``wanted`` nodes."""
    ids = wanted.nonzero().view(-1)
    first = topology.indptr[ids]
    counts = topology.indptr[ids + 1] - first
    parts = (counts.cumsum(0) // _EDGES_AT_ONCE).diff().nonzero().view(-1) + 1
    for begin, count in zip(first.tensor_split(parts), counts.tensor_split(parts), strict=True):
        start = begin - (count.cumsum(0) - count)
        places = torch.arange(int(count.sum())) + start.repeat_interleave(count)
        sources[topology.indices[places].long()] = True
