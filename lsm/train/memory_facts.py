"""Measures the facts behind the memory budget: free memory, batches, a step of training."""

from __future__ import annotations

import gc
import logging
from dataclasses import fields

import torch

from lsm.config.schema import Config
from lsm.core import host_memory
from lsm.core.allocator import release_freed_memory
from lsm.core.device import model_bytes
from lsm.data.graph_store import GraphStore
from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.graph.topology import Topology
from lsm.loader.batch import Batch
from lsm.nn.models import loss_sum
from lsm.sampler.neighbor import NeighborSampler, SampledGraph
from lsm.sampler.options import Sampling
from lsm.sampler.seeds import NodeSeeds
from lsm.train.budget import BatchSize, Facts, MemoryPlan, share_out
from lsm.train.placement import cache_room, new_model, shares_cache
from lsm.train.tasks.node_classification import labels_of

logger = logging.getLogger(__name__)

_NUM_SAMPLED = 3
_MORE = 1.05  # the largest of many batches against the largest of a few
_TRIAL_BYTES = 64 << 20  # of rows in the step that is tried
_LIBRARY_BYTES = 64 << 20  # of libraries that are loaded later


def plan_memory(
    config: Config, world: World, device: torch.device, store: GraphStore
) -> MemoryPlan:
    """``config`` with its shares of memory, the same on every rank. Rank 0 logs their sum, and as a
    detail its terms. A collective. Raises ValueError as share_out() does."""
    facts = _agreed(_facts(config, world, device, store), world)
    plan = share_out(config, facts)
    if world.is_main:
        logger.info("%s", plan.in_words())
        logger.debug("memory: %s", plan.terms_in_words())
        for note in plan.notes:
            logger.info("%s", note)
        if plan.problem is not None:
            logger.warning("%s", plan.problem)
    return plan


def _agreed(facts: Facts, world: World) -> Facts:
    """The facts that hold for every rank: the smallest room and the largest needs."""
    everyone = collectives.gather_objects(facts, world)
    values = {
        field.name: [getattr(each, field.name) for each in everyone] for field in fields(Facts)
    }
    batches = values.pop("batch")
    least = {"budget", "available", "device_room"}
    agreed = {name: (min if name in least else max)(each) for name, each in values.items()}
    batch = BatchSize()
    for each in batches:
        batch = batch.at_least(each)
    return Facts(batch=batch, **agreed)


def _facts(config: Config, world: World, device: torch.device, store: GraphStore) -> Facts:
    before = host_memory.resident_bytes()
    topology = store.topology()
    batch, iterations, step = _batches(config, world, device, store, topology)
    release_freed_memory()
    after = host_memory.resident_bytes()
    model = new_model(config, store)
    # Resident pages of the topology, which has been mapped since, are not the process's own.
    process = before["file"] + after["anonymous"] + _LIBRARY_BYTES
    available = host_memory.available_bytes()
    given = config.memory.bytes
    auto = process + host_memory.default_bytes() // world.local_size
    on_gpu = device.type == "cuda"
    return Facts(
        budget=auto if given == "auto" else given,
        available=available // world.local_size + process,
        process=process,
        libraries=before["file"],
        topology=topology.num_bytes,
        labels=8 * store.num_nodes,
        features=store.num_nodes * store.row_bytes,
        num_nodes=store.num_nodes,
        row_bytes=store.row_bytes,
        iterations=iterations,
        batch=batch,
        step=step + 2 * model_bytes(model),
        on_gpu=on_gpu,
        device_room=cache_room(config, world, store, device, batch, topology.num_bytes)
        if on_gpu
        else 0,
        shares_cache=shares_cache(config, world),
    )


def _batches(
    config: Config, world: World, device: torch.device, store: GraphStore, topology: Topology
) -> tuple[BatchSize, int, int]:
    """The largest batch, the iterations of the longest split, and memory of a step on the host."""
    evaluation = (config.eval_num_neighbors, config.eval_batch_size)
    splits = {
        "train": (config.sampler.num_neighbors, config.train.batch_size),
        "valid": evaluation,
        "test": evaluation,
    }
    batch, iterations, step = BatchSize(), 1, 0
    for split, (num_neighbors, batch_size) in splits.items():
        schedule = _schedule(config, world, store, split, batch_size)
        sampling = config.sampler if split == "train" else Sampling()
        sampler = NeighborSampler(topology, num_neighbors, sampling=sampling)
        size, smaller = _sample(schedule, sampler, store)
        batch = batch.at_least(size)
        iterations = max(iterations, schedule.num_iterations)
        if device.type == "cpu" and split != "test" and smaller is not None:
            step = max(step, _step_bytes(config, store, size, smaller, trains=split == "train"))
    return batch, iterations, step


def _schedule(
    config: Config, world: World, store: GraphStore, split: str, batch_size: int
) -> NodeSeeds:
    return NodeSeeds(
        store.split(split),
        batch_size,
        shuffle=split == "train",
        drop_last=False,
        seed=config.train.seed,
        rank=world.rank,
        world_size=world.size,
    )


def _sample(
    schedule: NodeSeeds, sampler: NeighborSampler, store: GraphStore
) -> tuple[BatchSize, SampledGraph | None]:
    """The size of this rank's largest batch, and a smaller batch for a trial step."""
    seeds_at = schedule.epoch(0)
    size, smaller = BatchSize(), None
    for iteration in range(min(_NUM_SAMPLED, schedule.num_iterations)):
        seeds = seeds_at(iteration)
        graph = sampler.sample(seeds.nodes, seeds.name)
        size = size.at_least(_size(graph))
        if smaller is None:
            parts = -(-len(graph.n_id) * store.row_bytes // _TRIAL_BYTES)
            part = seeds.nodes[: max(1, len(seeds.nodes) // max(1, parts))]
            smaller = sampler.sample(part, seeds.name)
    return BatchSize(*(int(_MORE * getattr(size, field.name)) for field in fields(size))), smaller


def _size(graph: SampledGraph) -> BatchSize:
    return BatchSize(len(graph.n_id), graph.edge_index.size(1), len(graph.indptr) - 1)


def _step_bytes(
    config: Config, store: GraphStore, size: BatchSize, graph: SampledGraph, *, trains: bool
) -> int:
    """Memory of a step on a batch of ``size``, without the batch: measured on ``graph`` and scaled
    by the ratio of sizes."""
    x = torch.zeros(len(graph.n_id), store.feature_dim, dtype=store.feature_dtype)
    y = torch.zeros(graph.num_sampled_nodes[0], dtype=torch.int64)
    batch = Batch.from_sampled(graph, x=x, y=y)
    with torch.random.fork_rng(devices=[]):
        model = new_model(config, store)
        model.train(trains)
        _step(config, model, batch)  # loads libraries and starts threads
        gc.collect()
        release_freed_memory()
        measured = host_memory.peak_growth(lambda: _step(config, model, batch))
    own = _size(graph)
    pairs = ((size.nodes, own.nodes), (size.edges, own.edges), (size.expanded, own.expanded))
    return int(measured * max(largest / max(1, tried) for largest, tried in pairs))


def _step(config: Config, model: torch.nn.Module, batch: Batch) -> None:
    bf16 = config.train.precision == "bf16"
    with torch.set_grad_enabled(model.training):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            scores = model(batch)
        if model.training:
            loss_sum(scores, labels_of(batch)).backward()
    model.zero_grad()
