"""Builds and checks the parts of a training job on one rank."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lsm import native
from lsm.cache import scores
from lsm.cache.late_score import LateScore
from lsm.cache.options import CacheOptions
from lsm.cache.tier_sizes import TierSizes
from lsm.comm.group import CacheGroup
from lsm.config.load import changed_keys
from lsm.config.schema import Config
from lsm.core.device import memory_errors
from lsm.core.option_types import settled
from lsm.data.graph_store import GraphStore
from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.distributed.machine_share import cores_per_rank
from lsm.distributed.rendezvous import differences
from lsm.features.cached import CachedFeatureLoader
from lsm.features.loader import FeatureLoader
from lsm.features.open import open_features
from lsm.features.tiers_gpu import GpuOptions
from lsm.loader.neighbor_loader import NeighborLoader
from lsm.run.devices import choose_job_device
from lsm.run.drives import check_drives_of_ranks
from lsm.run.torch_setup import set_up_torch
from lsm.sampler.options import Sampling
from lsm.storage.engine import select_engine
from lsm.storage.options import StorageOptions
from lsm.storage.read_ahead import ReadAhead
from lsm.storage.short_profile import Found, find_on_machines
from lsm.train import cache_remarks
from lsm.train.budget import MemoryPlan, idle_bytes
from lsm.train.memory_facts import plan_memory
from lsm.train.placement import (
    check_job_room,
    gradient_backend,
    new_model,
    prefetch_rows,
    sampler_factory,
    shares_cache,
)
from lsm.train.read_settings import ReadSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """The parts of a training job, on one rank."""

    config: Config
    """The configuration, with a number for each ``auto`` of memory."""
    memory: MemoryPlan
    """The memory that it takes."""
    world: World
    device: torch.device
    """The device of this rank."""
    store: GraphStore
    features: FeatureLoader
    loaders: dict[str, NeighborLoader]
    """By split: train, valid, test. All take their rows from ``features``."""
    model: nn.Module
    """The network; its weights are the same on every rank."""
    parallel: nn.Module
    """The network with gradients averaged over ranks; ``model`` itself in a world of one."""
    optimizer: torch.optim.Optimizer

    @property
    def keeps_features(self) -> bool:
        """True if all rows lie in memory, and no cache is before them."""
        return self.features.engine == "memory" and self.config.cache.policy == "none"

    @property
    def run_dir(self) -> Path:
        return self.config.run_dir

    @property
    def checkpoint_dir(self) -> Path:
        return self.run_dir / "checkpoints"


@contextmanager
def open_job(config: Config, world: World) -> Iterator[Job]:
    """A context with the job of ``config``, which closes its features at the end. Raises ValueError
    or OSError, on every rank alike, if the store cannot be trained on.
    """
    device = choose_job_device(config.device, world)
    settings = config.train
    set_up_torch(settings.num_threads, world, device, settings.precision, settings.deterministic)
    store = open_store(config, world)
    _check_same_store(store, world)
    check_drives_of_ranks(config.storage, world)
    given = config.cache
    plan = plan_memory(config, world, device, store)
    config = plan.config
    if config.cache.policy == "none":
        remark = cache_remarks.without_cache(changed_keys(given, "cache."), plan.choice)
        _say(world, logging.WARNING, remark)
    reads = _read_settings(config, world, store)
    check_job_room(config, world, store, device)
    score = _choose_score(config, world, store)
    with (
        _open_features(plan, given, world, device, store, reads.options, score) as features,
        _late_score(world, store, score, features),
    ):
        loaders = _build_loaders(plan, world, device, store, features, reads.read_ahead)
        torch.manual_seed(config.train.seed)
        with memory_errors("for the model"):
            model = new_model(config, store).to(device)
        optimizer = torch.optim.Adam(
            model.parameters(),
            lr=config.train.lr,
            weight_decay=config.train.weight_decay,
            fused=True,
        )
        parallel: Any = _parallel(model, world, device, config.dist.timeout_secs, features)
        if config.train.compile:
            parallel = torch.compile(parallel, dynamic=True)
        yield Job(config, plan, world, device, store, features, loaders, model, parallel, optimizer)


def open_store(config: Config, world: World) -> GraphStore:
    """The store that ``data.path`` names, checked for training."""
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


def _read_settings(config: Config, world: World, store: GraphStore) -> ReadSettings:
    """The settings of reads on this machine, which rank 0 logs."""
    storage, found = config.storage, Found()
    follow = (storage.max_read_bytes, storage.max_gap_bytes, storage.merge_iterations)
    if "auto" in (*follow, config.loader.prefetch):
        engine = select_engine(storage.engine)[0]
        found = find_on_machines(storage.profile, store.path, engine, world)
    settings = ReadSettings.of(config, found.profile)
    if found.profile is not None and world.is_main:
        logger.info("as the disk was measured (%s): %s", found.source, settings.in_words())
    elif found.source and world.is_main:
        logger.info("storage.profile=auto: %s, so reads keep to fixed settings", found.source)
    return settings


def _say(world: World, level: int, text: str | None) -> None:
    """Logs ``text``, if there is any, on rank 0."""
    if text is not None and world.is_main:
        logger.log(level, "%s", text)


def _open_features(
    plan: MemoryPlan,
    given: CacheOptions,
    world: World,
    device: torch.device,
    store: GraphStore,
    storage: StorageOptions,
    score: _Score,
) -> FeatureLoader:
    """The source of rows: storage alone, a cache of this rank, or its part of one that ranks
    share. ``given``: the options as the user set them."""
    config, cache = plan.config, plan.config.cache
    storage = storage.model_copy(update={"engine": config.storage.engine})
    if cache.policy == "none":
        return open_features(store, storage=storage, device=device)
    if cache.policy in ("static", "hybrid") and score.at_start == "none":
        remark = f"cache.policy={cache.policy} depends on cache.score, which is none"
        _say(world, logging.WARNING, remark)
    options = cache.model_copy(update={"score": score.at_start, "seed": config.train.seed})
    # A mistake shows before any long work.
    tiers = TierSizes.of(options, store.row_bytes, in_gpu_memory=device.type == "cuda")
    _say(world, logging.INFO, cache_remarks.rounded_lines(given, tiers, store.row_bytes))
    _say(world, logging.WARNING, cache_remarks.more_than_useful(given, tiers, store))
    return open_features(
        store,
        options,
        storage,
        share=CacheGroup.join(config.comm) if shares_cache(config, world) else None,
        device=device,
        scores=_stored_score(config, world, store, score.at_start),
        gpu=GpuOptions(
            planner=cache.planner,
            prefetch_rows=prefetch_rows(config, store),
            staging=config.storage.staging,
            pool_bytes=settled(config.loader.staging_bytes),
        ),
        # Twice a batch in each of two pools: one batch is filled while another trains.
        idle_bytes=2 * idle_bytes(plan.batch_bytes, settled(config.loader.staging_bytes)),
        num_threads=max(1, cores_per_rank(world) // 2),
    )


@dataclass(frozen=True)
class _Score:
    """The names of the scores that a cache uses; none: no score."""

    at_start: str
    later: str = "none"


def _choose_score(config: Config, world: World, store: GraphStore) -> _Score:
    """The scores that ``cache.score`` stands for. auto: a score from the start if it chooses
    permanent rows or is stored; if it only orders rows, a score that is computed beside
    training."""
    cache = config.cache
    if cache.policy == "none" or cache.score != "auto":
        return _Score(cache.score if cache.policy != "none" else "none")
    chooses = cache.policy in ("static", "hybrid") or cache.constant.bytes or cache.static.bytes
    if chooses or (shares_cache(config, world) and config.comm.mode == "partition-aware"):
        return _Score(scores.AUTO)
    if cache.policy != "lookahead" and cache.victim.mode != "pool":
        return _Score("none")
    is_stored = collectives.broadcast_object(scores.AUTO in store.scores, world)
    return _Score(scores.AUTO) if is_stored else _Score("none", later=scores.AUTO)


def _late_score(
    world: World, store: GraphStore, score: _Score, features: FeatureLoader
) -> AbstractContextManager:
    """A context in which one rank per machine computes the late score."""
    if score.later == "none" or not isinstance(features, CachedFeatureLoader):
        return nullcontext()
    return LateScore(store.path, score.later, features.set_scores, computes=world.local_rank == 0)


def _stored_score(
    config: Config, world: World, store: GraphStore, name: str
) -> torch.Tensor | None:
    """The score ``name``, which rank 0 computes if it is not stored."""
    if name == "none":
        return None

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


def _build_loaders(
    plan: MemoryPlan,
    world: World,
    device: torch.device,
    store: GraphStore,
    features: FeatureLoader,
    read_ahead: ReadAhead,
) -> dict[str, NeighborLoader]:
    config = plan.config
    in_memory = config.data.topology == "memory"
    topology, labels = store.topology(in_memory), store.labels(in_memory)
    new_sampler = sampler_factory(config, device, topology)

    def loader(split: str, num_neighbors: list[int], batch_size: int) -> NeighborLoader:
        return NeighborLoader(
            store,
            num_neighbors,
            split,
            batch_size,
            shuffle=split == "train",
            seed=config.train.seed,
            rank=world.rank,
            world_size=world.size,
            features=features,
            topology=topology,
            labels=labels,
            sampler=new_sampler(num_neighbors, config.sampler if split == "train" else Sampling()),
            prefetch=read_ahead,
            staging_bytes=settled(config.loader.staging_bytes),
            num_threads=config.loader.num_threads,
            timeout_secs=config.storage.timeout_secs,
            window_bytes=plan.window_bytes or None,
        )

    evaluation = (config.eval_num_neighbors, config.eval_batch_size)
    return {
        "train": loader("train", config.sampler.num_neighbors, config.train.batch_size),
        "valid": loader("valid", *evaluation),
        "test": loader("test", *evaluation),
    }


def _parallel(
    model: nn.Module,
    world: World,
    device: torch.device,
    timeout_secs: float,
    features: FeatureLoader,
) -> nn.Module:
    if world.size == 1:
        return model
    # find_unused_parameters keeps the first gradient buckets for good. Otherwise DDP rebuilds them
    # after the first step, and a resumed run would add up in another order than an uninterrupted
    # one.
    if device.type == "cpu":
        return DistributedDataParallel(model, find_unused_parameters=True)
    # Gradients have a group of their own; ranks exchange everything else on the host.
    exchange = features.exchange if isinstance(features, CachedFeatureLoader) else None
    backend = gradient_backend(world, device, exchange.rows.links.values() if exchange else ())
    return DistributedDataParallel(
        model,
        device_ids=[device.index],
        process_group=collectives.gpu_group(backend, timeout_secs),
        find_unused_parameters=True,
    )
