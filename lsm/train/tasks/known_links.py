"""Known links: the edges of a store, and the pairs of given splits that are none of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from lsm import native
from lsm.data import format as layout
from lsm.data.graph_store import GraphStore
from lsm.data.links.parts import edge_chunks
from lsm.data.links.splits import LinkSplits
from lsm.graph.topology import Topology
from lsm.links.known_edges import KnownEdges

_PAIRS_AT_ONCE = 1 << 20


def known_topologies(store: GraphStore, splits: LinkSplits) -> list[Topology]:
    """The known links by destination: the edges of the store, memory-mapped, and, if there are any,
    the pairs of given splits that are none of them. Those take 8 bytes each, and 8 for each
    destination; the search for them takes 9 bytes for each given pair."""
    edges = store.edges(splits.edge_type)
    count = np.uint64(max(1, edges.num_sources))
    keys = [
        part[1].numpy().astype(np.uint64) * count + part[0].numpy().astype(np.uint64)
        for part in _given_pairs(splits)
    ]
    others = np.unique(np.concatenate([np.empty(0, np.uint64), *keys]))
    if not len(others):
        return [edges.topology()]
    is_edge = np.zeros(len(others), bool)
    for chunk in edge_chunks(edges):
        own = chunk.destinations.astype(np.uint64) * count + chunk.sources.astype(np.uint64)
        places = np.searchsorted(others, own).clip(max=len(others) - 1)
        is_edge[places[others[places] == own]] = True
    others = others[~is_edge]
    if not len(others):
        return [edges.topology()]
    firsts = np.arange(edges.num_destinations + 1, dtype=np.uint64) * count
    return [
        edges.topology(),
        Topology(
            torch.from_numpy(np.searchsorted(others, firsts)),
            torch.from_numpy((others % count).astype(np.int64)),
        ),
    ]


def known_edges(store: GraphStore, splits: LinkSplits, destinations: Tensor) -> KnownEdges:
    """The known links into ``destinations`` [k] int64, ascending. Raises ValueError if the edges of
    the store are damaged there, which the sampler, with edges of its own, does not read."""
    edges = store.edges(splits.edge_type)
    topology, folder = edges.topology(), edges.indptr_path.parent
    damaged = ValueError(f"{folder}: the topology is damaged: check it with `lsm data verify`")
    first, end = topology.indptr[destinations], topology.indptr[destinations + 1]
    counts = end - first
    if ((first < 0) | (counts < 0) | (end > edges.num_edges)).any():
        raise damaged
    targets = torch.repeat_interleave(destinations, counts)
    before = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    places = torch.arange(len(targets)) - before + torch.repeat_interleave(first, counts)
    sources = topology.indices[places].long()
    native.check_mapped(topology.indices)
    if ((sources < 0) | (sources >= edges.num_sources)).any():
        raise damaged
    given = [part[:, torch.isin(part[1], destinations)] for part in _given_pairs(splits)]
    both = torch.cat([torch.stack((sources, targets)), *given], dim=1)
    return KnownEdges(both[0], both[1])


def _given_pairs(splits: LinkSplits) -> Iterator[Tensor]:
    """The pairs of given splits, some at a time: [2, n] int64. Other splits have edges of the store
    alone, and give none."""
    if splits.meta.order != "given":
        return
    for split in layout.SPLITS:
        pairs = splits.edges(split)
        for first in range(0, pairs.size(1), _PAIRS_AT_ONCE):
            part = pairs[:, first : first + _PAIRS_AT_ONCE].contiguous()
            native.check_mapped(pairs)
            yield part
