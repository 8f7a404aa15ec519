"""Measures the facts behind the memory budget: free memory, batches, a step of training."""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from functools import reduce

import torch

from lsm.comm.group import shares_cache
from lsm.core import host_memory
from lsm.core.allocator import release_freed_memory
from lsm.core.memory import BatchSize, Shape
from lsm.data.graph_store import GraphStore
from lsm.distributed import collectives, signals
from lsm.distributed.collectives import World
from lsm.graph.topology import Topology
from lsm.graph.union import union_bytes
from lsm.nn.memory import check_embeddings, embedding_bytes, model_bytes
from lsm.sampler.memory import largest_batch
from lsm.sampler.typed_neighbor import TypedTopology
from lsm.storage.engine import buffers_of
from lsm.train.budget import share_out
from lsm.train.exact_options import exact_bytes
from lsm.train.gpu_memory import cache_room
from lsm.train.memory_plan import Facts, MemoryPlan
from lsm.train.model import new_model
from lsm.train.row_sizes import row_sizes, shape_of
from lsm.train.sampling import parts_of, topology_of
from lsm.train.setup import Setup
from lsm.train.trial_step import try_step

logger = logging.getLogger(__name__)


def plan_memory(setup: Setup) -> MemoryPlan:
    """The shares of memory, the same on every rank. Rank 0 logs their sum, and as a detail its
    terms. A collective. Raises ValueError as share_out() does, and Stopped on every rank if a
    signal asked one to stop."""
    plan = share_out(setup.config, _agreed(_facts_or_stop(setup), setup.world))
    if setup.world.is_main:
        logger.info("%s", plan.in_words())
        logger.debug("memory: %s", plan.terms_in_words())
        for note in plan.notes:
            logger.info("%s", note)
        if plan.problem is not None:
            logger.warning("%s", plan.problem)
    return plan


def _facts_or_stop(setup: Setup) -> Facts | signals.Stopped:
    try:
        return _facts(setup)
    except signals.Stopped as stop:
        return stop


def _go_on() -> None:
    """Raises Stopped if a signal asked this rank to stop."""
    if signals.requested() is not None:
        raise signals.Stopped(
            "stopped by a signal while memory was planned, before any iteration; the same command "
            "starts again"
        )


def _agreed(found: Facts | signals.Stopped, world: World) -> Facts:
    """The facts that hold for every rank: the smallest room and the largest needs. Raises Stopped
    on every rank if one has stopped."""
    everyone = []
    for each in collectives.gather_objects(found, world):
        if isinstance(each, signals.Stopped):
            raise each
        everyone.append(each)
    least = {"budget", "available", "gpu_room"}
    agreed = {
        each.name: (min if each.name in least else max)(getattr(f, each.name) for f in everyone)
        for each in fields(Facts)
        if each.name != "shape"
    }
    return Facts(shape=reduce(Shape.at_least, (f.shape for f in everyone)), **agreed)


def _facts(setup: Setup) -> Facts:
    world, store = setup.world, setup.store
    before = host_memory.resident_bytes()
    given = setup.config.memory.bytes
    with torch.device("meta"):
        model = new_model(setup)
    embeddings = embedding_bytes(model)
    free = host_memory.available_bytes() // world.local_size
    accumulates = setup.config.train.accumulate > 1
    check_embeddings(embeddings, free if given == "auto" else given, accumulates=accumulates)
    topology = topology_of(setup, "train")
    labels = store.nodes(setup.task.input_type(store)).label_meta
    shape = replace(
        shape_of(store),
        topology_bytes=topology.num_bytes,
        union_bytes=_union_bytes(store),
        number_bytes=labels.row_bytes if labels is not None else 0,
        on_gpu=setup.device.type == "cuda",
        shares_cache=shares_cache(setup.config.comm, world),
    )
    room = free if given == "auto" else max(0, given - before["anonymous"] - before["file"])
    step, evaluated = 0, None
    for split in ("train", "valid", "test"):
        batch, iterations, own = _try_split(setup, topology, split, room, evaluated)
        shape = shape.at_least(replace(shape, batch=batch, iterations=iterations))
        step = max(step, own)
        evaluated = (batch, own) if split == "valid" and own else evaluated
    release_freed_memory()
    after = host_memory.resident_bytes()
    # Resident pages of the topology, which has been mapped since, are not the process's own.
    process = before["file"] + after["anonymous"] + host_memory.LATER_LIBRARY_BYTES
    auto = process + host_memory.default_bytes() // world.local_size
    return Facts(
        shape=shape,
        budget=auto if given == "auto" else given,
        available=host_memory.available_bytes() // world.local_size + process,
        process=process,
        libraries=before["file"],
        step=step,
        model=model_bytes(model),
        embeddings=embeddings,
        reads=buffers_of(setup.config.storage),
        exact=exact_bytes(setup),
        gpu_room=cache_room(setup, shape) if shape.on_gpu else 0,
    )


def _union_bytes(store: GraphStore) -> int:
    parts = {each: store.edges(each).topology() for each in store.edge_types}
    return union_bytes(parts, store.node_space)


def _try_split(
    setup: Setup,
    topology: Topology | TypedTopology,
    split: str,
    room: int,
    evaluated: tuple[BatchSize, int] | None,
) -> tuple[BatchSize, int, int]:
    """The largest batch of a split, its iterations, and memory of a step on the host: that of a
    batch that was ``evaluated``, scaled, or of one that is tried. Takes about ``room`` bytes at
    most."""
    parts = parts_of(setup, split, topology)
    batch, smaller = largest_batch(
        parts.sampler,
        parts.seeds,
        row_sizes(setup.store),
        num_threads=setup.config.loader.num_threads,
        most_bytes=room,
        go_on=_go_on,
    )
    step = 0
    if setup.device.type == "cpu" and smaller is not None:
        if evaluated is not None:
            step = int(evaluated[1] * batch.ratio(evaluated[0]))
        else:
            trains, tried = split == "train", (setup, parts.sampler, *smaller)
            step = try_step(*tried, batch, room, trains=trains, go_on=_go_on)
    return batch, parts.seeds.num_iterations, step
