"""Opens a feature loader: with a cache or without, of one rank or of several, on host or GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lsm.cache.options import CacheOptions
from lsm.comm.group import CacheGroup
from lsm.core.device import GpuPlace, as_device
from lsm.data.feature_files import FeatureFiles
from lsm.data.graph_store import GraphStore
from lsm.data.opened import opened
from lsm.features import builders
from lsm.features.loader import FeatureLoader
from lsm.features.tiers_gpu import GpuOptions
from lsm.storage.options import StorageOptions


def open_features(
    store: GraphStore | FeatureFiles | str | Path,
    cache: CacheOptions | Mapping[str, Any] | None = None,
    storage: StorageOptions | Mapping[str, Any] | None = None,
    share: CacheGroup | None = None,
    device: torch.device | str = "cpu",
    *,
    scores: torch.Tensor | None = None,
    gpu: GpuOptions | None = None,
    idle_bytes: int = 512 << 20,
    num_threads: int = 1,
) -> FeatureLoader:
    """Opens a loader of a store's feature rows: ``rows = lsm.open_features(store).fetch(ids)``.

    Args:
        store: A GraphStore, its path, or the FeatureFiles of features that belong to no graph.
        cache: Options of a cache over storage, or a dict of them; None: every row is read from
            storage.
        storage: The engine that reads rows, and its options, or a dict of them.
        share: Makes the cache one over all ranks of the group, which open it together, with the
            same options. With comm.mode=partition-aware a part of each rank's cache holds the same
            hottest rows, and only the others have owners. Static and constant rows are the hottest
            of those that a rank owns. Rows of batches in flight take memory a second time, at their
            owners.
        device: Device of the rows, of the cache and of its static partition: cpu or a GPU. Without
            a cache rows are in host memory, page-locked for a GPU.
        scores: Score of each node, [N] float32, in place of the store's score ``cache.score``.
            None: a missing score is computed and stored.
        gpu: Further options of a cache in GPU memory.
        idle_bytes: Most idle memory of returned rows that is kept for reuse.
        num_threads: Threads that plan, and threads that copy.

    Returns:
        The loader. Close it, or use it in a ``with`` statement.

    Raises:
        ValueError: An option is invalid.
        OSError: A file cannot be opened or read.
        RuntimeError: The engine, the device or the group's link is unavailable.
    """
    if not isinstance(store, FeatureFiles):
        store = opened(store)
    cache = CacheOptions.of_argument("cache", cache)
    storage = StorageOptions.of_argument("storage", storage)
    device = as_device("device", device)
    opening = builders.Opening(
        store,
        storage,
        GpuPlace.of(device) if device.type == "cuda" else None,
        gpu=gpu or GpuOptions(),
        scores=scores,
        share=share,
        idle_bytes=idle_bytes,
        num_threads=num_threads,
    )
    return builders.plain(opening) if cache is None else builders.cached(opening, cache.resolved())
