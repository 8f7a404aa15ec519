"""Opens the rows of a store with types: a set for the types that have rows of one size.

Types share a set, and with it one cache, if they follow one another in the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lsm.cache.memory import prefetch_rows
from lsm.cache.options import CacheOptions
from lsm.cache.scores import stored_score
from lsm.cache.set_shares import batch_shares, set_shares
from lsm.comm.group import CacheGroup
from lsm.comm.request import RowFormat
from lsm.core.device import GpuPlace, as_device
from lsm.core.option_types import settled
from lsm.data.feature_files import FeatureFiles
from lsm.data.graph_store import GraphStore
from lsm.features import builders
from lsm.features.sets import FeatureSets, RowSet
from lsm.features.tiers_gpu import GpuOptions
from lsm.storage.options import StorageOptions
from lsm.storage.row_map import RowMap

_JOINING = ("auto", "io_uring", "posix", "mmap", "memory")
"""Engines that read several file sets."""


@dataclass(frozen=True)
class _TypesOfOneSize:
    """Types that follow one another, with rows of one size."""

    formats: dict[str, RowFormat]
    files: FeatureFiles
    nodes: RowMap

    @property
    def name(self) -> str:
        """The first type."""
        return next(iter(self.formats))

    def requests(self, given: Tensor | None) -> Tensor:
        """The part of these types of the requests of all nodes; 0 without any."""
        if given is None:
            return torch.zeros(self.nodes.num_nodes, dtype=torch.int64)
        return given[self.nodes.first : self.nodes.end]


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
    given = _sets(store, storage)
    device, gpu = as_device("device", device), gpu or GpuOptions()
    groups = _groups(share, len(given))
    if requests is not None and share is not None:
        requests = share.sum(requests)
    sizes = {each.name: each.files.row_bytes for each in given}
    by_set = {each.name: each.requests(requests) for each in given}
    caches: dict[str, CacheOptions] = {}
    if cache is not None:
        cache = cache.resolved()
        caches = _divide(cache, sizes, by_set, share)
        scores = _scores(store, cache.score, scores, requests)
    idle = batch_shares(idle_bytes, sizes, by_set)
    pools = batch_shares(gpu.pool_bytes, sizes, by_set)
    reads = None
    with ExitStack() as stack:
        sets = []
        for each, group in zip(given, groups, strict=True):
            own = caches.get(each.name)
            most = 0 if own is None else prefetch_rows(own, sizes[each.name])
            opening = builders.Opening(
                each.files,
                storage,
                GpuPlace.of(device) if device.type == "cuda" else None,
                gpu=replace(
                    gpu,
                    prefetch_rows=min(gpu.prefetch_rows, most),
                    pool_bytes=pools[each.name],
                ),
                scores=scores,
                share=group,
                idle_bytes=idle[each.name],
                num_threads=num_threads,
                nodes=each.nodes,
                num_ids=store.num_nodes,
                reads=reads,
            )
            rows = builders.plain(opening) if own is None else builders.cached(opening, own)
            stack.callback(rows.close)
            reads = rows.reads
            sets.append(RowSet(rows, each.formats))
        opened = FeatureSets(store.node_space, sets)
        stack.pop_all()  # the sets close their rows
    return opened


def _sets(store: GraphStore, storage: StorageOptions | None) -> list[_TypesOfOneSize]:
    """The types with features, as few sets as the engine can read. Raises ValueError if there is
    none."""
    space = store.node_space
    joins = storage is None or storage.engine in _JOINING
    runs: list[dict[str, FeatureFiles]] = []
    before: FeatureFiles | None = None  # of the type before
    for name in space.types:
        files = store.nodes(name).feature_files if store.nodes(name).features else None
        if files is not None:
            if not (joins and before is not None and _alike(before, files)):
                runs.append({})
            runs[-1][name] = files
        before = files
    if not runs:
        raise ValueError(
            f"{store.path}: no node type has features; give x to one of {', '.join(space.types)}"
        )
    return [
        _TypesOfOneSize(
            {name: RowFormat(files.dim, files.dtype) for name, files in run.items()},
            joined := FeatureFiles.join(list(run.values())),
            replace(RowMap.of(joined), first=space.offsets[next(iter(run))]),
        )
        for run in runs
    ]


def _alike(one: FeatureFiles, other: FeatureFiles) -> bool:
    in_order = one.table is None and other.table is None
    same = (one.row_bytes, one.stripe_bytes) == (other.row_bytes, other.stripe_bytes)
    return in_order and same


def _groups(share: CacheGroup | None, num_sets: int) -> list[CacheGroup | None]:
    """The group of each set. A collective, and the first of the opening, so that no rank fails
    while others wait for it here."""
    if share is None:
        return [None] * num_sets
    return [share, *(share.another() for _ in range(num_sets - 1))]


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
    for name, each in shares.items():
        if each < row_bytes[name]:
            raise ValueError(
                f"cache.bytes: expected room for a row of each type: {name} has rows of "
                f"{row_bytes[name]} bytes, and its share of {total} bytes is {int(each)}; make it "
                "larger"
            )
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
