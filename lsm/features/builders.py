"""Builds feature loaders: plain, or with a cache on the host or on a GPU, which ranks may share."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch

from lsm import native
from lsm.cache.options import CacheOptions
from lsm.cache.planner import Planner
from lsm.cache.planner_trial import TrialPlanner
from lsm.cache.scores import stored_score
from lsm.cache.tier_sizes import TierSizes, hottest, useful_window
from lsm.comm.exchange import Exchange
from lsm.comm.group import CacheGroup
from lsm.comm.open import open_exchange
from lsm.comm.owners import OwnerHash, OwnerMap, load_owner_table
from lsm.comm.request import RowFormat
from lsm.core.device import GpuPlace
from lsm.core.option_types import settled
from lsm.data.feature_files import FeatureFiles
from lsm.data.graph_store import GraphStore
from lsm.features.cached import CachedFeatureLoader
from lsm.features.loader import FeatureLoader
from lsm.features.memory import TakeRows, locked_rows, pinned_rows, pooled_rows
from lsm.features.tiers import HostTiers, Tiers
from lsm.features.tiers_gpu import GpuOptions, GpuTiers
from lsm.storage.engine import Storage
from lsm.storage.open import open_storage
from lsm.storage.options import StorageOptions
from lsm.storage.read_scheduler import ReadScheduler
from lsm.storage.row_map import RowMap

_NO_IDS = torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True)
class Opening:
    """The arguments of open_features() but for the cache."""

    store: GraphStore | FeatureFiles
    storage: StorageOptions | None
    place: GpuPlace | None
    """The GPU of tiers and planner; None: they are in host memory."""
    gpu: GpuOptions
    scores: torch.Tensor | None
    share: CacheGroup | None
    idle_bytes: int
    num_threads: int
    nodes: RowMap | None = None
    """The rows of the nodes; None: those of ``store``."""
    num_ids: int | None = None
    """Ids of the space of all nodes; None: up to the last with a row."""
    reads: ReadScheduler | None = None
    """Of all loaders whose rows make one batch; None: the loader has its own."""

    @property
    def in_gpu_memory(self) -> bool:
        """True if the tiers are memory of a GPU, not of its twin."""
        return self.place is not None and not self.place.is_twin

    @property
    def files(self) -> FeatureFiles:
        """The files of the rows."""
        return self.store if isinstance(self.store, FeatureFiles) else self.store.feature_files

    @property
    def row_map(self) -> RowMap:
        """The rows of the nodes."""
        return self.nodes or RowMap.of(self.store)

    @property
    def space_end(self) -> int:
        """The end of the ids of all nodes, with rows or without."""
        return self.row_map.end if self.num_ids is None else self.num_ids


@dataclass(frozen=True)
class SharedCache:
    """The parts of a cache that ranks share. replicated_ids: rows that every rank keeps; None:
    none."""

    owners: OwnerMap
    exchange: Exchange
    replicated_ids: torch.Tensor | None


@dataclass(frozen=True)
class HotIds:
    """Rows that stay: ids of the static partition and of the constant buffer, [n] int64 each."""

    static: torch.Tensor = _NO_IDS
    constant: torch.Tensor = _NO_IDS


def plain(opening: Opening) -> FeatureLoader:
    """A loader that reads every row from storage. Raises ValueError for options that want a
    cache."""
    files, storage = opening.files, opening.storage
    if opening.share is not None:
        raise ValueError("share: ranks share a cache, and there is none; give cache as well")
    if storage is not None and storage.engine == "nvme" and storage.read_to == "gpu":
        raise ValueError(
            "storage.read_to=gpu: expected a cache, whose batches take rows from there; set "
            "cache.policy, or storage.read_to=host"
        )
    take_rows = pinned_rows(files) if opening.place else pooled_rows(files, opening.idle_bytes)
    opened = open_storage(files, storage, opening.row_map)
    return FeatureLoader(files, opened, take_rows, opening.reads)


def cached(opening: Opening, cache: CacheOptions) -> CachedFeatureLoader:
    """A loader with a cache. ``cache``: resolved options."""
    files, shared = opening.files, None
    replicated_bytes = _replicated_bytes(opening, cache)
    cache = cache.model_copy(update={"bytes": settled(cache.bytes) - replicated_bytes})
    sizes = TierSizes.of(cache, files.row_bytes, in_gpu_memory=opening.in_gpu_memory)
    sizes = sizes.within(opening.row_map.end, opening.row_map.first)
    opening = replace(opening, scores=_scores(opening, cache.score))
    if opening.share is not None:
        shared = share_cache(opening, opening.share, useful_window(cache), replicated_bytes)
    hot = _hot_ids(opening, sizes, shared)
    build = gpu if opening.place else host
    with ExitStack() as stack:
        storage = stack.enter_context(open_storage(files, opening.storage, opening.row_map))
        planner, tiers = build(opening, storage, sizes, hot, cache.victim.prefetch)
        exchange = shared.exchange if shared else None
        loader = CachedFeatureLoader(files, planner, tiers, exchange, opening.reads)
        stack.pop_all()  # the loader closes the engine
    return loader


def host(
    opening: Opening, storage: Storage, sizes: TierSizes, hot: HotIds, prefetch: int
) -> tuple[Planner, Tiers]:
    """Planner and tiers in host memory. prefetch: iterations ahead for rows of the victim
    buffer."""
    idle_bytes = opening.idle_bytes // 2
    # Not the pool of the batches: a block that is too large would take more memory than is counted.
    # Over ranks, owners write rows from the place of the read to the place in the batch.
    is_shared = opening.share is not None
    take_staged = None if is_shared else pooled_rows(opening.files, idle_bytes)
    tiers = HostTiers(
        storage,
        sizes,
        hot.static,
        hot.constant,
        take_rows=pooled_rows(opening.files, idle_bytes),
        take_staged=take_staged,
        prefetch_iterations=prefetch,
        num_threads=opening.num_threads,
    )
    return _planner(opening, sizes, hot, "host"), tiers


def gpu(
    opening: Opening, storage: Storage, sizes: TierSizes, hot: HotIds, prefetch: int
) -> tuple[Planner | TrialPlanner, Tiers]:
    """The same with cache and static partition in GPU memory."""
    assert opening.place is not None, "cached() has looked"
    tiers = GpuTiers(
        storage,
        opening.files,
        sizes,
        hot.static,
        hot.constant,
        gpu=opening.place,
        options=opening.gpu,
        take_rows=None if storage.reads_to_gpu else _staging_rows(opening),
        prefetch_iterations=prefetch,
    )
    chosen, of_gpu = opening.gpu.planner, "twin" if opening.place.is_twin else "device"
    planner = _planner(opening, sizes, hot, of_gpu if chosen == "device" else "host")
    if chosen != "auto":
        return planner, tiers
    return TrialPlanner(planner, lambda: _planner(opening, sizes, hot, of_gpu)), tiers


def share_cache(
    opening: Opening, share: CacheGroup, window: int, replicated_bytes: int
) -> SharedCache:
    """Owners of the rows, and the exchange with the other ranks. window: iterations that plans look
    ahead."""
    files, replicated = opening.files, None
    if share.options.mode == "partition-aware":
        if opening.scores is None:
            raise ValueError(
                "comm.mode=partition-aware: replicates the rows with the highest scores; set "
                "cache.score, or comm.mode=shared"
            )
        replicated = _hottest(opening, opening.scores, replicated_bytes // files.row_bytes)[0]
    owners = _owners(opening.space_end, share, replicated)
    native.check_metadata_limits(window, share.size, opening.row_map.num_nodes)
    exchange = open_exchange(
        share,
        owners,
        RowFormat(files.dim, files.dtype),
        num_threads=opening.num_threads,
        gpu=opening.place,
        pool_bytes=opening.gpu.pool_bytes,
    )
    return SharedCache(owners, exchange, replicated)


def _planner(opening: Opening, sizes: TierSizes, hot: HotIds, sets: str) -> Planner:
    return Planner(
        sizes.planner,
        scores=opening.scores,
        static_ids=hot.static if len(hot.static) else None,
        constant_ids=hot.constant if len(hot.constant) else None,
        num_nodes=opening.row_map.end,
        num_threads=opening.num_threads,
        sets=sets,
        device=opening.place.number if opening.in_gpu_memory and opening.place else 0,
    )


def _staging_rows(opening: Opening) -> TakeRows:
    idle_bytes = opening.idle_bytes // 2
    if opening.place and opening.in_gpu_memory:
        return locked_rows(opening.files, idle_bytes, opening.place.device)
    return pooled_rows(opening.files, idle_bytes)


def _scores(opening: Opening, name: str) -> torch.Tensor | None:
    """The scores given, or those of the store."""
    if opening.scores is not None or name == "none":
        return opening.scores
    if isinstance(opening.store, FeatureFiles):
        raise ValueError(f"scores: expected those of {name}: files alone have no graph")
    return stored_score(opening.store, name)


def _replicated_bytes(opening: Opening, cache: CacheOptions) -> int:
    """The part of each rank's cache whose rows every rank keeps."""
    share = opening.share
    if share is None or share.options.mode != "partition-aware":
        return 0
    return int(share.options.replicated_fraction * settled(cache.bytes))


def _owners(num_nodes: int, share: CacheGroup, replicated: torch.Tensor | None) -> OwnerMap:
    options, table = share.options, None
    hash: OwnerHash = "stride" if options.owner == "stride" else "mix64"
    if options.owner_table is not None and options.owner == "table":
        table = load_owner_table(options.owner_table, num_nodes, share.size)
    return OwnerMap(
        num_nodes,
        share.size,
        share.rank,
        hash=hash,
        table=table,
        replicated_ids=replicated,
    )


def _hot_ids(opening: Opening, sizes: TierSizes, shared: SharedCache | None) -> HotIds:
    scores = opening.scores
    if scores is None:
        return HotIds()
    if shared is None:
        return HotIds(*_hottest(opening, scores, sizes.static, sizes.constant))
    replicated = shared.replicated_ids
    if not (sizes.static or sizes.constant):
        return HotIds() if replicated is None else HotIds(replicated)
    own = scores.clone()
    own[~shared.owners.is_own(len(scores))] = -1.0
    if replicated is not None:
        own[replicated] = -1.0
    hot = _hottest(opening, own, sizes.static, sizes.constant)
    static, constant = (ids[own[ids] >= 0] for ids in hot)
    return HotIds(static if replicated is None else torch.cat([replicated, static]), constant)


def _hottest(opening: Opening, scores: torch.Tensor, *counts: int) -> list[torch.Tensor]:
    """As hottest(), of the nodes with rows."""
    rows = opening.row_map
    return [ids + rows.first for ids in hottest(scores[rows.first : rows.end], *counts)]
