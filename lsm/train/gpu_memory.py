"""Memory of a training job on its GPU: the sum of its rooms' parts, and the rest for a cache."""

from __future__ import annotations

import torch

from lsm.cache import memory as cache_memory
from lsm.comm import memory as comm_memory
from lsm.comm.group import shares_cache
from lsm.config.schema import Config
from lsm.core.device import OUT_OF_MEMORY_REMEDY
from lsm.core.memory import Shape
from lsm.core.option_types import settled
from lsm.data.graph_store import GraphStore
from lsm.distributed.collectives import World
from lsm.distributed.machine_share import check_free
from lsm.loader import memory as loader_memory
from lsm.nn import memory as nn_memory
from lsm.run.devices import ranks_on_gpu
from lsm.sampler import memory as sampler_memory
from lsm.train.model import new_model


def check_job_room(config: Config, world: World, store: GraphStore, device: torch.device) -> None:
    """Raises ValueError with the sum if a GPU is too small for its parts of the job. A
    collective."""
    if device.type == "cuda":
        needs = device_terms(config, world, store)
        check_free("device", needs, OUT_OF_MEMORY_REMEDY, device, ranks_on_gpu(world, device))


def device_terms(config: Config, world: World, store: GraphStore) -> dict[str, int]:
    """Bytes of GPU memory by use that are known before the job starts: without activations and the
    topology."""
    shape = Shape(num_nodes=store.num_nodes, row_bytes=store.row_bytes, on_gpu=True)
    terms = nn_memory.terms(_model_bytes(config, store))
    terms += loader_memory.terms(config.loader, shape)
    if config.cache.policy != "none":
        terms += cache_memory.terms(config.cache, shape)
        if shares_cache(config.comm, world):
            terms += comm_memory.terms(0, settled(config.loader.staging_bytes))
    return dict(terms.gpu)


def cache_room(
    config: Config, world: World, store: GraphStore, device: torch.device, shape: Shape
) -> int:
    """GPU memory that ``cache.bytes=auto`` gives to a cache: half of the room beside the known
    needs, a step's activations, and the topology if it goes there. A collective."""
    free, _ = torch.cuda.mem_get_info(device)
    staging = loader_memory.staging(config.loader, shape, budget=0)
    needs = [
        (2 if shape.shares_cache else 1) * staging,
        config.cache.static.bytes,
        _model_bytes(config, store),
        sampler_memory.gpu_bytes(config.topology, shape, free),
        nn_memory.activation_bytes(shape, max(config.model.hidden_dim, store.feature_dim)),
        cache_memory.gpu_window_bytes(config.cache, shape),
    ]
    return max(0, (free // ranks_on_gpu(world, device) - sum(needs)) // 2)


def _model_bytes(config: Config, store: GraphStore) -> int:
    with torch.device("meta"):
        return nn_memory.model_bytes(new_model(config, store))
