"""The route ``sampled``: outputs of nodes over sampled neighbours, as the evaluation of a run has
them.

It takes any model that takes a Batch. Nodes are divided into batches of a fixed size, and a batch
is a function of its number. One thread computes it. So its rows have the same bits whatever the
memory and the number of threads and ranks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lsm.data.graph_store import GraphStore
from lsm.inference.cut import end_of
from lsm.inference.network import Model
from lsm.inference.options import InferenceOptions, Sampled
from lsm.inference.outputs import Outputs, Plan, Step, outputs_of
from lsm.inference.stage import Finish, Resources, Stage, TooLittleMemoryError
from lsm.loader.batch import Batch
from lsm.loader.inputs import (
    find_seed_times,
    open_sampler,
    open_topology,
    open_typed_topology,
    store_values,
)
from lsm.loader.link_batches import LinkBatches
from lsm.loader.loader import Loader
from lsm.loader.node_batches import NodeBatches
from lsm.loader.parts import LoaderParts
from lsm.loader.shared_arguments import run_ahead
from lsm.nn.link_models import LinkNetwork
from lsm.nn.models import SampledGNN
from lsm.nn.own_models import OwnModel
from lsm.nn.typed_models import TypedGNN
from lsm.sampler.memory import graph_bytes, largest_batch
from lsm.sampler.seeds import NodeSeeds, SeedBatch

_MOST_AHEAD = 4  # batches whose rows are read ahead
_COPIES = 4  # of a batch's rows while it is computed
_TIMEOUT_SECS = 600.0  # of a batch, while others are computed

Rows = dict[str, Tensor]
"""Rows of the seeds of a batch: ``embeddings``, ``scores``."""


@dataclass(frozen=True)
class SampledNetwork:
    """A model on sampled batches, in place of a Network.

    node_type: that of its seeds. widths: of the rows that it has. compute: makes them.
    """

    node_type: str
    widths: Mapping[str, int]
    compute: Callable[[Batch], Rows]

    @classmethod
    def of(cls, model: Model, store: GraphStore, options: InferenceOptions) -> SampledNetwork:
        """That of a model of `lsm train`. Raises ValueError for another one."""
        if isinstance(model, LinkNetwork):
            return _of_links(model, end_of(model, options.node_type))
        if not isinstance(model, SampledGNN | TypedGNN | OwnModel):
            raise ValueError(
                f"--route: sampled takes a run of lsm train or its lsm.load_model(run), got "
                f"{type(model).__name__}"
            )
        node_type = store.node_types[0]
        if not isinstance(model, SampledGNN):
            node_type = model.input_type or node_type
        widths = {"scores": model.out_dim}
        if isinstance(model, SampledGNN) and len(model.convs) > 1:
            widths["embeddings"] = model.embedding_dim
        if isinstance(model, TypedGNN):
            widths["embeddings"] = model.output.in_features
        return cls(node_type, widths, lambda batch: _rows_of(model, node_type, batch))


def _rows_of(model: SampledGNN | TypedGNN | OwnModel, node_type: str, batch: Batch) -> Rows:
    if isinstance(model, SampledGNN):
        embeddings, scores = model.with_embeddings(batch)
        return {"embeddings": embeddings, "scores": scores}
    if isinstance(model, TypedGNN):
        rows = model.embeddings(batch)[node_type]
        return {"embeddings": rows, "scores": model.output(rows)}
    return {"scores": model(batch)}


def _of_links(model: LinkNetwork, node_type: str) -> SampledNetwork:
    """The rows that the scorer of links takes."""
    network: Any = model.network

    def compute(batch: Batch) -> Rows:
        if isinstance(network, TypedGNN):
            return {"embeddings": network.outputs(batch, (node_type,))[node_type]}
        return {"embeddings": network(batch)}

    return SampledNetwork(node_type, {"embeddings": network.out_dim}, compute)


def plan_sampled(
    network: SampledNetwork,
    store: GraphStore,
    sampled: Sampled,
    work: Path,
    options: InferenceOptions,
    resources: Resources,
) -> Plan:
    """The one stage of the route: all batches."""
    outputs = outputs_of(network.widths, store, network.node_type, options, work)
    stage = SampledStage(network, store, sampled, outputs, options, resources)
    return Plan("sampled", outputs, [Step(stage, [*outputs.arrays.values()])])


class SampledStage(Stage):
    """The outputs of all nodes by batches of seeds, each of which a thread computes."""

    name = "batches"

    def __init__(
        self,
        network: SampledNetwork,
        store: GraphStore,
        sampled: Sampled,
        outputs: Outputs,
        options: InferenceOptions,
        resources: Resources,
    ) -> None:
        self._network, self._outputs, self._pool = network, outputs, resources.pool
        self._store, self._storage = store, options.storage
        drawing, node_type = sampled.drawing, network.node_type
        nodes = outputs.selection
        if nodes is None:
            nodes = torch.arange(store.nodes(node_type).num_nodes)
        if drawing.time_attr is not None and not store.nodes(node_type).has_times:
            raise ValueError(
                f"--route sampled: nodes of type {node_type} have no times at which to take "
                "neighbours; --route gather takes those of all times"
            )
        times = find_seed_times(store, node_type, nodes, drawing, None)
        self._seeds = lambda units: _Units(units, nodes, sampled.batch_size, times, sampled.seed)
        values = store_values(store, node_type, None)
        if options.edges:
            typed = open_typed_topology(store, drawing, message=options.edges)
            sampler: Any = open_sampler(typed, node_type, drawing)
            self._batches: NodeBatches = LinkBatches(sampler, values, options.edges)
        else:
            sampler = open_sampler(open_topology(store, drawing), node_type, drawing)
            self._batches = NodeBatches(sampler, values, None)
        self.num_units = -(-len(nodes) // sampled.batch_size)
        self._sampler = sampler
        self._divide(sampled.batch_size, resources)

    def _divide(self, batch_size: int, resources: Resources) -> None:
        """Divides memory among the batches that are computed and those that are read."""
        nodes = {name: self._store.nodes(name) for name in self._store.node_types}
        sizes = {name: own.features.row_bytes for name, own in nodes.items() if own.features}
        largest, _ = largest_batch(self._sampler, self._seeds(np.arange(self.num_units)), sizes)
        rows = largest.mixed_bytes or largest.nodes * max(sizes.values(), default=0)
        each = rows + graph_bytes(largest)
        self.enough_bytes, free_bytes = (2 + _COPIES) * each, resources.free_bytes
        if free_bytes < self.enough_bytes:
            part = f"batches of {batch_size} nodes with their neighbours"
            missing = self.enough_bytes - free_bytes
            raise TooLittleMemoryError(part, missing, "take fewer --num-neighbors")
        self._at_once = max(
            1, min(resources.num_threads, (free_bytes // max(1, each) - 2) // _COPIES)
        )
        left = free_bytes - self._at_once * _COPIES * each
        self._staging_bytes = max(1, min(left - each, _MOST_AHEAD * rows))

    def run(self, units: np.ndarray, finish: Finish) -> int:
        seeds = self._seeds(units)
        rows = self._batches.open_rows(self._store, None, self._storage, seeds)
        policy = run_ahead(_MOST_AHEAD, self._staging_bytes, 1, _TIMEOUT_SECS, None)
        parts = LoaderParts(seeds, self._sampler, self._batches, self.name)
        loader = Loader(parts, rows, policy, owns_features=True)
        open_batches: deque[tuple[int, Future[int]]] = deque()
        with loader:
            batches = loader.iterate(epoch=0)
            try:
                for unit, batch in zip(units.tolist(), batches, strict=True):
                    open_batches.append((unit, self._pool.submit(self._compute, unit, batch)))
                    del batch
                    while len(open_batches) >= self._at_once:
                        _finish_first(open_batches, finish)
                while open_batches:
                    _finish_first(open_batches, finish)
            finally:
                for _, each in open_batches:
                    each.cancel()
            return int(loader.stats()["bytes_read"])

    def _compute(self, unit: int, batch: Batch) -> int:
        """Writes the rows of a batch. Returns the number of bad rows."""
        ids = self._seeds(np.array([unit])).at(0).nodes
        with torch.inference_mode():
            found, bad = self._network.compute(batch), 0
            for name, write in self._outputs.writers.items():
                if name in found:
                    bad = max(bad, write(ids, found[name].float()))
        return bad


def _finish_first(open_batches: deque[tuple[int, Future[int]]], finish: Finish) -> None:
    unit, found = open_batches.popleft()
    finish(unit, unit + 1, found.result())


@dataclass(frozen=True, slots=True)
class _SeedNodes(SeedBatch):
    """Seeds of a graph of messages that are the ends of no links."""

    links: None = None


class _Units(NodeSeeds):
    """Some batches of seeds, each as it is among all batches."""

    def __init__(
        self, units: np.ndarray, nodes: Tensor, batch_size: int, times: Tensor | None, seed: int
    ) -> None:
        super().__init__(
            nodes,
            batch_size,
            times=times,
            shuffle=False,
            drop_last=False,
            seed=seed,
            rank=0,
            world_size=1,
        )
        self._units, self.num_iterations = units, len(units)

    def at(self, iteration: int) -> SeedBatch:
        """The seeds of an iteration."""
        return self._at(0, None, iteration)

    def _at(self, epoch: int, order: Tensor | None, iteration: int) -> SeedBatch:
        seeds = super()._at(epoch, order, int(self._units[iteration]))
        return _SeedNodes(seeds.name, seeds.input_id, seeds.nodes, seeds.times)
