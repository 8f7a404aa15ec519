"""Memory of a training job on its GPU: the sum of its rooms' parts, and the rest for a cache."""

from __future__ import annotations

from dataclasses import replace

import torch

from lsm.cache import memory as cache_memory
from lsm.comm import memory as comm_memory
from lsm.comm.group import shares_cache
from lsm.core.device import OUT_OF_MEMORY_REMEDY
from lsm.core.memory import Shape, Terms
from lsm.core.option_types import settled
from lsm.distributed.machine_share import check_free
from lsm.loader import memory as loader_memory
from lsm.nn import memory as nn_memory
from lsm.run.devices import ranks_on_gpu
from lsm.sampler import memory as sampler_memory
from lsm.train.model import new_model
from lsm.train.row_sizes import feature_dims, shape_of
from lsm.train.setup import Setup


def check_job_room(setup: Setup) -> None:
    """Raises ValueError with the sum if a GPU is too small for its parts of the job. A
    collective."""
    device = setup.device
    if device.type == "cuda":
        num_sharing = ranks_on_gpu(setup.world, device)
        check_free("device", device_terms(setup), OUT_OF_MEMORY_REMEDY, device, num_sharing)


def device_terms(setup: Setup) -> dict[str, int]:
    """Bytes of GPU memory by use that are known before the job starts: without activations and the
    topology."""
    config = setup.config
    shape = replace(shape_of(setup.store), on_gpu=True)
    terms = _network_terms(setup)
    terms += loader_memory.terms(config.loader, shape)
    if config.cache.policy != "none":
        terms += cache_memory.terms(config.cache, shape)
        if shares_cache(config.comm, setup.world):
            terms += comm_memory.terms(0, settled(config.loader.staging_bytes))
    return dict(terms.gpu)


def cache_room(setup: Setup, shape: Shape) -> int:
    """GPU memory that ``cache.bytes=auto`` gives to a cache: half of the room after the known
    needs, a step's activations, and the topology if it goes there. A collective."""
    config = setup.config
    samples_there = not setup.task.samples_on_host
    width = max(config.model.hidden_dim, *feature_dims(setup.store).values())
    free, _ = torch.cuda.mem_get_info(setup.device)
    staging = loader_memory.staging(config.loader, shape, budget=0)
    needs = [
        (2 if shape.shares_cache else 1) * staging,
        config.cache.static.bytes,
        *_network_terms(setup).gpu.values(),
        sampler_memory.gpu_bytes(config.topology, shape, free) if samples_there else 0,
        nn_memory.activation_bytes(shape, width),
        cache_memory.gpu_window_bytes(config.cache, shape),
    ]
    return max(0, (free // ranks_on_gpu(setup.world, setup.device) - sum(needs)) // 2)


def _network_terms(setup: Setup) -> Terms:
    with torch.device("meta"):
        model = new_model(setup)
    sizes = nn_memory.model_bytes(model), 0, nn_memory.embedding_bytes(model)
    return nn_memory.terms(*sizes, accumulates=setup.config.train.accumulate > 1)
