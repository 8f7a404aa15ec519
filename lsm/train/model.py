"""The network of a job, with its optimizer and its gradients over ranks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed import ProcessGroup
from torch.nn.parallel import DistributedDataParallel

from lsm.config.train import TrainConfig
from lsm.core.device import memory_errors
from lsm.core.imported import import_named, is_imported
from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.features.cached import CachedFeatureLoader
from lsm.features.sets import Features
from lsm.nn.embeddings import dense_parameters, sparse_parameters
from lsm.nn.models import build_model
from lsm.nn.own_models import build_own_model
from lsm.nn.typed_models import TypedInputs, build_typed_model
from lsm.run.devices import gradient_backend
from lsm.train.embeddings import EmbeddingOptimizer
from lsm.train.schedule import Schedule
from lsm.train.setup import Setup
from lsm.train.sparse_rows import merged


@dataclass(frozen=True)
class Network:
    """The network in training, on one rank."""

    model: nn.Module
    """Its weights are the same on every rank."""
    parallel: nn.Module
    """The network with gradients averaged over ranks; ``model`` itself in a world of one."""
    optimizer: torch.optim.Optimizer | EmbeddingOptimizer
    schedule: Schedule

    def share_buffers(self, world: World) -> None:
        """Gives every rank the buffers of rank 0, such as means of a normalisation. A
        collective."""
        for buffer in self.model.buffers():
            collectives.broadcast_values(buffer, world)

    def step(self, iteration: int, num_plateaus: int) -> None:
        """One step of the optimizer, with the gradients of the model. ``iteration`` counts from 0
        over all epochs, ``num_plateaus`` plateaus of the validations before it."""
        options = self.schedule.options
        if options.clip_norm is not None:
            nn.utils.clip_grad_norm_(dense_parameters(self.model), options.clip_norm)
        if not self.schedule.is_constant:
            rate = options.lr * self.schedule.share(iteration, num_plateaus)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
        self.optimizer.step()

    def keep_gradients(self) -> None:
        """Keeps the gradients for the next iteration of the same step. Those of a table never get
        larger than the table."""
        for table in sparse_parameters(self.model).values():
            if table.grad is not None:
                table.grad = merged(table.grad)


def build_network(setup: Setup, features: Features, epoch_iterations: int) -> Network:
    """The network of a job, with its first weights. A collective."""
    options = setup.config.train
    torch.manual_seed(options.seed)
    with memory_errors("for the model"):
        model = new_model(setup).to(setup.device)
    dense = _optimizer(options, dense_parameters(model))
    group = _gradient_group(setup, features)
    optimizer: torch.optim.Optimizer | EmbeddingOptimizer = dense
    if tables := list(sparse_parameters(model).values()):
        optimizer = EmbeddingOptimizer(dense, tables, options.lr, setup.world, group)
    parallel: Any = _parallel(model, setup, group)
    if options.compile:
        parallel = torch.compile(parallel, dynamic=True)
    return Network(model, parallel, optimizer, Schedule(options, epoch_iterations))


def _optimizer(options: TrainConfig, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    name, given = options.optimizer, {"lr": options.lr, "weight_decay": options.weight_decay}
    if is_imported(name):
        return _own_optimizer(name, parameters, given, options.optimizer_args)
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    if "fused" in inspect.signature(kinds[name]).parameters:
        given["fused"] = True
    if name == "sgd":
        given["momentum"] = options.momentum
    return _opened(name, kinds[name], parameters, given | options.optimizer_args)


def _own_optimizer(
    name: str, parameters: list[nn.Parameter], given: dict[str, Any], args: dict[str, Any]
) -> torch.optim.Optimizer:
    kind = import_named("train.optimizer", name)
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        raise ValueError(
            f"train.optimizer: expected a class of torch.optim.Optimizer, got {name}: {kind!r}"
        )
    taken = inspect.signature(kind).parameters
    if "weight_decay" not in taken and given["weight_decay"]:
        raise ValueError(f"train.weight_decay: {name} does not take it; set it to 0")
    given = {each: value for each, value in given.items() if each in taken}
    return _opened(name, kind, parameters, given | args)


def _opened(
    name: str, kind: Callable[..., Any], parameters: list[nn.Parameter], args: dict[str, Any]
) -> torch.optim.Optimizer:
    try:
        return kind(parameters, **args)
    except (TypeError, ValueError) as error:
        raise ValueError(f"train.optimizer_args: {name}: {error}") from error


def new_model(setup: Setup) -> nn.Module:
    """The network of a task: from the features of the store to its outputs. Raises ValueError as
    networks do."""
    network = _network_of_nodes(setup)
    return setup.task.network(network)


def _network_of_nodes(setup: Setup) -> nn.Module:
    """A network from the features of the store to the outputs of the task. Raises ValueError for a
    network that does not take types, if the store has them, or for a class of the user's that
    cannot be taken."""
    options, num_layers = setup.config.model, len(setup.config.sampler.num_neighbors)
    out_dim = setup.task.out_dim(setup.store)
    if options.takes_types or (options.is_own and setup.store.is_typed):
        task = setup.task
        inputs = TypedInputs.of(setup.store, task.input_type(setup.store), task.other_types())
        build = build_own_model if options.is_own else build_typed_model
        return build(options, inputs, out_dim, num_layers)
    if options.is_own:
        return build_own_model(options, setup.store.feature_dim, out_dim, num_layers)
    if setup.store.is_typed:
        raise ValueError(
            f"model.name: {options.name} takes graphs of one type, and {setup.store.path} has "
            f"{len(setup.store.node_types)} of nodes and {len(setup.store.edge_types)} of edges; "
            "set rsage, rgcn, rgat or hgt"
        )
    return build_model(options, setup.store.feature_dim, out_dim, num_layers)


def _gradient_group(setup: Setup, features: Features) -> ProcessGroup | None:
    """The group of ranks for gradients on GPUs; ranks exchange everything else on the host. None
    for that of the host. A collective."""
    if setup.world.size == 1 or setup.device.type == "cpu":
        return None
    exchange = features.exchange if isinstance(features, CachedFeatureLoader) else None
    links = exchange.rows.links.values() if exchange else ()
    backend = gradient_backend(setup.world, setup.device, links)
    return collectives.gpu_group(backend, setup.config.dist.timeout_secs)


def _parallel(model: nn.Module, setup: Setup, group: ProcessGroup | None) -> nn.Module:
    world, device = setup.world, setup.device
    if world.size == 1:
        return model
    if tables := sparse_parameters(model):
        for table in tables.values():
            collectives.broadcast_values(table, world)
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, list(tables))
    # find_unused_parameters keeps the first gradient buckets for good. Otherwise DDP rebuilds them
    # after the first step, and a resumed run would add up in another order than an uninterrupted
    # one.
    return DistributedDataParallel(
        model,
        device_ids=None if device.type == "cpu" else [device.index],
        process_group=group,
        find_unused_parameters=True,
    )
