"""Static scores: the expected hotness of each node, from the graph and the training nodes.

Scores of a graph with types are over its one space of node ids, and all types of edges count alike.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch

from lsm import native
from lsm.graph.topology import Topology
from lsm.graph.types import TypedMap
from lsm.graph.union import union
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler, Sampler
from lsm.sampler.typed_neighbor import TypedNeighborSampler, TypedTopology

if TYPE_CHECKING:
    from lsm.data.graph_store import GraphStore

logger = logging.getLogger(__name__)

AUTO = "reverse_pagerank"
"""The score that ``cache.score=auto`` stands for."""

SCORE_NAMES = ("in_degree", "reverse_pagerank", "presample")


def check_score(store: GraphStore, name: str) -> None:
    """ValueError unless ``cache.score`` can be ``name`` with this store."""
    known = dict.fromkeys(("auto", "none", *SCORE_NAMES, *store.scores))
    if name not in known:
        raise ValueError(f"cache.score: expected one of {', '.join(known)}, got {name!r}")


class StoppedError(Exception):
    """A computation was told to stop."""


def in_degree(topology: Topology, num_threads: int = 1) -> torch.Tensor:
    """The number of in-neighbours of each node, float32 [N]."""
    scores = torch.empty(len(topology.indptr) - 1)
    native.in_degree(topology.indptr, scores, native.ThreadPool(num_threads))
    return scores


def reverse_pagerank(
    topology: Topology,
    train_ids: torch.Tensor,
    iterations: int = 20,
    damping: float = 0.85,
    num_threads: int = 1,
    stop: native.StopFlag | None = None,
) -> torch.Tensor:
    """Weighted reverse PageRank: the share of a walk along sampling's direction that each node
    sees. Returns float32 [N] with sum 1.

    Mass starts at ``train_ids`` int64, uniformly. In each iteration a node passes ``damping`` of
    its mass to its in-neighbours in equal parts. The rest, and all mass of nodes without
    in-neighbours, returns to the training nodes. Bit-identical for any ``num_threads``; takes 20
    bytes per node. Raises ValueError for an empty or out-of-range ``train_ids``, StoppedError soon
    after ``stop`` is set. Source: LSM-GNN, section 4.2.
    """
    scores = torch.empty(len(topology.indptr) - 1)
    pool = native.ThreadPool(num_threads)
    done = native.reverse_pagerank(
        topology.indptr, topology.indices, train_ids, iterations, damping, scores, pool, stop
    )
    if not done:
        raise StoppedError
    return scores


def presample(
    topology: Topology,
    train_ids: torch.Tensor,
    num_neighbors: Sequence[int] = (10, 5),
    batch_size: int = 1024,
    epochs: int = 1,
    seed: int = 0,
    num_threads: int = 1,
) -> torch.Tensor:
    """The number of batches of ``epochs`` sampled epochs that request each node: float32 [N].

    ``num_threads`` batches are sampled at once; the result does not depend on it. Source: GNNLab
    (EuroSys 2022), section 6.
    """
    counts = torch.zeros(len(topology.indptr) - 1)
    sampler = NeighborSampler(topology, num_neighbors)
    _count_requests(counts, sampler, train_ids, batch_size, epochs, seed, num_threads)
    return counts


def presample_types(
    store: GraphStore, num_neighbors: Sequence[int] = (10, 5), **options: int
) -> torch.Tensor:
    """presample() of a graph with types: the training nodes of each type make batches. Takes its
    options."""
    space = store.node_space
    parts = {each: store.edges(each).topology() for each in store.edge_types}
    graph = TypedTopology(space, TypedMap(parts))
    counts = torch.zeros(space.num_nodes)
    for name in space.types:
        nodes = store.nodes(name)
        if "train" in nodes.splits:
            sampler = TypedNeighborSampler(graph, num_neighbors, input_type=name)
            _count_requests(counts, sampler, nodes.split("train"), **options)
    return counts


def _count_requests(
    counts: torch.Tensor,
    sampler: Sampler,
    train_ids: torch.Tensor,
    batch_size: int = 1024,
    epochs: int = 1,
    seed: int = 0,
    num_threads: int = 1,
) -> None:
    """Adds to ``counts`` the requests of each node, as presample() does."""
    if batch_size < 1:
        raise ValueError(f"batch_size: expected at least 1, got {batch_size}")
    one = torch.ones(())

    def requested(task: tuple[int, int, torch.Tensor]) -> torch.Tensor:
        epoch, iteration, seeds = task
        return sampler.sample(seeds, BatchName(seed=seed, epoch=epoch, iteration=iteration)).n_id

    tasks = _shuffled_batches(train_ids, batch_size, epochs, seed)
    with ThreadPoolExecutor(num_threads) as executor:
        while group := [task for _, task in zip(range(2 * num_threads), tasks, strict=False)]:
            for n_id in executor.map(requested, group):
                counts.index_add_(0, n_id, one.expand(len(n_id)))


def _shuffled_batches(
    train_ids: torch.Tensor, batch_size: int, epochs: int, seed: int
) -> Iterator[tuple[int, int, torch.Tensor]]:
    for epoch in range(epochs):
        key = native.batch_key(seed, epoch, 0, 0)
        generator = torch.Generator().manual_seed(key >> 1)  # manual_seed takes 63 bits
        order = torch.randperm(len(train_ids), generator=generator)
        for iteration, picked in enumerate(order.split(batch_size)):
            yield epoch, iteration, train_ids[picked]


def stored_score(
    store: GraphStore,
    name: str,
    *,
    num_neighbors: Sequence[int] = (10, 5),
    batch_size: int = 1024,
    seed: int = 0,
    num_threads: int = 1,
    stop: native.StopFlag | None = None,
) -> torch.Tensor:
    """The store's score ``name``, [N] float32. Computes and stores it if it is missing.

    ``num_neighbors, batch_size, seed`` are for presample, ``stop`` for reverse_pagerank. If the
    store cannot be written, logs a warning; the next run computes the score again.
    """
    if name in store.scores:
        return store.score(name)
    options: dict[str, Any] = {"num_threads": num_threads}
    if name == "presample":
        options |= {"num_neighbors": num_neighbors, "batch_size": batch_size, "seed": seed}
    if name == "reverse_pagerank":
        options["stop"] = stop
    scores = _compute(store, name, **options)
    keep_score(store, name, scores)
    return scores


def keep_score(store: GraphStore, name: str, scores: torch.Tensor) -> None:
    """Stores the score if possible. Logs the outcome."""
    try:
        store.save_score(name, scores)
    except OSError as error:
        logger.warning(
            "score %s is computed, but not stored, and will be computed again next time: %s",
            name,
            error,
        )
    else:
        logger.info("score %s is computed, and stored in %s", name, store.path)


def compute_score(store: GraphStore, name: str, **options: Any) -> torch.Tensor:
    """Computes the score ``name`` (one of SCORE_NAMES), saves it in the store and returns it.

    ``options`` are keyword arguments of the function of that name. Raises ValueError for an unknown
    name; OSError, before the computation, if the store cannot hold the score.
    """
    store.require_room_for_score()
    scores = _compute(store, name, **options)
    store.save_score(name, scores)
    return scores


def _compute(store: GraphStore, name: str, **options: Any) -> torch.Tensor:
    if name == "presample" and store.is_typed:
        _require_train_ids(store, name)
        return presample_types(store, **options)
    topology = union(
        {each: store.edges(each).topology() for each in store.edge_types}, store.node_space
    )
    if name == "in_degree":
        return in_degree(topology, **options)
    if name not in SCORE_NAMES:
        raise ValueError(f"score: expected one of {', '.join(SCORE_NAMES)}, got {name!r}")
    train_ids = _require_train_ids(store, name)
    if name == "reverse_pagerank":
        return reverse_pagerank(topology, train_ids, **options)
    return presample(topology, train_ids, **options)


def _require_train_ids(store: GraphStore, name: str) -> torch.Tensor:
    """The train nodes of all types, by their ids in the one space: [n] int64. Raises ValueError,
    which names the score, if there are none."""
    ids = [
        store.node_space.to_global(each, store.nodes(each).split("train"))
        for each in store.node_types
        if "train" in store.nodes(each).splits
    ]
    if not sum(map(len, ids)):
        raise ValueError(
            f"{store.path}: score {name} starts at the train nodes, and there are none; "
            "take in_degree"
        )
    return torch.cat(ids)
