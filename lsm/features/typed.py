"""Opens the rows of a store with types: a set for each type that has features."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lsm.cache.memory import prefetch_rows
from lsm.cache.options import CacheOptions
from lsm.cache.scores import stored_score
from lsm.cache.set_shares import batch_shares, set_shares
from lsm.comm.group import CacheGroup
from lsm.comm.request import RowFormat
from lsm.core.device import GpuPlace
from lsm.core.option_types import settled
from lsm.data.graph_store import GraphStore
from lsm.features import builders
from lsm.features.sets import FeatureSets, RowSet
from lsm.features.tiers_gpu import GpuOptions
from lsm.storage.options import StorageOptions
from lsm.storage.row_map import RowMap


def open_feature_sets(
    store: GraphStore,
    cache: CacheOptions | None = None,
    storage: StorageOptions | None = None,
    share: CacheGroup | None = None,
    device: torch.device | str = "cpu",
    *,
    scores: Tensor | None = None,
    requests: Tensor | None = None,
    gpu: GpuOptions | None = None,
    idle_bytes: int = 512 << 20,
    num_threads: int = 1,
) -> FeatureSets:
    """The rows of the types of ``store`` that have features.

    One ``cache.bytes`` is divided among the types so that it holds the rows that are requested
    most, whatever their size: a row saves as many bytes per request as it takes. Memory for batches
    is divided by the bytes of the requests.

    Args:
        store: A store with types.
        cache: Options of a cache over storage; None: every row is read from storage.
        storage: The engine that reads rows, and its options.
        share: As for open_features(). The ranks open the sets together.
        device: As for open_features().
        scores: Score of each node, [N] float32 over the one space of ids. None: ``cache.score``, or
            without one the requests.
        requests: Requests of each node in some batches, [N] int64 over the one space of ids, of
            this rank; the caches that ranks share are divided by those of all. None: memory is
            divided by the bytes of features.
        gpu: As for open_features(). Each set prefetches at most ``prefetch_rows`` rows.
        idle_bytes: Most idle memory of returned rows that is kept for reuse.
        num_threads: Threads that plan, and threads that copy.

    Raises:
        ValueError: No type has features, or an option is invalid.
        OSError: A file cannot be opened or read.
        RuntimeError: The engine, the device or the group's link is unavailable.
    """
    sizes = _row_bytes(store)
    device, space, gpu = torch.device(device), store.node_space, gpu or GpuOptions()
    groups = _groups(share, len(sizes))
    if requests is not None and share is not None:
        requests = share.sum(requests)
    by_type = _by_type(store, requests)
    caches: dict[str, CacheOptions] = {}
    if cache is not None:
        cache = cache.resolved()
        caches = _divide(cache, sizes, by_type, share)
        scores = _scores(store, cache.score, scores, requests)
    idle = batch_shares(idle_bytes, sizes, by_type)
    pools = batch_shares(gpu.pool_bytes, sizes, by_type)
    reads = None
    with ExitStack() as stack:
        sets = []
        for name, group in zip(sizes, groups, strict=True):
            files, own = store.nodes(name).feature_files, caches.get(name)
            most = 0 if own is None else prefetch_rows(own, sizes[name])
            opening = builders.Opening(
                files,
                storage,
                GpuPlace.of(device) if device.type == "cuda" else None,
                gpu=replace(
                    gpu, prefetch_rows=min(gpu.prefetch_rows, most), pool_bytes=pools[name]
                ),
                scores=scores,
                share=group,
                idle_bytes=idle[name],
                num_threads=num_threads,
                nodes=RowMap(space.counts[name], first=space.offsets[name]),
                num_ids=space.num_nodes,
                reads=reads,
            )
            rows = builders.plain(opening) if own is None else builders.cached(opening, own)
            stack.callback(rows.close)
            reads = rows.reads
            sets.append(RowSet(rows, {name: RowFormat(files.dim, files.dtype)}))
        opened = FeatureSets(space, sets)
        stack.pop_all()  # the sets close their rows
    return opened


def _row_bytes(store: GraphStore) -> dict[str, int]:
    """The size of a row of each type with features. Raises ValueError if there is none."""
    nodes = {name: store.nodes(name) for name in store.node_space.types}
    sizes = {
        name: each.features.row_bytes for name, each in nodes.items() if each.features is not None
    }
    if not sizes:
        raise ValueError(
            f"{store.path}: no node type has features; give x to one of {', '.join(nodes)}"
        )
    return sizes


def _groups(share: CacheGroup | None, num_sets: int) -> list[CacheGroup | None]:
    """The group of each set. A collective, and the first of the opening, so that no rank fails
    while others wait for it here."""
    if share is None:
        return [None] * num_sets
    return [share, *(share.another() for _ in range(num_sets - 1))]


def _by_type(store: GraphStore, requests: Tensor | None) -> dict[str, Tensor]:
    """The requests of each type's nodes; 0 without any."""
    space = store.node_space
    if requests is None:
        return {name: torch.zeros(count, dtype=torch.int64) for name, count in space.counts.items()}
    return dict(zip(space.types, requests.split(list(space.counts.values())), strict=True))


def _scores(
    store: GraphStore, name: str, scores: Tensor | None, requests: Tensor | None
) -> Tensor | None:
    """The scores given, or the store's score ``name``, or the requests."""
    if scores is None and name != "none":
        return stored_score(store, name)
    return requests.float() if scores is None and requests is not None else scores


def _divide(
    cache: CacheOptions,
    row_bytes: Mapping[str, int],
    requests: Mapping[str, Tensor],
    share: CacheGroup | None,
) -> dict[str, CacheOptions]:
    """The options of each type's part of ``cache``, of which ranks may hold different rows."""
    total = int(settled(cache.bytes) * _distinct(share))
    shares = set_shares(total, row_bytes, requests)
    return {name: _part_of(cache, each / total) for name, each in shares.items()}


def _distinct(share: CacheGroup | None) -> float:
    """The caches of one rank that all ranks together fill with different rows."""
    if share is None:
        return 1.0
    options = share.options
    same = options.replicated_fraction if options.mode == "partition-aware" else 0.0
    return same + (1 - same) * share.size


def _part_of(cache: CacheOptions, share: float) -> CacheOptions:
    """A part of each of the memories of ``cache``."""

    def part(options: Any) -> dict[str, int]:
        return {"bytes": int(settled(options.bytes) * share)}

    update: dict[str, Any] = {
        name: own.model_copy(update=part(own))
        for name in ("victim", "constant", "static")
        if settled((own := getattr(cache, name)).bytes)
    }
    return cache.model_copy(update=update | part(cache))
