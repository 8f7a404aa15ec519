"""The window's graphs: packed without loss, and no more of them than their memory allows."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lsm import native
from lsm.cache.memory import WINDOW_ID_BYTES
from lsm.loader.pipeline import Pipeline
from lsm.loader.prepared import Window
from lsm.loader.rows_in_flight import RunAhead
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from lsm.storage.read_ahead import ReadAhead
from support.announcing import Announcing
from support.graphs import assert_same, random_graph

SECS = 20


def sample(iteration, fanouts=(15, 10, 5)):
    graph = random_graph(30_000, 300_000)
    sampler = NeighborSampler(graph, list(fanouts))
    seeds = torch.randperm(30_000, generator=torch.Generator().manual_seed(iteration))[:100]
    return sampler.sample(seeds, BatchName(iteration=iteration))


@pytest.mark.parametrize("fanouts", [(15, 10, 5), (3,), (0, 4), (-1, 2)])
def test_packing_loses_nothing(fanouts):
    graph = sample(0, fanouts)
    packed = graph.pack()
    assert packed.is_packed
    assert_same(packed.unpack(), graph)
    assert graph.unpack() is graph


def test_a_packed_graph_keeps_nothing_of_the_samplers_memory():
    graph = sample(0)
    packed = graph.pack()
    num_edges, num_nodes, bounds = graph.edge_index.size(1), len(graph.n_id), len(graph.indptr)
    assert packed.num_bytes == 4 * num_edges + 8 * num_nodes + 8 * bounds
    assert packed.n_id.untyped_storage().nbytes() == 8 * num_nodes


@pytest.mark.parametrize(("room", "expected"), [(None, 30), (8.5, 8), (0.1, 1)])
def test_the_window_holds_as_many_graphs_as_its_bytes_allow(room, expected):
    graph = sample(0).pack()
    each = graph.num_bytes + WINDOW_ID_BYTES * len(graph.n_id)
    features = Announcing()
    pipeline = Pipeline(
        lambda iteration: iteration,
        lambda _: graph,
        features,
        first=0,
        last=30,
        policy=RunAhead(
            ReadAhead.fixed(2),
            1 << 20,
            timeout_secs=SECS,
            window_bytes=None if room is None else int(room * each),
        ),
    )
    try:
        iterations = [loaded.iteration for loaded in pipeline]
    finally:
        pipeline.close()
    assert iterations == list(range(30))
    assert features.most == expected


@pytest.mark.parametrize("max_bytes", [None, 10, 40])
def test_batches_that_leave_the_window_make_room(max_bytes):
    """Room is for one more batch like the last, up to the last byte."""
    draw, window, held = random.Random(0), Window(12, max_bytes), []
    for _ in range(300):
        fits = max_bytes is None or not held or sum(held) + held[-1] <= max_bytes
        assert window.has_room() == (len(held) < 12 and fits)
        assert len(window) == len(held)
        if held and (draw.random() < 0.4 or not window.has_room()):
            assert window.take().window_bytes == held.pop(0)
        else:
            held.append(draw.randrange(1, 6))
            window.append(SimpleNamespace(window_bytes=held[-1]))


def test_edges_are_packed_and_unpacked_as_numpy_does():
    indptr = torch.tensor([0, 2, 2, 5])
    sources = torch.tensor([7, 2**30 - 1, 0, 3, 3])
    packed, edges = torch.empty(5, dtype=torch.int32), torch.empty((2, 5), dtype=torch.int64)
    native.pack_sources(sources, packed)
    assert packed.tolist() == sources.tolist()
    native.unpack_edges(packed, indptr, *edges)
    assert edges.tolist() == [sources.tolist(), np.repeat(np.arange(3), [2, 0, 3]).tolist()]


@pytest.mark.parametrize(
    ("indptr", "message"),
    [
        ([0, 2, 4], "indptr: expected it to go from 0 to 5"),
        ([], "indptr: expected it to go from 0 to 5"),
        ([0, 6, 5], "indptr: expected it to rise"),
    ],
)
def test_edges_beyond_their_graph_are_refused(indptr, message):
    packed, edges = torch.zeros(5, dtype=torch.int32), torch.empty((2, 5), dtype=torch.int64)
    with pytest.raises(ValueError, match=message):
        native.unpack_edges(packed, torch.tensor(indptr, dtype=torch.int64), *edges)
