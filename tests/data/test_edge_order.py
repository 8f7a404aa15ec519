"""The order of edges in a store: a stable sort by destination, so that arrays of the input's edges
go with `batch.e_id`."""

import tracemalloc
from functools import partial, partialmethod

import numpy as np
import pytest
import torch

from lsm.data.convert.array_file import ArrayFile
from lsm.data.convert.igb import convert_igb
from lsm.data.convert.npy import convert_npy
from lsm.data.convert.topology import InEdgeLists
from lsm.loader.neighbor_loader import NeighborLoader
from support.store_files import random_graph, save_npy


def check_weights(store, edges):
    """Delivers the number of each edge of the input, by e_id, with every sampled edge."""
    order = np.argsort(edges[1], kind="stable")
    assert (store.topology().indices.numpy() == edges[0][order]).all()
    weight = torch.from_numpy(np.arange(edges.shape[1], dtype=np.float64)[order])
    num_edges = 0
    with NeighborLoader(store, [-1, 4], None, 64) as loader:
        for batch in loader:
            numbers = weight[batch.e_id].long().numpy()
            assert len(np.unique(numbers)) == len(numbers)  # parallel edges keep theirs
            assert (edges[:, numbers] == batch.n_id[batch.edge_index].numpy()).all()
            first_hop = numbers[: batch.num_sampled_edges[0]]
            # All in-edges of a seed come, in the order of the input.
            expected = np.isin(edges[1], batch.n_id[: batch.batch_size].numpy())
            assert (np.sort(first_hop) == np.flatnonzero(expected)).all()
            of_one_seed = batch.edge_index[1][: len(first_hop)].diff().numpy() == 0
            assert (np.diff(first_hop)[of_one_seed] > 0).all()
            num_edges += len(first_hop)
    assert num_edges == edges.shape[1]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, ">i8"])
@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("sort_bytes", [400, 1 << 30])
def test_weights_of_the_input_go_with_e_id(tmp_path, monkeypatch, dtype, num_threads, sort_bytes):
    monkeypatch.setattr("lsm.data.convert.topology.os.cpu_count", lambda: num_threads)
    in_passes = partial(InEdgeLists, sort_bytes=sort_bytes)
    monkeypatch.setattr("lsm.data.convert.write_store.InEdgeLists", in_passes)
    small_chunks = partialmethod(ArrayFile.edge_chunks, 1000)
    monkeypatch.setattr(ArrayFile, "edge_chunks", small_chunks)
    arrays = random_graph(num_nodes=150)  # has parallel edges
    edges = arrays["edge_index"]
    assert len(np.unique(edges, axis=1).T) < edges.shape[1]
    arrays["edge_index"] = edges.astype(dtype)
    check_weights(convert_npy(save_npy(tmp_path / "graph", arrays), tmp_path / "out"), edges)


def test_the_order_is_the_same_for_igb(tmp_path):
    arrays = random_graph(num_nodes=60, dim=1024)
    processed = tmp_path / "tiny/processed"
    edges = arrays["edge_index"]
    save_npy(processed / "paper__cites__paper", {"edge_index": np.asfortranarray(edges.T)})
    labels = arrays["node_label"].astype(np.float32)
    save_npy(processed / "paper", {"node_feat": arrays["node_feat"], "node_label_19": labels})
    check_weights(convert_igb(tmp_path, tmp_path / "out", size="tiny", num_nodes=60), edges)


class Chunks:
    """Edges in memory that is there before."""

    def __init__(self, edges):
        self.edges = edges

    def edge_chunks(self):
        for first in range(0, self.edges.shape[1], 1000):
            yield first, self.edges[:, first : first + 1000]


@pytest.mark.parametrize("has_times", [False, True])
def test_the_memory_of_a_pass_is_bounded(has_times):
    draw = np.random.default_rng(0)
    edges, times = draw.integers(500, size=(2, 200_000)), draw.integers(9, size=200_000)
    tracemalloc.start()
    try:
        lists = InEdgeLists(Chunks(edges), "", 500, 500, lambda _: None, sort_bytes=160_000)
        indptr = lists.indptr.copy()
        largest, found = 0, []
        for part in lists.order(times.__getitem__ if has_times else None):
            largest = max(largest, len(part))
            found.append(part.astype(np.int32))
        peak = tracemalloc.get_traced_memory()[1] - sum(part.nbytes for part in found)
    finally:
        tracemalloc.stop()
    assert largest <= (10_000 if has_times else 20_000)
    assert peak < 300_000  # all positions would take 1.6 MB
    keys = (times, edges[1]) if has_times else (edges[1],)
    assert (np.concatenate(found) == np.lexsort((np.arange(200_000), *keys))).all()
    assert (np.diff(indptr) == np.bincount(edges[1], minlength=500)).all()
