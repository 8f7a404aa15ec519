"""Mini-batches of sampled neighbourhoods with their features, prepared ahead of training."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Never

import torch

from lsm import native
from lsm.cache.options import CacheOptions
from lsm.core.arguments import whole_number
from lsm.core.limits import MOST_THREADS
from lsm.data.graph_store import GraphStore
from lsm.features.loader import FeatureLoader
from lsm.features.open import open_features
from lsm.features.row_source import Rows
from lsm.features.sets import FeatureSets
from lsm.graph.topology import Topology
from lsm.graph.types import NODE, TypedMap
from lsm.loader.batch import Batch
from lsm.loader.loader import Loader, SampledSeeds
from lsm.loader.pyg_arguments import check_extra_arguments
from lsm.loader.rows_in_flight import RunAhead
from lsm.sampler.neighbor import NeighborSampler, Sampler
from lsm.sampler.options import Sampling
from lsm.sampler.seeds import NodeSeeds, seed_nodes
from lsm.storage.options import StorageOptions
from lsm.storage.read_ahead import ReadAhead


class NeighborLoader(Loader):
    """Iterates over an epoch of Batches, as PyG's loader of the same name does.

    Batches carry ``x, edge_index, y, n_id, e_id, input_id, batch_size, num_sampled_nodes,
    num_sampled_edges``. Their contents are a function of (seed, epoch, iteration, rank) and of
    nothing else. Background threads sample and read features ahead of the consumer. Each iteration
    over the loader is the next epoch, from 0 on. Over a cache, one iterator is open at a time.

    Args:
        store: A GraphStore, or its path.
        num_neighbors: Neighbours per node and hop, without replacement; -1 takes all.
        input_nodes: Seed nodes: a split's name, [N] int64 or of a smaller integer type without
            repeats, a mask, or None for all nodes.
        batch_size: Seeds per rank and iteration.
        shuffle: Shuffle the seeds anew in each epoch, as ``seed`` and the epoch determine.
        drop_last: Leave out the last iteration if it has fewer seeds than the others.
        seed: Seed of all draws.
        rank: This process's place, from 0.
        world_size: Number of ranks. Every rank has the same number of iterations.
        features: Source of rows. None: the loader opens one with ``storage`` and ``cache``, and
            closes it in ``close()``.
        storage: The engine that reads rows, and its options, or a dict of them.
        cache: Options of a cache over storage, or a dict of them (``{"bytes": "4GiB"}``). Sampling
            then runs ``cache.window`` iterations ahead. After an epoch that is left early the cache
            starts cold.
        topology: The store's topology, if it is open already.
        labels: The store's labels, [N] int64, if they are open already.
        sampling: The method that draws neighbours: neighbor, labor, or a Sampling with its options,
            or a dict of them.
        sampler: Draws ``num_neighbors`` in place of a NeighborSampler over the topology;
            ``sampling`` has then no effect.
        prefetch: Most iterations that are read ahead. A ReadAhead adapts them to the reads that the
            drive has outstanding.
        staging_bytes: Most bytes of rows that are read ahead.
        num_threads: Sampling threads; each samples an iteration of its own.
        timeout_secs: Longest wait of the consumer for a batch, in seconds. A longer one raises
            TimeoutError.
        window_bytes: Memory of the window's graphs and of the planner's ids; None: no bound but
            ``cache.window``. A smaller budget shortens the window, unless ranks share the cache.
        **more: None. An argument that only PyG's loader has may have PyG's default.

    Raises:
        ValueError: An argument or an option is invalid.
        TypeError: An argument of PyG's loader has another value than PyG's default; the error names
            the remedy.
        OSError: A file of the store cannot be read.
        RuntimeError: The storage engine is unavailable.
    """

    def __init__(
        self,
        store: GraphStore | str | Path,
        num_neighbors: Sequence[int],
        input_nodes: str | torch.Tensor | None = None,
        batch_size: int = 1024,
        *,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        features: FeatureLoader | FeatureSets | None = None,
        storage: StorageOptions | Mapping[str, Any] | None = None,
        cache: CacheOptions | Mapping[str, Any] | None = None,
        topology: Topology | None = None,
        labels: torch.Tensor | None = None,
        sampling: str | Sampling | Mapping[str, Any] = "neighbor",
        sampler: Sampler | None = None,
        prefetch: int | ReadAhead = 4,
        staging_bytes: int = 256 << 20,
        num_threads: int = 1,
        timeout_secs: float = 120.0,
        window_bytes: int | None = None,
        **more: Never,
    ) -> None:
        check_extra_arguments(more, _arguments())
        store, sampling = _opened(store), Sampling.of(sampling)
        whole_number("num_threads", num_threads, 1, MOST_THREADS)
        if not isinstance(prefetch, ReadAhead):
            prefetch = ReadAhead.fixed(whole_number("prefetch", prefetch, 1))
        seeds = NodeSeeds(
            seed_nodes(store, input_nodes),
            batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            seed=seed,
            rank=rank,
            world_size=world_size,
        )
        if labels is None and store.num_classes > 0:
            labels = store.labels()
        sampler = sampler or NeighborSampler(
            topology or store.topology(), num_neighbors, sampling=sampling
        )
        self._owns_features = features is None
        self._description = (
            f"{store!r}, num_neighbors={num_neighbors}, seeds={seeds.num_seeds}, "
            f"batch_size={batch_size}, shuffle={shuffle}, "
            f"sampling={sampling.kind!r}, rank={rank}, world_size={world_size}"
        )
        super().__init__(
            seeds,
            lambda batch: sampler.sample(batch.nodes, batch.name),
            features or open_features(store, cache, storage),
            _Collate(sampler, labels),
            RunAhead(prefetch, staging_bytes, num_threads, timeout_secs, window_bytes),
        )

    def __repr__(self) -> str:
        return f"NeighborLoader({self._description}, iterations={len(self)}, {self.features!r})"

    def close(self) -> None:
        """Closes the feature loader if this loader opened it."""
        if self._owns_features:
            self.features.close()

    def __enter__(self) -> NeighborLoader:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class _Collate:
    """Makes Batches of sampled nodes, with their labels."""

    def __init__(self, sampler: Sampler, labels: torch.Tensor | None) -> None:
        self._sampler, self._labels = sampler, labels
        self._by_type = None if labels is None else TypedMap({NODE: labels})

    def __call__(self, sampled: SampledSeeds, x: Rows, stats: dict[str, float]) -> Batch:
        seeds, labels = sampled.seeds, None
        if self._labels is not None:
            labels = self._labels.index_select(0, seeds.nodes)
            native.check_mapped(self._labels)
        return Batch.from_sampled(
            sampled.graph,
            x=x,
            y=labels,
            input_id=seeds.input_id,
            find_edges=partial(self._sampler.edge_ids, seeds.nodes, seeds.name),
            epoch=seeds.name.epoch,
            iteration=seeds.name.iteration,
            stats=stats,
            labels=self._by_type,
        )


def _arguments() -> list[str]:
    """The names of the loader's arguments."""
    parameters = inspect.signature(NeighborLoader).parameters.values()
    return [each.name for each in parameters if each.kind is not each.VAR_KEYWORD]


def _opened(store: Any) -> GraphStore:
    """``store``, opened if it is a path. Raises TypeError for a graph of PyG."""
    if isinstance(store, str | Path):
        return GraphStore.open(store)
    if type(store).__module__.startswith("torch_geometric."):
        raise TypeError(
            f"store: expected a GraphStore or its path, got PyG's {type(store).__name__}; save its "
            "arrays and convert them with `lsm data convert npy`"
        )
    return store
