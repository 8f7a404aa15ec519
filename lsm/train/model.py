"""The network of a job, with its optimizer and its gradients over ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lsm.config.schema import Config
from lsm.core.device import memory_errors
from lsm.data.graph_store import GraphStore
from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.features.cached import CachedFeatureLoader
from lsm.features.loader import FeatureLoader
from lsm.nn.models import build_model
from lsm.run.devices import gradient_backend


@dataclass(frozen=True)
class Network:
    """The network in training, on one rank."""

    model: nn.Module
    """Its weights are the same on every rank."""
    parallel: nn.Module
    """The network with gradients averaged over ranks; ``model`` itself in a world of one."""
    optimizer: torch.optim.Optimizer


def build_network(
    config: Config, world: World, device: torch.device, store: GraphStore, features: FeatureLoader
) -> Network:
    """The network that ``config`` names, with its first weights. A collective."""
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
    return Network(model, parallel, optimizer)


def new_model(config: Config, store: GraphStore) -> nn.Module:
    """The network that ``config`` names for the features and classes of ``store``."""
    return build_model(
        config.model,
        in_dim=store.feature_dim,
        num_classes=store.num_classes,
        num_layers=len(config.sampler.num_neighbors),
    )


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
