"""Places the parts of a training job on GPUs, and checks that they fit."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection

import torch
from torch import nn

from lsm import native
from lsm.comm.group import host_identity
from lsm.config.schema import Config
from lsm.core.device import PLANNER_LINE_BYTES, check_room, model_bytes
from lsm.core.option_types import settled
from lsm.data.graph_store import GraphStore
from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.graph.topology import Topology
from lsm.nn.models import build_model
from lsm.sampler.neighbor import NeighborSampler
from lsm.sampler.neighbor_gpu import (
    TOPOLOGY_SHARE,
    DeviceNeighborSampler,
    choose_placement,
    place_topology,
)
from lsm.sampler.options import Sampling
from lsm.train.budget import STAGING_BYTES, BatchSize

logger = logging.getLogger(__name__)

Sampler = NeighborSampler | DeviceNeighborSampler

_PLANNED_ID_BYTES = 50  # of an id of the window, where the planner is on the GPU


def ranks_on_gpu(world: World, device: torch.device) -> int:
    """The largest number of ranks on one GPU. A collective."""
    if world.size == 1:
        return 1
    place = host_identity(), native.find_cuda().gpus[device.index].bus_id
    return max(Counter(collectives.gather_objects(place, world)).values())


def gradient_backend(world: World, device: torch.device, row_links: Collection[str]) -> str:
    """The backend that carries gradients between GPUs: nccl, or gloo where ranks share a GPU, which
    NCCL does not support, or where rows of some rank travel over NCCL. A collective.

    Two threads exchange rows and gradients. Two communicators of NCCL at once are safe only in an
    order that all ranks keep (NCCL User Guide, "Using multiple NCCL communicators concurrently"),
    and for that each thread would wait for the other in every step. Gradients of a GNN are a few
    megabytes and rows hundreds, so NCCL is left to the rows.

    row_links: names of this rank's links.
    """
    most = ranks_on_gpu(world, device)
    if most == 1:
        if not any(collectives.gather_objects("nccl" in row_links, world)):
            return "nccl"
        if world.is_main:
            logger.info("rows travel over NCCL: gradients travel through Gloo")
        return "gloo"
    if world.is_main:
        logger.warning(
            "up to %d ranks share a GPU: gradients travel through Gloo, since NCCL needs a GPU for "
            "each rank",
            most,
        )
    return "gloo"


def check_job_room(config: Config, world: World, store: GraphStore, device: torch.device) -> None:
    """Raises ValueError with the sum if a GPU is too small for its parts of the job. A
    collective."""
    if device.type == "cuda":
        needs, most = _device_needs(config, world, store), ranks_on_gpu(world, device)
        if most > 1:
            needs["the same for each other rank of this GPU"] = (most - 1) * sum(needs.values())
        check_room(device, needs)


def cache_room(
    config: Config,
    world: World,
    store: GraphStore,
    device: torch.device,
    batch: BatchSize,
    topology: int,
) -> int:
    """GPU memory that ``cache.bytes=auto`` gives to a cache: half of the room beside the known
    needs, a step's activations, and the ``topology`` bytes if they go there. A collective."""
    free, _ = torch.cuda.mem_get_info(device)
    room = free // ranks_on_gpu(world, device)
    given = config.loader.staging_bytes
    staging = STAGING_BYTES if given == "auto" else given
    room -= (2 if shares_cache(config, world) else 1) * staging + config.cache.static.bytes
    with torch.device("meta"):
        room -= model_bytes(new_model(config, store))
    placement = config.topology.placement
    if placement == "device" or (placement == "auto" and topology <= TOPOLOGY_SHARE * free):
        room -= topology
    width = max(config.model.hidden_dim, store.feature_dim)
    room -= 2 * batch.nodes * store.row_bytes + 16 * batch.expanded * width + 32 * batch.edges
    room -= config.cache.window * batch.nodes * _PLANNED_ID_BYTES
    return max(0, room // 2)


def device_budget(config: Config, world: World, store: GraphStore) -> int:
    """GPU memory that a job is known to need before it starts: the sum of check_job_room()."""
    return sum(_device_needs(config, world, store).values())


def _device_needs(config: Config, world: World, store: GraphStore) -> dict[str, int]:
    """Bytes of GPU memory by use, without activations and the topology."""
    with torch.device("meta"):
        model = new_model(config, store)
    needs = {
        "the model with gradients and moments": model_bytes(model),
        "rows of batches ahead (loader.staging_bytes)": settled(config.loader.staging_bytes),
    }
    cache = config.cache
    if cache.policy != "none":
        needs["the cache (cache.bytes)"] = settled(cache.bytes)
        needs["static rows (cache.static.bytes)"] = cache.static.bytes
        needs["prefetched rows"] = prefetch_rows(config, store) * store.row_bytes
        if cache.planner == "device":
            needs["the planner (cache.planner)"] = _planner_bytes(config, store)
        if shares_cache(config, world):
            needs["rows on their way between ranks"] = settled(config.loader.staging_bytes)
    return needs


def _planner_bytes(config: Config, store: GraphStore) -> int:
    """GPU memory of a planner: tags and reuse data of its lines, and scores. The window's ids,
    whose number is not known yet, come on top."""
    scores = 0 if config.cache.score == "none" else 4 * store.num_nodes
    return settled(config.cache.bytes) // store.row_bytes * PLANNER_LINE_BYTES + scores


def shares_cache(config: Config, world: World) -> bool:
    """True if ranks share a cache."""
    return world.size > 1 and config.comm.mode != "independent"


def prefetch_rows(config: Config, store: GraphStore) -> int:
    """Rows of the GPU's buffer for rows that are prefetched from the victim buffer."""
    victim = config.cache.victim
    if victim.mode == "none" or victim.prefetch == 0:
        return 0
    return min(settled(victim.bytes), settled(config.cache.bytes) // 8) // store.row_bytes


def new_model(config: Config, store: GraphStore) -> nn.Module:
    """The network that ``config`` names for the features and classes of ``store``."""
    return build_model(
        config.model,
        in_dim=store.feature_dim,
        num_classes=store.num_classes,
        num_layers=len(config.sampler.num_neighbors),
    )


def sampler_factory(
    config: Config, device: torch.device, topology: Topology
) -> Callable[[list[int], Sampling], Sampler]:
    """A function that makes samplers of ``topology`` on the GPU or on the host, for given numbers
    of neighbours and sampling options."""
    num_bytes = topology.num_bytes
    free_bytes = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
    placement = choose_placement(config.topology.placement, device, num_bytes, free_bytes)
    if placement == "host":
        return lambda num_neighbors, sampling: NeighborSampler(
            topology, num_neighbors, sampling=sampling
        )
    placed = place_topology(topology, placement, device)
    native.check_mapped(topology.indptr)
    native.check_mapped(topology.indices)
    return lambda num_neighbors, sampling: DeviceNeighborSampler(
        topology,
        placed,
        num_neighbors,
        sampling=sampling,
        device=device.index,
        timeout_secs=config.storage.timeout_secs,
        num_slots=config.loader.num_threads,
    )
