"""Mini-batches of sampled neighbourhoods with their features, prepared ahead of training."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from lsm.graph.topology import Topology
from lsm.loader.batch import Batch
from lsm.loader.pipeline import Pipeline, Prepared
from lsm.loader.pyg_arguments import check_extra_arguments
from lsm.sampler.neighbor import (
    NeighborSampler,
    SampledGraph,
    Sampler,
)
from lsm.sampler.options import Sampling
from lsm.sampler.seeds import SeedSchedule, seed_nodes
from lsm.storage.options import StorageOptions
from lsm.storage.read_ahead import ReadAhead


class NeighborLoader:
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
        features: FeatureLoader | None = None,
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
            whole_number("prefetch", prefetch, 1)
        self._schedule = SeedSchedule(
            seed_nodes(store, input_nodes),
            batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            seed=seed,
            rank=rank,
            world_size=world_size,
        )
        self._description = (
            f"{store!r}, num_neighbors={num_neighbors}, seeds={self._schedule.num_seeds}, "
            f"batch_size={batch_size}, shuffle={shuffle}, "
            f"sampling={sampling.kind!r}, rank={rank}, world_size={world_size}"
        )
        self._rank = rank
        if labels is None and store.num_classes > 0:
            labels = store.labels()
        self._labels = labels
        self._sampler = sampler or NeighborSampler(
            topology or store.topology(), num_neighbors, seed=seed, sampling=sampling
        )
        self._owns_features = features is None
        self.features = features or open_features(store, cache, storage)
        if not isinstance(prefetch, ReadAhead):
            prefetch = ReadAhead.fixed(int(prefetch))
        self._read_ahead = prefetch
        self._staging_bytes = staging_bytes
        self._num_threads = num_threads
        self._timeout_secs = timeout_secs
        self._window_bytes = window_bytes
        self._epoch = 0
        self._totals: dict[str, float] = {"batches": 0, "sampled_nodes": 0, "sampled_edges": 0}
        self._totals |= {"sample_secs": 0.0, "wait_secs": 0.0}

    def __repr__(self) -> str:
        return f"NeighborLoader({self._description}, iterations={len(self)}, {self.features!r})"

    def __len__(self) -> int:
        """Iterations per epoch, the same on every rank."""
        return self._schedule.num_iterations

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next ``for batch in loader``. Later loops continue from there.

        Args:
            epoch: Epoch, from 0.
        """
        self._epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        return self.iterate(epoch)

    def iterate(self, epoch: int, start_iteration: int = 0) -> Iterator[Batch]:
        """Iterates over the batches of an epoch: those of an uninterrupted run.

        The iterator raises the errors of background threads. It blocks until a batch is ready.

        Args:
            epoch: Epoch, from 0.
            start_iteration: First iteration.

        Returns:
            An iterator over the batches of ``epoch`` from ``start_iteration`` on.

        Raises:
            OSError: A read failed.
            TimeoutError: A batch is not ready in time.
            ValueError: The topology is corrupt.
        """
        order = self._schedule.epoch(epoch)

        def sample(iteration: int) -> SampledGraph:
            seeds = self._schedule.seeds(order, iteration)
            graph = self._sampler.sample(seeds, **self._name(epoch, iteration))
            return graph.packed() if self.features.window > 1 else graph

        return self._batches(sample, epoch, order, start_iteration)

    def global_batch_size(self, iteration: int) -> int:
        """Counts the seeds of an iteration.

        Args:
            iteration: Iteration of the epoch, from 0.

        Returns:
            Its seeds, over all ranks.
        """
        return self._schedule.global_count(iteration)

    def stats(self) -> dict[str, int | float]:
        """Returns the counters since construction.

        Returns:
            batches, sampled_nodes, sampled_edges, sample_secs (seconds of all sampling threads),
            wait_secs (seconds that the consumer waited for batches), and those of ``features``.
        """
        return self._totals | self.features.stats()

    def close(self) -> None:
        """Closes the feature loader if this loader opened it."""
        if self._owns_features:
            self.features.close()

    def __enter__(self) -> NeighborLoader:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _name(self, epoch: int, iteration: int) -> dict[str, int]:
        """The arguments of a sampler that identify the batch."""
        step = epoch * len(self) + iteration
        return {"epoch": epoch, "iteration": iteration, "rank": self._rank, "step": step}

    def _edge_ids(self, seeds: torch.Tensor, epoch: int, iteration: int) -> torch.Tensor:
        return self._sampler.edge_ids(seeds, **self._name(epoch, iteration))

    def _batches(
        self,
        sample: Callable[[int], SampledGraph],
        epoch: int,
        order: torch.Tensor | None,
        start_iteration: int,
    ) -> Iterator[Batch]:
        # Created here, at the first next(), so that an unused iterator starts no threads.
        pipeline = Pipeline(
            sample,
            self.features,
            first=start_iteration,
            last=len(self),
            read_ahead=self._read_ahead,
            staging_bytes=self._staging_bytes,
            num_threads=self._num_threads,
            timeout_secs=self._timeout_secs,
            window_bytes=self._window_bytes,
        )
        batches = iter(pipeline)
        try:
            while (batch := self._next_batch(batches, epoch, order)) is not None:
                yield batch
                del batch  # the consumer may free its memory while the next one is awaited
        finally:
            batches.close()
            pipeline.close()

    def _next_batch(
        self, pipeline: Iterator[Prepared], epoch: int, order: torch.Tensor | None
    ) -> Batch | None:
        start = time.perf_counter()
        prepared = next(pipeline, None)
        self._totals["wait_secs"] += time.perf_counter() - start
        return None if prepared is None else self._batch(prepared, epoch, order)

    def _batch(self, prepared: Prepared, epoch: int, order: torch.Tensor | None) -> Batch:
        graph = prepared.graph
        self._totals["batches"] += 1
        self._totals["sampled_nodes"] += graph.n_id.numel()
        self._totals["sampled_edges"] += graph.edge_index.size(1)
        self._totals["sample_secs"] += prepared.stats["sample_secs"]
        seeds = self._schedule.seeds(order, prepared.iteration)
        labels = None
        if self._labels is not None:
            labels = self._labels[seeds]
            native.check_mapped(self._labels)
        return Batch.from_sampled(
            graph,
            x=prepared.x,
            y=labels,
            input_id=self._schedule.input_ids(order, prepared.iteration),
            find_edges=partial(self._edge_ids, seeds, epoch, prepared.iteration),
            epoch=epoch,
            iteration=prepared.iteration,
            stats=prepared.stats,
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
