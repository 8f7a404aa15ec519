"""Batches of sampled nodes: their samples, their rows and their labels."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from lsm import native
from lsm.cache.options import CacheOptions
from lsm.data.graph_store import GraphStore
from lsm.features.loader import FeatureLoader
from lsm.features.open import open_features
from lsm.features.row_source import Rows
from lsm.features.sets import FeatureSets
from lsm.features.typed import open_feature_sets
from lsm.loader.batch import Batch, StoreValues
from lsm.loader.loader import SampledSeeds
from lsm.sampler.neighbor import SampledGraph
from lsm.sampler.seeds import NodeSeeds, SeedBatch
from lsm.storage.options import StorageOptions

_PRESAMPLED_EPOCH = 2**31
"""No epoch of training, so that the batches that divide a cache are others."""
_PRESAMPLED_ITERATIONS = 64


class NodeBatches:
    """Samples seed nodes, and makes Batches of the samples.

    sampler: a Sampler, or one that takes the times of seeds. values: those of the store, for PyG's
    form of a batch. labels: those of the seeds' type, [N], or None.
    """

    def __init__(self, sampler: Any, values: StoreValues, labels: Tensor | None) -> None:
        self._sampler, self._values, self._labels = sampler, values, labels

    def sample(self, seeds: SeedBatch) -> SampledGraph:
        """The sample of a batch's seeds."""
        return self._sampler.sample(*_arguments(seeds))

    def edge_ids(self, seeds: SeedBatch) -> Tensor:
        """The positions in the topology of the sample's edges: [e] int64."""
        return self._sampler.edge_ids(*_arguments(seeds))

    def make(self, sampled: SampledSeeds, x: Rows, stats: dict[str, float]) -> Batch:
        """The batch of a sample, its rows and its counters."""
        seeds, labels = sampled.seeds, None
        if self._labels is not None:
            labels = self._labels.index_select(0, seeds.nodes)
            native.check_mapped(self._labels)
        return Batch.from_sampled(
            sampled.graph,
            x=x,
            y=labels,
            input_id=seeds.input_id,
            find_edges=partial(self.edge_ids, seeds),
            epoch=seeds.name.epoch,
            iteration=seeds.name.iteration,
            stats=stats,
            seed_time=seeds.times,
            store_values=self._values,
        )

    def open_rows(
        self, store: GraphStore, cache: Any, storage: Any, seeds: NodeSeeds
    ) -> FeatureLoader | FeatureSets:
        """The rows of a store. A cache over several types is divided by the requests of some
        batches."""
        if not store.is_typed:
            return open_features(store, cache, storage)
        cache = CacheOptions.of_argument("cache", cache)
        requests = None if cache is None else self._count_requests(store.num_nodes, seeds)
        storage = StorageOptions.of_argument("storage", storage)
        return open_feature_sets(store, cache, storage, requests=requests)

    def _count_requests(self, num_nodes: int, seeds: NodeSeeds) -> Tensor:
        """Requests of each node in some batches: [num_nodes] int64."""
        counts = torch.zeros(num_nodes, dtype=torch.int64)
        draw = seeds.epoch(_PRESAMPLED_EPOCH)
        for iteration in range(min(seeds.num_iterations, _PRESAMPLED_ITERATIONS)):
            ids = self.sample(draw(iteration)).n_id
            counts.index_add_(0, ids, torch.ones_like(ids))
        return counts


def _arguments(seeds: SeedBatch) -> tuple[Any, ...]:
    """Of a sampler; only one of times takes them."""
    named = (seeds.nodes, seeds.name)
    return named if seeds.times is None else (*named, seeds.times)
