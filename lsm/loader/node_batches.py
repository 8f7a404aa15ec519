"""Batches of sampled nodes: their samples, their rows and their labels."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from lsm import native
from lsm.cache.options import CacheOptions
from lsm.data.graph_store import GraphStore
from lsm.features.open import open_features
from lsm.features.row_source import Rows
from lsm.features.sets import Features
from lsm.features.typed import open_feature_sets
from lsm.loader.batch import Batch, StoreValues
from lsm.sampler.neighbor import SampledGraph
from lsm.sampler.seeds import SeedBatch, SeedSource, count_requests
from lsm.storage.options import StorageOptions


class NodeBatches:
    """Samples seed nodes, and makes Batches of the samples.

    sampler: a Sampler, or one that takes the times of seeds. values: those of the store, for PyG's
    form of a batch. labels: those of the seeds' type, [N], or None. gives_node_ids: ``input_id`` of
    a batch has the seeds' ids, not their positions.
    """

    def __init__(
        self,
        sampler: Any,
        values: StoreValues,
        labels: Tensor | None,
        *,
        gives_node_ids: bool = False,
    ) -> None:
        self._sampler, self._values, self._labels = sampler, values, labels
        self._gives_node_ids = gives_node_ids

    def sample(self, seeds: Any) -> SampledGraph:
        """The sample of a batch's seeds."""
        return self._sampler.sample(*seeds.arguments)

    def edge_ids(self, seeds: Any) -> Tensor:
        """The positions in the topology of the sample's edges: [e] int64."""
        return self._sampler.edge_ids(*seeds.arguments)

    def make(
        self, seeds: SeedBatch, graph: SampledGraph, x: Rows | None, stats: dict[str, float]
    ) -> Batch:
        """The batch of some seeds, their sample, its rows (None: not fetched) and its counters."""
        labels = None
        if self._labels is not None:
            labels = self._labels.index_select(0, seeds.nodes)
            native.check_mapped(self._labels)
        return Batch.from_sampled(
            graph,
            x=x,
            y=labels,
            input_id=seeds.nodes if self._gives_node_ids else seeds.input_id,
            find_edges=partial(self.edge_ids, seeds),
            epoch=seeds.name.epoch,
            iteration=seeds.name.iteration,
            stats=stats,
            seed_time=seeds.times,
            store_values=self._values,
        )

    def open_rows(self, store: GraphStore, cache: Any, storage: Any, seeds: SeedSource) -> Features:
        """The rows of a store. A cache over several types is divided by the requests of some
        batches."""
        if not store.is_typed:
            return open_features(store, cache, storage)
        cache = CacheOptions.of_argument("cache", cache)
        requests = None
        if cache is not None:
            requests = count_requests(self._sampler, seeds, store.num_nodes)
        storage = StorageOptions.of_argument("storage", storage)
        return open_feature_sets(store, cache, storage, requests=requests)
