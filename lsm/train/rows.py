"""The source of rows of a job: storage, a cache, and its scores."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from lsm.cache import scores
from lsm.cache.late_score import LateScore
from lsm.cache.memory import prefetch_rows
from lsm.cache.options import CacheOptions
from lsm.cache.planner import DEPENDS_ON_SCORE, NEEDS_SCORE
from lsm.cache.tier_sizes import TierSizes
from lsm.comm.group import CacheGroup, shares_cache
from lsm.config.load import changed_keys
from lsm.core.option_types import settled
from lsm.data.graph_store import GraphStore
from lsm.distributed import collectives
from lsm.distributed.machine_share import cores_per_rank
from lsm.features.cached import CachedFeatureLoader
from lsm.features.memory import idle_bytes
from lsm.features.open import open_features
from lsm.features.sets import Features, FeatureSets
from lsm.features.tiers_gpu import GpuOptions
from lsm.features.typed import open_feature_sets
from lsm.sampler.seeds import count_requests
from lsm.storage.options import StorageOptions
from lsm.train import cache_remarks
from lsm.train.memory_plan import MemoryPlan
from lsm.train.row_sizes import shape_of
from lsm.train.sampling import parts_of, topology_of
from lsm.train.setup import Setup

logger = logging.getLogger(__name__)


@contextmanager
def open_rows(
    setup: Setup, plan: MemoryPlan, given: CacheOptions, storage: StorageOptions
) -> Iterator[Features]:
    """A context with the source of rows, which it closes: storage alone, a cache of this rank, or
    its part of one that ranks share. A collective.

    Args:
        setup: The job, with its shares of memory.
        plan: The plan of those shares.
        given: The options of the cache as the user set them.
        storage: The options of reads.
    """
    config = setup.config
    storage = storage.model_copy(update={"engine": config.storage.engine})
    if config.cache.policy == "none":
        remark = cache_remarks.without_cache(changed_keys(given, "cache."), plan.choice)
        _say(setup, logging.WARNING, remark)
        with closing(_open_uncached(setup, storage)) as features:
            yield features
        return
    score = _choose_score(setup)
    with (
        closing(_open_cache(setup, plan, given, storage, score)) as features,
        _late_score(setup, score, features),
    ):
        yield features


def _open_uncached(setup: Setup, storage: StorageOptions) -> Features:
    if setup.store.is_typed:
        return open_feature_sets(setup.store, storage=storage, device=setup.device)
    return open_features(setup.store, storage=storage, device=setup.device)


def _open_cache(
    setup: Setup, plan: MemoryPlan, given: CacheOptions, storage: StorageOptions, score: _Score
) -> Features:
    config, world, device, store = setup.config, setup.world, setup.device, setup.store
    cache = config.cache
    if cache.policy in DEPENDS_ON_SCORE and score.at_start == "none":
        remark = f"cache.policy={cache.policy} depends on cache.score, which is none"
        _say(setup, logging.WARNING, remark)
    options = cache.model_copy(update={"score": score.at_start, "seed": config.train.seed})
    share = CacheGroup.join(config.comm) if shares_cache(config.comm, world) else None
    least = shape_of(store).row_bytes
    common: dict[str, Any] = {
        "share": share,
        "device": device,
        "gpu": GpuOptions(
            planner=cache.planner,
            prefetch_rows=prefetch_rows(cache, least),
            staging=config.storage.staging,
            pool_bytes=settled(config.loader.staging_bytes),
        ),
        # Twice a batch in each of two pools: one batch is filled while another trains.
        "idle_bytes": 2 * idle_bytes(plan.batch_bytes, settled(config.loader.staging_bytes)),
        "num_threads": max(1, cores_per_rank(world) // 2),
    }
    if store.is_typed:
        requests, scores = _requests(setup), _stored_score(setup, score.at_start)
        return open_feature_sets(
            store, options, storage, requests=requests, scores=scores, **common
        )
    # A mistake shows before any long work.
    tiers = TierSizes.of(options, least, in_gpu_memory=device.type == "cuda")
    _say(setup, logging.INFO, cache_remarks.rounded_lines(given, tiers, least))
    _say(setup, logging.WARNING, cache_remarks.more_than_useful(given, tiers, store))
    return open_features(
        store, options, storage, scores=_stored_score(setup, score.at_start), **common
    )


def _requests(setup: Setup) -> torch.Tensor:
    """Requests of each node in some batches of this rank: [N] int64."""
    topology = topology_of(setup, "train")
    parts = parts_of(setup, "train", topology)
    return count_requests(parts.sampler, parts.seeds, setup.store.num_nodes)


@dataclass(frozen=True)
class _Score:
    """The names of the scores that a cache uses; none: no score."""

    at_start: str
    later: str = "none"


def _choose_score(setup: Setup) -> _Score:
    """The scores that ``cache.score`` stands for. auto: a score from the start if it chooses
    permanent rows or is stored; if it only orders rows, a score that is computed during
    training."""
    config, world, cache = setup.config, setup.world, setup.config.cache
    auto = setup.task.cache_score
    if cache.score != "auto":
        return _Score(cache.score)
    chooses = cache.policy in DEPENDS_ON_SCORE or cache.constant.bytes or cache.static.bytes
    if chooses or (shares_cache(config.comm, world) and config.comm.mode == "partition-aware"):
        return _Score(auto)
    if cache.policy not in NEEDS_SCORE and cache.victim.mode != "pool":
        return _Score("none")
    is_stored = collectives.broadcast_object(auto in setup.store.scores, world)
    return _Score(auto) if is_stored else _Score("none", later=auto)


def _late_score(setup: Setup, score: _Score, features: Features) -> AbstractContextManager:
    """A context in which one rank per machine computes the late score."""
    if score.later == "none" or not isinstance(features, CachedFeatureLoader | FeatureSets):
        return nullcontext()
    computes = setup.world.local_rank == 0
    return LateScore(setup.store.path, score.later, features.set_scores, computes=computes)


def _stored_score(setup: Setup, name: str) -> torch.Tensor | None:
    """The score ``name``, which rank 0 computes if it is not stored."""
    if name == "none":
        return None

    config, world, store = setup.config, setup.world, setup.store

    def stored_score(store: GraphStore) -> torch.Tensor:
        return scores.stored_score(
            store,
            name,
            num_neighbors=config.sampler.num_neighbors,
            batch_size=config.train.batch_size,
            seed=config.train.seed,
            num_threads=cores_per_rank(world),
        )

    score = stored_score(store) if world.is_main else None
    collectives.barrier(world)
    return score if world.is_main else stored_score(GraphStore.open(store.path))


def _say(setup: Setup, level: int, text: str | None) -> None:
    """Logs ``text``, if there is any, on rank 0."""
    if text is not None and setup.world.is_main:
        logger.log(level, "%s", text)
