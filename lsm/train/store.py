"""Opens the store that a job trains on, and checks it."""

from __future__ import annotations

import torch

from lsm import native
from lsm.cache import scores
from lsm.config.schema import Config
from lsm.data.graph_store import GraphStore
from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.distributed.rendezvous import differences


def open_store(config: Config, world: World) -> GraphStore:
    """The store that ``data.path`` names, checked for training, and the same on every rank. A
    collective. Raises ValueError, FileNotFoundError."""
    path = config.data.path
    if path is None:
        raise ValueError(
            "data.path: not set; give a store directory (`lsm data convert` makes one)"
        )
    try:
        store = GraphStore.open(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"data.path: {error}") from error
    _check_classes(store)
    _check_split_sizes(config, world, store)
    scores.check_score(store, config.cache.score)
    labels = store.labels()
    for split in ("train", "valid", "test"):
        _check_labels(store, split, labels[store.split(split)])
    native.check_mapped(labels)
    _check_same_store(store, world)
    return store


def _check_same_store(store: GraphStore, world: World) -> None:
    """Raises ValueError on every rank, which names two of them, unless all opened copies of one
    store."""
    everyone = collectives.gather_objects((store.identity(), str(store.path)), world)
    first_identity, first_path = everyone[0]
    for rank, (identity, path) in enumerate(everyone):
        listed = differences((0, first_identity), (rank, identity))
        if listed:
            raise ValueError(
                f"data.path: ranks opened different stores: {first_path} on rank 0, {path} on rank "
                f"{rank}: {listed}"
            )


def _check_classes(store: GraphStore) -> None:
    remedy = "or train in your own loop over NeighborLoader (docs/tasks/own-loop.md)"
    if store.num_classes == 0:
        raise ValueError(
            f"data.path: {store.path} has no labels, and lsm train classifies nodes; convert the "
            f"graph again with node_label.npy beside its arrays, {remedy}"
        )
    if len(store.split("train")) == 0:
        raise ValueError(
            f"data.path: {store.path} has no training nodes; convert the graph again with "
            f"train_idx.npy or train_mask.npy beside its arrays, {remedy}"
        )


def _check_split_sizes(config: Config, world: World, store: GraphStore) -> None:
    num_train = len(store.split("train"))
    if num_train < world.size:
        raise ValueError(
            f"world size: {world.size} ranks need at least as many training nodes, but "
            f"{store.path} has {num_train}; start fewer processes"
        )
    if config.train.select == "best" and len(store.split("valid")) == 0:
        raise ValueError(
            f"train.select: best needs validation nodes, and {store.path} has none; "
            "set train.select=last"
        )


def _check_labels(store: GraphStore, split: str, labels: torch.Tensor) -> None:
    if len(labels) == 0:
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= store.num_classes:
        raise ValueError(
            f"{store.path}: labels of split {split}: expected 0 to {store.num_classes - 1}, got "
            f"{low} to {high}; run `lsm data verify {store.path}` and convert again"
        )
