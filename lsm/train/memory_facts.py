"""Measures the facts behind the memory budget: free memory, batches, a step of training."""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from functools import reduce
from typing import Any

import torch

from lsm.comm.group import shares_cache
from lsm.core import host_memory
from lsm.core.allocator import release_freed_memory
from lsm.core.memory import BatchSize, Shape
from lsm.data.graph_store import GraphStore
from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.graph.topology import Topology
from lsm.graph.types import TypedMap
from lsm.graph.union import union_bytes
from lsm.loader.batch import Batch
from lsm.loader.inputs import store_values
from lsm.loader.link_seeds import LinkBatch
from lsm.nn.memory import check_embeddings, embedding_bytes, model_bytes, step_bytes
from lsm.sampler.memory import largest_batch, size_of
from lsm.sampler.neighbor import SampledGraph
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

logger = logging.getLogger(__name__)


def plan_memory(setup: Setup) -> MemoryPlan:
    """The shares of memory, the same on every rank. Rank 0 logs their sum, and as a detail its
    terms. A collective. Raises ValueError as share_out() does."""
    plan = share_out(setup.config, _agreed(_facts(setup), setup.world))
    if setup.world.is_main:
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
    step = 0
    for split in ("train", "valid", "test"):
        batch, iterations, own = _try_split(setup, topology, split)
        shape = shape.at_least(replace(shape, batch=batch, iterations=iterations))
        step = max(step, own)
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
    setup: Setup, topology: Topology | TypedTopology, split: str
) -> tuple[BatchSize, int, int]:
    """The largest batch of a split, its iterations, and memory of a step on the host."""
    parts = parts_of(setup, split, topology)
    batch, smaller = largest_batch(parts.sampler, parts.seeds, row_sizes(setup.store))
    step = 0
    if setup.device.type == "cpu" and split != "test" and smaller is not None:
        tried = _trial_batch(setup, *smaller)
        step = _step_bytes(setup, batch, tried, smaller[1], trains=split == "train")
    return batch, parts.seeds.num_iterations, step


def _trial_batch(setup: Setup, seeds: Any, graph: SampledGraph) -> Batch:
    """A batch of seeds and their graph, with rows of zeros."""
    store = setup.store
    input_type = setup.task.input_type(store)
    layout = store.nodes(input_type).label_layout
    shape = layout.shape(graph.num_sampled_nodes[0])
    y = torch.zeros(shape, dtype=getattr(torch, layout.dtype))
    links = seeds.links if isinstance(seeds, LinkBatch) else None
    return Batch.from_sampled(
        graph,
        x=_zeros(store, graph),
        y=y,
        find_edges=lambda: torch.zeros(graph.edge_index.size(1), dtype=torch.int64),
        store_values=store_values(store, input_type, None),
        batch_size=len(seeds.input_id),
        links=links,
    )


def _step_bytes(
    setup: Setup, size: BatchSize, batch: Batch, graph: SampledGraph, *, trains: bool
) -> int:
    """Memory of a step on a batch of ``size``, tried on a ``batch`` of ``graph``."""
    with torch.random.fork_rng(devices=[]):
        model = new_model(setup)
        model.train(trains)
        tried = size_of(graph, row_sizes(setup.store))
        return step_bytes(lambda: _step(setup, model, batch), size, tried)


def _zeros(store: GraphStore, graph: SampledGraph) -> torch.Tensor | TypedMap[str, torch.Tensor]:
    """Rows of zeros for the nodes of ``graph``."""
    if graph.types is None:
        return torch.zeros(len(graph.n_id), store.feature_dim, dtype=store.feature_dtype)
    counts, rows = graph.types.num_sampled_nodes, TypedMap[str, torch.Tensor]()
    for name in row_sizes(store):
        files = store.nodes(name).feature_files
        rows[name] = torch.zeros(sum(counts[name]), files.dim, dtype=files.dtype)
    return rows


def _step(setup: Setup, model: torch.nn.Module, batch: Batch) -> None:
    def forward(batch: Batch) -> torch.Tensor:
        with setup.autocast():
            return model(batch)

    if model.training:
        loss, _ = setup.task.loss_sum(forward, setup.task.on_host(batch))
        loss.backward()
        model.zero_grad()
    else:
        with torch.no_grad():
            setup.task.tally().add(forward, batch)
