"""Samples the access trace of a training run, without training and without reading features."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from lsm.ablation.trace import Trace
from lsm.cache.scores import SCORE_NAMES, compute_score
from lsm.core.progress import counting
from lsm.data.graph_store import GraphStore
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.options import Sampling
from lsm.sampler.seeds import NodeSeeds, SeedBatch

_T = TypeVar("_T")
_R = TypeVar("_R")


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
    score: str | None = None,
    sampling: str | Sampling = "neighbor",
    num_threads: int | None = None,
    progress: bool | None = None,
) -> Trace:
    """The requests of a training run: those of ``NeighborLoader(shuffle=True)`` on each rank.

    iterations: their number, across epochs; None: ``epochs`` whole epochs. batch_size: seeds per
    rank. sampling: the method that draws neighbours. score: a static score to include; computed and
    stored if it is missing. The result does not depend on ``num_threads`` (None: this machine's
    cores). Memory: 16 bytes per request.
    """
    for name, value in (("ranks", ranks), ("iterations", iterations), ("epochs", epochs)):
        if value is not None and value < 1:
            raise ValueError(f"{name}: expected at least 1, got {value}")
    if score is not None and score not in (*SCORE_NAMES, *store.scores):
        known = dict.fromkeys((*SCORE_NAMES, *store.scores))
        raise ValueError(f"score: expected one of {', '.join(known)}, got {score!r}")
    schedules = [
        NodeSeeds(
            store.split(split),
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
    sampler = NeighborSampler(store.topology(), num_neighbors, sampling=sampling)

    def requested(seeds: SeedBatch) -> np.ndarray:
        return sampler.sample(seeds.nodes, seeds.name).n_id.numpy().copy()

    lists = []
    with counting("sampling", total, progress) as advance, ThreadPoolExecutor(threads) as executor:
        tasks = _tasks(schedules, total)
        for ids in _map_ahead(executor, requested, tasks, 4 * threads):
            lists.append(ids)
            if len(lists) % ranks == 0:
                advance(1)
    return Trace(
        ids=np.concatenate(lists),
        offsets=np.concatenate([[0], np.cumsum([len(ids) for ids in lists])]).astype(np.int64),
        num_nodes=store.num_nodes,
        num_ranks=ranks,
        static_score=None if score is None else _score(store, score, threads),
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


def _map_ahead(
    executor: ThreadPoolExecutor, function: Callable[[_T], _R], tasks: Iterable[_T], ahead: int
) -> Iterator[_R]:
    """``map(function, tasks)`` in order, with at most ``ahead`` tasks in flight."""
    pending: deque[Future[_R]] = deque()
    for task in tasks:
        pending.append(executor.submit(function, task))
        if len(pending) >= ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _score(store: GraphStore, name: str, num_threads: int) -> np.ndarray:
    if name in store.scores:
        return store.score(name).numpy()
    return compute_score(store, name, num_threads=num_threads).numpy()
