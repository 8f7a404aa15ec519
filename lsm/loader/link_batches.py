"""Batches of sampled links: their samples and their rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lsm.data.links.splits import MessageEdges
from lsm.features.row_source import Rows
from lsm.graph.types import EdgeType
from lsm.loader.batch import Batch, StoreValues
from lsm.loader.node_batches import NodeBatches
from lsm.sampler.neighbor import SampledGraph
from lsm.sampler.typed_neighbor import TypedNeighborSampler


class LinkBatches(NodeBatches):
    """Samples the ends of links, and makes Batches of the samples.

    sampler: of the message graph. values: those of the store, for PyG's form of a batch. message:
    the edges to sample, of types that differ from the store's.
    """

    def __init__(
        self,
        sampler: TypedNeighborSampler,
        values: StoreValues,
        message: Mapping[EdgeType, MessageEdges],
    ) -> None:
        super().__init__(sampler, values, None)
        self._edge_types, self._message = sampler.edge_types, message

    def store_edge_ids(self, seeds: Any, counts: Mapping[EdgeType, int]) -> Tensor:
        """The positions in the store of the sample's edges, of which there are ``counts`` of each
        type: [e] int64."""
        ids = self.edge_ids(seeds)
        if not self._message:
            return ids
        parts = ids.split([counts[each] for each in self._edge_types])
        found = [
            self._message[each].positions(part) if each in self._message else part
            for each, part in zip(self._edge_types, parts, strict=True)
        ]
        return torch.cat(found)

    def make(
        self, seeds: Any, graph: SampledGraph, x: Rows | None, stats: dict[str, float]
    ) -> Batch:
        """As NodeBatches.make(). A subgraph has the number of its link."""
        num_links, batch = len(seeds.input_id), graph.batch
        if batch is not None:  # of links, then of negatives, on each side
            batch = batch % max(1, len(seeds.links.sources)) % max(1, num_links)
        types = graph.types
        counts = (
            {each: sum(types.num_sampled_edges[each]) for each in self._edge_types}
            if types is not None
            else {self._edge_types[0]: sum(graph.num_sampled_edges)}
        )
        return Batch.from_sampled(
            graph,
            x=x,
            batch_size=num_links,
            input_id=seeds.input_id,
            find_edges=partial(self.store_edge_ids, seeds, counts),
            epoch=seeds.name.epoch,
            iteration=seeds.name.iteration,
            stats=stats,
            store_values=self._values,
            batch=batch,
            links=seeds.links,
        )
