"""Samples the access trace of a training run, without training and without reading features."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from lsm.ablation.trace import Trace
from lsm.ablation.traced_types import TracedTypes
from lsm.cache.scores import SCORE_NAMES, compute_score
from lsm.core.progress import counting
from lsm.core.threads import map_ahead
from lsm.data.graph_store import GraphStore
from lsm.loader.inputs import Drawing, open_sampler, open_topology
from lsm.sampler.neighbor import Sampler
from lsm.sampler.options import Sampling
from lsm.sampler.seeds import NodeSeeds, SeedBatch


def sample_trace(
    store: GraphStore,
    num_neighbors: Sequence[int],
    batch_size: int,
    *,
    ranks: int = 1,
    iterations: int | None = None,
    epochs: int = 1,
    seed: int = 0,
    split: str = "train",
    input_type: str | None = None,
    types: Sequence[str] | None = None,
    score: str | None = None,
    sampling: str | Sampling = "neighbor",
    num_threads: int | None = None,
    progress: bool | None = None,
) -> Trace:
    """The requests of a training run: those of ``NeighborLoader(shuffle=True)`` on each rank.

    iterations: their number, across epochs; None: ``epochs`` whole epochs. batch_size: seeds per
    rank. input_type: that of the seeds, in a store with types; None: the only one with ``split``.
    types: those whose rows are requested, of one size; None: all with rows. sampling: the method
    that draws neighbours. score: a static score to include; computed and
    stored if it is missing. The result does not depend on ``num_threads`` (None: this machine's
    cores). Memory: 16 bytes per request.
    """
    for name, value in (("ranks", ranks), ("iterations", iterations), ("epochs", epochs)):
        if value is not None and value < 1:
            raise ValueError(f"{name}: expected at least 1, got {value}")
    if score is not None and score not in (*SCORE_NAMES, *store.scores):
        known = dict.fromkeys((*SCORE_NAMES, *store.scores))
        raise ValueError(f"score: expected one of {', '.join(known)}, got {score!r}")
    traced = TracedTypes.of(store, split, input_type, types)
    schedules = [
        NodeSeeds(
            store.nodes(traced.seeds).split(split),
            batch_size,
            shuffle=True,
            drop_last=False,
            seed=seed,
            rank=rank,
            world_size=ranks,
        )
        for rank in range(ranks)
    ]
    per_epoch = schedules[0].num_iterations
    if per_epoch == 0:
        raise ValueError(f"{store.path}: split {split!r} is empty; there is nothing to sample")
    total = iterations or epochs * per_epoch
    threads = num_threads or len(os.sched_getaffinity(0))
    drawing = Drawing(num_neighbors, Sampling.of(sampling), False, "uniform", None, None)
    sampler: Sampler = open_sampler(open_topology(store, drawing), traced.seeds, drawing)

    def requested(seeds: SeedBatch) -> np.ndarray:
        ids = sampler.sample(seeds.nodes, seeds.name).ids.numpy()
        return ids[traced.mask(ids)]

    lists = []
    with counting("sampling", total, progress) as advance, ThreadPoolExecutor(threads) as executor:
        tasks = _tasks(schedules, total)
        for ids in map_ahead(executor, requested, tasks, 4 * threads):
            lists.append(ids)
            if len(lists) % ranks == 0:
                advance(1)
    return Trace(
        ids=np.concatenate(lists),
        offsets=np.concatenate([[0], np.cumsum([len(ids) for ids in lists])]).astype(np.int64),
        num_nodes=store.num_nodes,
        num_ranks=ranks,
        static_score=None if score is None else _score(store, score, threads, traced),
        name=f"trace of {store.path}",
    )


def _tasks(ranks: Sequence[NodeSeeds], total: int) -> Iterator[SeedBatch]:
    """The seeds of every rank at the first ``total`` iterations."""
    for t in range(total):
        epoch, iteration = divmod(t, ranks[0].num_iterations)
        if iteration == 0:
            seeds_at = [seeds.epoch(epoch) for seeds in ranks]
        for at in seeds_at:
            yield at(iteration)


def _score(store: GraphStore, name: str, num_threads: int, traced: TracedTypes) -> np.ndarray:
    """The score of each node; 0 for types whose rows are not requested."""
    is_stored = name in store.scores
    score = store.score(name) if is_stored else compute_score(store, name, num_threads=num_threads)
    if not store.is_typed:
        return score.numpy()
    return np.where(traced.mask(np.arange(store.num_nodes)), score.numpy(), np.float32(0))
