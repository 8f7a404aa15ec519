"""Mini-batches of sampled neighbourhoods with their features, prepared ahead of training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from lsm import native
from lsm.cache.options import CacheOptions
from lsm.core.arguments import whole_number
from lsm.core.limits import MOST_THREADS
from lsm.data.graph_store import GraphStore
from lsm.features.loader import FeatureLoader
from lsm.features.open import open_features
from lsm.loader.batch import Batch
from lsm.loader.pipeline import Pipeline, Prepared
from lsm.sampler.neighbor import (
    NeighborSampler,
    SampledGraph,
    Sampler,
    Topology,
)
from lsm.sampler.options import Sampling
from lsm.sampler.seeds import SeedSchedule, seed_nodes
from lsm.storage.options import StorageOptions
from lsm.storage.read_ahead import ReadAhead


class NeighborLoader:
    """Iterates over an epoch of Batches, as PyG's loader of the same name does.

    Batches carry ``x, edge_index, y, n_id, e_id, input_id, batch_size, num_sampled_nodes,
    num_sampled_edges``.
    Sampling and feature reads run in background threads, ahead of the consumer. What a batch holds
    is a function of (seed, epoch, iteration, rank) and of nothing else. Each iteration over the
    loader is an epoch of its own, from 0 on. Over a cache, one iterator is open at a time.

    store: a GraphStore.
    num_neighbors: neighbours per node and hop, without replacement; -1 takes all.
    input_nodes: seed nodes: a split's name, [N] int64 without repeats, or None for all nodes.
    batch_size: seeds per rank and iteration.
    shuffle: a new order of the seeds in each epoch, of ``seed`` and the epoch.
    drop_last: leaves out the last iteration if it has fewer seeds than the others.
    rank, world_size: this process's place; every rank has the same number of iterations.
    features: where rows come from; without it the loader opens one itself with ``engine``,
        ``storage`` and ``cache`` and closes it in close().
    cache: keep rows in memory as these options say. Sampling then runs ``cache.window`` iterations
        ahead. An epoch that is left early makes the cache start cold in the next.
    sampling: how neighbours are chosen: neighbor, labor, or a Sampling with more options.
    topology, labels: those of the store, if they are open already.
    sampler: what draws num_neighbors instead of a NeighborSampler over the topology; ``sampling``
        is then the sampler's own.
    prefetch, staging_bytes: how many iterations, and how many bytes of rows, are read ahead; a
        ReadAhead makes the iterations depend on what the device has left to do.
    num_threads: sampling threads, each with an iteration of its own.
    timeout_secs: how long the consumer waits for a batch before that is an error.
    window_bytes: memory of the window's graphs and of the planner's ids; None: as ``cache.window``
        takes. The window holds fewer iterations where it is less, unless ranks share the cache.
    """

    def __init__(
        self,
        store: GraphStore,
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
        engine: str = "auto",
        storage: StorageOptions | None = None,
        cache: CacheOptions | None = None,
        topology: Topology | None = None,
        labels: torch.Tensor | None = None,
        sampling: str | Sampling = "neighbor",
        sampler: Sampler | None = None,
        prefetch: int | ReadAhead = 4,
        staging_bytes: int = 256 << 20,
        num_threads: int = 1,
        timeout_secs: float = 120.0,
        window_bytes: int | None = None,
    ) -> None:
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
        self._rank = rank
        self._labels = store.labels() if labels is None else labels
        self._sampler = sampler or NeighborSampler(
            topology or store.topology(), num_neighbors, seed=seed, sampling=sampling
        )
        self._owns_features = features is None
        self.features = features or open_features(store, cache, storage, engine=engine)
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

    def __len__(self) -> int:
        """Iterations per epoch, the same on every rank."""
        return self._schedule.num_iterations

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch that the next ``for batch in loader`` runs through; those after it go
        on from there."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        return self.iterate(epoch)

    def iterate(self, epoch: int, start_iteration: int = 0) -> Iterator[Batch]:
        """The batches of ``epoch`` from ``start_iteration`` on, as a whole run would see them.

        Raises what went wrong in the background: OSError for a failed read, TimeoutError if a batch
        is not ready in time, ValueError for a corrupt topology.
        """
        order = self._schedule.epoch(epoch)

        def sample(iteration: int) -> SampledGraph:
            seeds = self._schedule.seeds(order, iteration)
            graph = self._sampler.sample(seeds, **self._name(epoch, iteration))
            return graph.packed() if self.features.window > 1 else graph

        return self._batches(sample, epoch, order, start_iteration)

    def global_batch_size(self, iteration: int) -> int:
        """Seeds of ``iteration`` over all ranks."""
        return self._schedule.global_count(iteration)

    def stats(self) -> dict[str, int | float]:
        """Counters since construction: batches, sampled_nodes, sampled_edges, sample_secs (over all
        sampling threads), wait_secs (the consumer waited for a batch), and the storage engine's."""
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
        """Which batch it is, for a sampler."""
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
        # The pipeline is made here, at the first next(): an iterator that is never used starts
        # no threads.
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
                del batch  # its memory is the consumer's to give back while the next is awaited
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
