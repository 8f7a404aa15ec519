"""A step of training or evaluation on the host, tried to measure the memory that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from lsm.core.memory import BatchSize
from lsm.data.graph_store import GraphStore
from lsm.graph.types import TypedMap
from lsm.loader.batch import Batch
from lsm.loader.inputs import store_values
from lsm.loader.link_seeds import LinkBatch
from lsm.nn.memory import FIRST_STEP_BYTES, step_bytes
from lsm.sampler.memory import size_of
from lsm.sampler.neighbor import SampledGraph
from lsm.train.model import new_model
from lsm.train.row_sizes import feature_dims, row_sizes
from lsm.train.setup import Setup

_GROWTH = 4  # of a step's seeds by the next


def try_step(
    setup: Setup,
    sampler: Any,
    seeds: Any,
    graph: SampledGraph,
    size: BatchSize,
    most_bytes: int,
    *,
    trains: bool,
    go_on: Callable[[], None],
) -> int:
    """Memory of a step on a batch of ``size``, tried on ``seeds`` and their ``graph``; first on
    fewer, to see that it takes at most ``most_bytes``. Calls ``go_on`` before each step; it may
    raise."""
    sizes = row_sizes(setup.store)

    def steps() -> Iterator[tuple[Callable[[], None], BatchSize]]:
        for each in _growing(setup, sampler, seeds, graph):
            go_on()
            batch = _trial_batch(setup, *each)
            yield partial(_step, setup, model, batch), size_of(each[1], sizes)

    with torch.random.fork_rng(devices=[]):
        model = new_model(setup)
        model.train(trains)
        return step_bytes(steps(), size, most_bytes)


def _growing(
    setup: Setup, sampler: Any, seeds: Any, graph: SampledGraph
) -> list[tuple[Any, SampledGraph]]:
    """The first of ``seeds`` with their graphs, more each time; at last all."""
    width = 4 * max(setup.config.model.hidden_dim, *feature_dims(setup.store).values())
    found, count = [(seeds, graph)], len(seeds.input_id)
    while count > 1 and width * len(found[-1][1].n_id) > FIRST_STEP_BYTES:
        count = max(1, count // _GROWTH)
        fewer = seeds.first(count)
        found.append((fewer, sampler.sample(*fewer.arguments)))
    return found[::-1]


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
