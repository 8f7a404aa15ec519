"""A file of random rows, a loader with a cache over it, skewed batches."""

import numpy as np
import pytest
import torch

from lsm import native
from lsm.cache.options import CacheOptions
from lsm.features.open import open_features
from lsm.storage.options import StorageOptions

NUM_NODES, DIM = 500, 25
ROW_BYTES = 4 * DIM


def hot_scores() -> torch.Tensor:
    return torch.linspace(1, 0, NUM_NODES)


def batches(count: int, size: int = 80, seed: int = 0) -> list[torch.Tensor]:
    """Skewed, so that a cache is of use; distinct ids in random order."""
    rng = np.random.default_rng(seed)
    drawn = [(NUM_NODES * rng.random(size) ** 2).astype(np.int64) for _ in range(count)]
    return [torch.from_numpy(rng.permutation(np.unique(ids))) for ids in drawn]


def options(**changes) -> CacheOptions:
    return CacheOptions(**{"bytes": 40 * ROW_BYTES, "ways": 8, "window": 6} | changes)


def open_loader(store, engine="posix", timeout_secs=20.0, num_threads=1, **changes):
    if engine == "io_uring" and native.io_uring_problem():
        pytest.skip(native.io_uring_problem())
    return open_features(
        store,
        options(**changes),
        scores=hot_scores() if "score" in changes else None,
        storage=StorageOptions(engine=engine, timeout_secs=timeout_secs),
        num_threads=num_threads,
    )


def deliver(loader, requests, ahead: int = 3):
    """Announces as far as the window goes, starts ``ahead``; yields (ids, pending, rows)."""
    announced, pending = [], []
    for t in range(len(requests) + ahead):
        while len(announced) < min(t + loader.window, len(requests)):
            announced.append(loader.announce(requests[len(announced)]))
        if t < len(requests):
            pending.append((requests[t], announced[t].start()))
        if t >= ahead:
            ids, got = pending[t - ahead]
            yield ids, got, got.result()
