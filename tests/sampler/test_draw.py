"""The draw of one node against a plain implementation of its definition."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from lsm import native
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from support.graphs import random_graph

KEYS = st.integers(0, 2**64 - 1)
DEGREES = st.integers(2, 100) | st.integers(2, 2**32 - 2)


def expected(key, node, hop, degree, count):
    return reference.draw_positions(native.philox4x32, key, node, hop, degree, count)


@settings(deadline=None, max_examples=150)
@given(KEYS, KEYS, st.integers(0, 9), DEGREES, st.integers(0, 200))
def test_one_node(key, node, hop, degree, count):
    count = min(count, degree - 1)
    assert native.draw_positions(key, node, hop, degree, count) == expected(
        key, node, hop, degree, count
    )


@settings(deadline=None, max_examples=60)
@given(
    KEYS,
    st.lists(KEYS, min_size=16, max_size=16),
    st.integers(0, 9),
    st.lists(DEGREES, min_size=16, max_size=16),
    st.integers(0, 64),
)
def test_lanes(key, nodes, hop, degrees, count):
    count = min(count, min(degrees) - 1)
    drawn = native.draw_simd(key, nodes, hop, degrees, count)
    for node, degree, positions in zip(nodes, degrees, drawn, strict=True):
        if positions is None:  # may have met a rejection, which small degrees hardly ever do
            assert degree > 2**16
        else:
            assert positions == expected(key, node, hop, degree, count)


def test_lanes_leave_rejections_to_the_stream():
    degree = 3 * 2**30  # a quarter of the words is rejected
    drawn = native.draw_simd(1, range(16), 0, [degree] * 16, 64)
    assert drawn == [None] * 16


@pytest.mark.parametrize("fanout", [7, 70])
def test_the_sampler_takes_these_positions(fanout):
    graph = random_graph(300, 30_000)
    seeds = torch.arange(0, 300, 3)
    sampler = NeighborSampler(graph, [fanout])
    sampled = sampler.sample(seeds, BatchName(seed=5, epoch=1, iteration=2, rank=3))
    key = native.batch_key(5, 1, 2, 3)
    for i, node in enumerate(seeds.tolist()):
        neighbors = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
        if len(neighbors) > fanout:
            neighbors = neighbors[expected(key, node, 0, len(neighbors), fanout)]
        sources = sampled.edge_index[0, sampled.indptr[i] : sampled.indptr[i + 1]]
        assert torch.equal(sampled.n_id[sources], neighbors.long())
