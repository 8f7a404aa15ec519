"""Opens a feature loader: with a cache or without, of one rank or of several, on host or GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from lsm import native
from lsm.cache.options import CacheOptions
from lsm.cache.planner import Planner
from lsm.cache.planner_trial import TrialPlanner
from lsm.cache.scores import stored_score
from lsm.cache.tier_sizes import TierSizes, hottest, useful_window
from lsm.comm.group import CacheGroup
from lsm.comm.open import open_exchange
from lsm.comm.owners import OwnerHash, OwnerMap, load_owner_table
from lsm.comm.request import RowFormat
from lsm.core.option_types import settled
from lsm.data.feature_files import FeatureFiles
from lsm.data.graph_store import GraphStore
from lsm.features.cached import CachedFeatureLoader
from lsm.features.loader import FeatureLoader
from lsm.features.memory import locked_rows, pinned_rows, pooled_rows
from lsm.features.tiers import HostTiers, Tiers
from lsm.features.tiers_gpu import GpuOptions, GpuTiers
from lsm.storage.engine import Storage
from lsm.storage.open import open_storage
from lsm.storage.options import StorageOptions

TWIN = "twin"
"""A device for tests: the host runs the GPU's code."""


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
    if isinstance(store, str | Path):
        store = GraphStore.open(store)
    cache = CacheOptions.of_argument("cache", cache)
    storage = StorageOptions.of_argument("storage", storage)
    files = store if isinstance(store, FeatureFiles) else store.feature_files
    is_twin = device == TWIN
    device = torch.device("cpu" if is_twin else device)
    on_gpu = is_twin or device.type == "cuda"
    if cache is None:
        if share is not None:
            raise ValueError("share: ranks share a cache, and there is none; give cache as well")
        if storage is not None and storage.engine == "nvme" and storage.read_to == "gpu":
            raise ValueError(
                "storage.read_to=gpu: expected a cache, whose batches take rows from there; set "
                "cache.policy, or storage.read_to=host"
            )
        take_rows = pinned_rows(files) if on_gpu else pooled_rows(files, idle_bytes)
        return FeatureLoader(files, open_storage(files, storage), take_rows)
    cache, gpu = cache.resolved(), gpu or GpuOptions()
    num_replicated = 0
    if share is not None and share.options.mode == "partition-aware":
        replicated_bytes = int(share.options.replicated_fraction * settled(cache.bytes))
        cache = cache.model_copy(update={"bytes": settled(cache.bytes) - replicated_bytes})
        num_replicated = replicated_bytes // files.row_bytes
    in_gpu_memory = device.type == "cuda"
    rows = TierSizes.of(cache, files.row_bytes, in_gpu_memory=in_gpu_memory).within(files.num_rows)
    if scores is None and cache.score != "none":
        if isinstance(store, FeatureFiles):
            raise ValueError(f"scores: expected those of {cache.score}: files alone have no graph")
        scores = stored_score(store, cache.score)
    replicated = _replicated_ids(share, scores, num_replicated)
    owners = exchange = None
    if share is not None:
        owners = _owners(files, share, replicated)
        native.check_metadata_limits(useful_window(cache), share.size, files.num_rows)
        exchange = open_exchange(
            share,
            owners,
            RowFormat(files.dim, files.dtype),
            num_threads=num_threads,
            device=device if on_gpu else None,
            pool_bytes=gpu.pool_bytes,
        )
    static_ids, constant_ids = _hot_ids(rows, scores, owners, replicated)

    def new_planner(sets: str) -> Planner:
        return Planner(
            rows.planner,
            scores=scores,
            static_ids=static_ids if len(static_ids) else None,
            constant_ids=constant_ids if len(constant_ids) else None,
            num_nodes=files.num_rows,
            num_threads=num_threads,
            sets=sets,
            device=device.index or 0,
        )

    with ExitStack() as stack:
        opened = stack.enter_context(open_storage(files, storage))
        ids = static_ids, constant_ids
        if on_gpu:
            planner = _gpu_planner(new_planner, gpu.planner, "twin" if is_twin else "device")
            tiers = _gpu_tiers(opened, files, rows, *ids, device, gpu, cache, idle_bytes // 2)
        else:
            planner = new_planner("host")
            tiers = HostTiers(
                opened,
                rows,
                *ids,
                take_rows=pooled_rows(files, idle_bytes // 2),
                # Not the pool of the batches: a block that is too large would take more memory than
                # is counted. Over ranks, owners write rows from the place of the read to the place
                # in the batch.
                take_staged=None if share is not None else pooled_rows(files, idle_bytes // 2),
                prefetch_iterations=cache.victim.prefetch,
                num_threads=num_threads,
            )
        loader = CachedFeatureLoader(files, planner, tiers, exchange)
        stack.pop_all()  # the loader closes the engine
    return loader


def _gpu_tiers(
    storage: Storage,
    files: FeatureFiles,
    rows: TierSizes,
    static_ids: torch.Tensor,
    constant_ids: torch.Tensor,
    device: torch.device,
    gpu: GpuOptions,
    cache: CacheOptions,
    idle_bytes: int,
) -> Tiers:
    if device.type == "cuda":
        take_rows = locked_rows(files, idle_bytes, device)
    else:
        take_rows = pooled_rows(files, idle_bytes)
    return GpuTiers(
        storage,
        files,
        rows,
        static_ids,
        constant_ids,
        device=device,
        options=gpu,
        take_rows=None if storage.reads_to_gpu else take_rows,
        prefetch_iterations=cache.victim.prefetch,
    )


def _gpu_planner(
    new_planner: Callable[[str], Planner], place: str, on_gpu: str
) -> Planner | TrialPlanner:
    """``place``: GpuOptions.planner. ``on_gpu``: the planner's name for the GPU."""
    if place == "auto":
        return TrialPlanner(new_planner("host"), lambda: new_planner(on_gpu))
    return new_planner(on_gpu if place == "device" else "host")


def _replicated_ids(
    share: CacheGroup | None, scores: torch.Tensor | None, num_rows: int
) -> torch.Tensor | None:
    """Ids whose rows every rank keeps; None without them."""
    if share is None or share.options.mode != "partition-aware":
        return None
    if scores is None:
        raise ValueError(
            "comm.mode=partition-aware: replicates the rows with the highest scores; set "
            "cache.score, or comm.mode=shared"
        )
    return hottest(scores, num_rows)[0]


def _owners(files: FeatureFiles, share: CacheGroup, replicated: torch.Tensor | None) -> OwnerMap:
    options, table = share.options, None
    hash: OwnerHash = "stride" if options.owner == "stride" else "mix64"
    if options.owner_table is not None and options.owner == "table":
        table = load_owner_table(options.owner_table, files.num_rows, share.size)
    return OwnerMap(
        files.num_rows,
        share.size,
        share.rank,
        hash=hash,
        table=table,
        replicated_ids=replicated,
    )


def _hot_ids(
    rows: TierSizes,
    scores: torch.Tensor | None,
    owners: OwnerMap | None,
    replicated: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The ids of the static partition and of the constant buffer."""
    if scores is None:
        none = torch.empty(0, dtype=torch.int64)
        return none, none
    if owners is None:
        static_ids, constant_ids = hottest(scores, rows.static, rows.constant)
        return static_ids, constant_ids
    own = scores.clone()
    own[~owners.is_own(len(scores))] = -1.0
    if replicated is not None:
        own[replicated] = -1.0
    static_ids, constant_ids = (
        ids[own[ids] >= 0] for ids in hottest(own, rows.static, rows.constant)
    )
    if replicated is not None:
        static_ids = torch.cat([replicated, static_ids])
    return static_ids, constant_ids
