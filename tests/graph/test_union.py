"""The union of typed edges, against a dense sum of adjacency matrices."""

import numpy as np
import pytest
import torch

from lsm.graph import NodeSpace
from lsm.graph.union import union, union_bytes
from support.graphs import from_edges

COUNTS = {"paper": 30, "nothing": 0, "author": 12, "topic": 4}
TYPES = [
    ("author", "writes", "paper"),
    ("paper", "cites", "paper"),
    ("topic", "of", "paper"),
    ("paper", "by", "author"),
]


@pytest.mark.parametrize("seed", range(3))
def test_every_edge_is_there_once_at_its_destination(seed):
    rng = np.random.default_rng(seed)
    space = NodeSpace(COUNTS)
    parts, dense = {}, np.zeros((space.num_nodes, space.num_nodes), int)
    for number, (source, relation, destination) in enumerate(TYPES):
        ends = [rng.integers(COUNTS[end], size=20 * number) for end in (source, destination)]
        parts[source, relation, destination] = from_edges(*ends, COUNTS[destination])
        offsets = [space.offsets[end] for end in (source, destination)]
        np.add.at(dense, (ends[0] + offsets[0], ends[1] + offsets[1]), 1)
    found = union(parts, space)
    destinations = torch.repeat_interleave(torch.arange(space.num_nodes), found.indptr.diff())
    counted = np.zeros_like(dense)
    np.add.at(counted, (found.indices.numpy(), destinations.numpy()), 1)
    assert (counted == dense).all()
    assert (found.num_nodes, found.indices.dtype) == (space.num_nodes, torch.int32)
    # Lists are in the order of the types: papers are written, cited, then of a topic.
    first = found.indices[found.indptr[0] : found.indptr[30]].numpy()
    place = np.digitize(first, [30, 42])  # 0: a paper, 1: an author, 2: a topic
    rank = np.array([1, 0, 2])[place]
    is_next = np.diff(torch.repeat_interleave(torch.arange(30), found.indptr[:31].diff())) == 0
    assert (np.diff(rank)[is_next] >= 0).all()


def test_one_type_is_not_copied():
    topology = from_edges([0, 1], [1, 1], 2)
    parts, space = {("node", "to", "node"): topology}, NodeSpace.of_one(2)
    assert union(parts, space) is topology
    assert union_bytes(parts, space) == 0
