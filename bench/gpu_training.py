"""Training on a GPU with a cache of a quarter of the features, which lie in host memory, against
training with all features in GPU memory. Part of ``bench/gpu.py``.

Both take the same batches of the same graph through NeighborLoader, sampled by the GPU, and train
GraphSAGE with mean aggregation, Adam and cross entropy. The graph is random: the probability that
node k is a neighbour falls with k, unless ``--skew 1`` makes all equally likely.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch.nn import functional
from torch_geometric.data import Data

from lsm.cache.options import CacheOptions
from lsm.core.counters import COUNTERS, EXCHANGED, SPANS
from lsm.core.device import GpuPlace, current
from lsm.data.graph_store import GraphStore
from lsm.features import builders
from lsm.features.loader import FeatureLoader
from lsm.features.memory import pinned_rows, pooled_rows
from lsm.features.tiers_gpu import GpuOptions
from lsm.loader.batch import Batch, to_device
from lsm.loader.neighbor_loader import NeighborLoader
from lsm.nn.models import build_model
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler, place_topology
from lsm.storage.open import open_storage
from lsm.storage.options import StorageOptions

FANOUTS = [10, 5]
NUM_CLASSES = 47
CACHE_SHARE = 4
PARTS = ("next", "to_device", "launch", "loss")  # of an iteration


class ResidentRows:
    """PendingRows with rows that are on the GPU already."""

    arrived = True

    def __init__(self, features: torch.Tensor, ids: torch.Tensor) -> None:
        self._features = features
        self._ids = ids
        self.num_bytes = len(ids) * features.size(1) * features.element_size()
        self.stats: dict[str, float] = dict.fromkeys((*COUNTERS, *EXCHANGED, *SPANS), 0)
        self.stats["requests"] = self.stats["static_hits"] = len(ids)

    def result(self, timeout_secs: float | None = None) -> torch.Tensor:
        """The rows, on the GPU; queued to the current stream."""
        del timeout_secs
        with current(self._features.device):
            return self._features[self._ids.to(self._features.device)]


class ResidentFeatures(FeatureLoader):
    """All features in GPU memory."""

    def __init__(self, store, device: torch.device) -> None:
        files = store.feature_files
        take_rows = pinned_rows(files) if device.type == "cuda" else pooled_rows(files, 1 << 20)
        super().__init__(files, open_storage(files, StorageOptions(engine="memory")), take_rows)
        self.features = torch.empty(store.num_nodes, self.dim, dtype=self.dtype, device=device)
        for begin in range(0, store.num_nodes, 1 << 16):
            ids = torch.arange(begin, min(begin + (1 << 16), store.num_nodes))
            self.features[begin : begin + len(ids)] = super().prefetch(ids).result()

    def prefetch(self, ids: torch.Tensor) -> ResidentRows:
        return ResidentRows(self.features, ids)


def make_store(path: Path, num_nodes: int, num_edges: int, dim: int, skew: float) -> GraphStore:
    """Random features, labels and edges."""
    rng = np.random.default_rng(4)
    degrees = rng.multinomial(num_edges, np.full(num_nodes, 1 / num_nodes))
    sources = (num_nodes * rng.random(num_edges, np.float32) ** skew).astype(np.int32)
    np.minimum(sources, num_nodes - 1, out=sources)
    destinations = np.repeat(np.arange(num_nodes, dtype=np.int32), degrees)
    data = Data(
        x=torch.from_numpy(rng.standard_normal((num_nodes, dim), np.float32)),
        y=torch.from_numpy(rng.integers(NUM_CLASSES, size=num_nodes)),
        edge_index=torch.from_numpy(np.stack([sources, destinations])),
    )
    return GraphStore.from_pyg(data, path)


@contextmanager
def open_rows(store, device: torch.device, way: str) -> Iterator[FeatureLoader]:
    """way: resident, or cached."""
    if way == "resident":
        with ResidentFeatures(store, device) as features:
            yield features
        return
    cache = CacheOptions(bytes=store.num_nodes * store.row_bytes // CACHE_SHARE, window=64)
    opening = builders.Opening(
        store,
        StorageOptions(engine="memory"),
        GpuPlace.of(device) if device.type == "cuda" else GpuPlace.twin(),
        gpu=GpuOptions(),
        scores=None,
        share=None,
        idle_bytes=512 << 20,
        num_threads=4,
    )
    with builders.cached(opening, cache.resolved()) as features:
        yield features


def batches_of(loader: NeighborLoader) -> Iterator[Batch]:
    epoch = 0
    while True:
        yield from loader.iterate(epoch)
        epoch += 1


class TrainingLoop:
    """GraphSAGE over a loader's batches. ``seconds``: of the thread that trains, by what it did."""

    def __init__(self, loader: NeighborLoader, device: torch.device, dim: int) -> None:
        torch.manual_seed(0)
        settings = SimpleNamespace(name="graphsage", hidden_dim=128, dropout=0.0, heads=1)
        self._device = device
        self._model = build_model(settings, dim, NUM_CLASSES, len(FANOUTS)).to(device)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=0.003, fused=True)
        self._batches = batches_of(loader)
        self.seconds: Counter[str] = Counter()

    def step(self) -> float:
        """The loss of an iteration."""
        times = [time.perf_counter()]
        batch = next(self._batches)
        times.append(time.perf_counter())
        batch = to_device(batch, self._device)
        times.append(time.perf_counter())
        loss = functional.cross_entropy(self._model(batch), batch.y)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        times.append(time.perf_counter())
        value = loss.item()
        times.append(time.perf_counter())
        for name, (begin, end) in zip(PARTS, pairwise(times), strict=True):
            self.seconds[name] += end - begin
        return value

    def close(self) -> None:
        self._batches.close()


def train_iterations(
    loop: TrainingLoop, rounds: int, per_round: int
) -> tuple[list[float], list[float]]:
    """Seconds of each round after a warm-up round, and the losses of the first steps."""
    seconds, losses = [], []
    for round_ in range(rounds + 1):
        if round_ == 1:
            loop.seconds.clear()
        start = time.perf_counter()
        losses += [loop.step() for _ in range(per_round)]
        seconds.append(time.perf_counter() - start)
    return seconds[1:], losses


@contextmanager
def open_loop(
    store, placed, device: torch.device, way: str, options: argparse.Namespace
) -> Iterator[tuple[TrainingLoop, NeighborLoader]]:
    """``placed``: the topology where the GPU reads it."""
    topology = store.topology()
    sampler = DeviceNeighborSampler(
        *(topology, placed, FANOUTS),
        device=device.index if device.type == "cuda" else -1,
        num_slots=options.sample_lanes,
    )
    generator = torch.Generator().manual_seed(5)
    num_seeds = min(store.num_nodes, 1024 * options.iterations * (options.train_rounds + 1))
    seeds = torch.randperm(store.num_nodes, generator=generator)[:num_seeds]
    with (
        open_rows(store, device, way) as features,
        NeighborLoader(
            store,
            FANOUTS,
            seeds,
            min(1024, num_seeds),
            shuffle=True,
            features=features,
            sampler=sampler,
            prefetch=8,
            staging_bytes=2 << 30,
            num_threads=options.sample_lanes,
        ) as loader,
        closing(TrainingLoop(loader, device, store.feature_dim)) as loop,
    ):
        yield loop, loader


def measure(store, placed, device: torch.device, way: str, options: argparse.Namespace) -> dict:
    """As open_loop()."""
    per_round = options.iterations
    with open_loop(store, placed, device, way, options) as (loop, loader):
        seconds, losses = train_iterations(loop, options.train_rounds, per_round)
        stats = loader.stats()
    num_iterations = options.train_rounds * per_round
    result = {
        "iterations_per_s": per_round / statistics.median(seconds),
        "iterations_per_s_min": per_round / max(seconds),
        "iterations_per_s_max": per_round / min(seconds),
        "losses": losses[:10],
        "wait_secs": stats["wait_secs"],
        "ms": {name: 1e3 * secs / num_iterations for name, secs in loop.seconds.items()},
    }
    if way == "cached":
        result["hit_ratio"] = 1 - stats["cache_misses"] / max(1, stats["cache_requests"])
        result["planner"] = loader.features.planner.place
    return result


def new_store(options: argparse.Namespace, device: torch.device, directory: Path):
    """The store, and its topology in memory of ``device``."""
    sizes = (options.train_nodes, options.train_nodes * 12, options.train_dim)
    store = make_store(directory / "store", *sizes, options.skew)
    placed = store.topology()
    return store, place_topology(placed, "device", device) if device.type == "cuda" else placed


def bench_training(options: argparse.Namespace, device: torch.device, directory: Path) -> dict:
    """Iterations per second of both ways, cached first, and their ratio."""
    store, placed = new_store(options, device, directory)
    results = {way: measure(store, placed, device, way, options) for way in ("cached", "resident")}
    if options.check and not np.allclose(
        results["cached"]["losses"], results["resident"]["losses"], rtol=1e-3
    ):
        raise RuntimeError(f"the losses of the two ways differ: {results}")
    ours, resident = (results[way]["iterations_per_s"] for way in ("cached", "resident"))
    return results | {"ratio": ours / resident}
