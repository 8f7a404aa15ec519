"""Reductions of rows that stream by, against a loop over edges in the order of sources."""

import numpy as np
import pytest
import torch

from lsm import native

NODES, EDGES = 70, 600


def graph(seed, dtype):
    rng = np.random.default_rng(seed)
    sources, targets = rng.integers(NODES, size=(2, EDGES))
    order = np.argsort(targets, kind="stable")
    indptr = np.searchsorted(targets[order], np.arange(NODES + 1))
    return torch.from_numpy(indptr.astype(np.int64)), torch.from_numpy(sources[order].astype(dtype))


def reference(indptr, indices, rows, first, last, reduction, one_loop):
    """One float32 addition after the other."""
    start = 0.0 if reduction == "sum" else -np.inf
    found = np.full((last - first, rows.shape[1]), start, dtype=np.float32)
    for v in range(first, last):
        sources = indices[indptr[v] : indptr[v + 1]].tolist()
        if one_loop:
            sources = [u for u in sources if u != v] + [v]
        for u in sorted(sources):
            row, own = rows[u], found[v - first]
            found[v - first] = own + row if reduction == "sum" else np.maximum(own, row)
    return found


def reduced(indptr, indices, rows, first, last, reduction, one_loop, batch_rows, num_threads):
    pool = native.ThreadPool(num_threads)
    edges = native.IntervalEdges(pool, indptr, indices, first, last, NODES, batch_rows, one_loop)
    start = 0.0 if reduction == "sum" else -torch.inf
    out = torch.full((last - first, rows.shape[1]), start)
    for batch in range(edges.num_batches):
        part = rows[batch * batch_rows : (batch + 1) * batch_rows]
        edges.reduce(pool, batch, torch.from_numpy(part), getattr(native.Reduction, reduction), out)
    return out.numpy()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("reduction", ["sum", "max"])
@pytest.mark.parametrize(("batch_rows", "num_threads"), [(NODES, 1), (7, 1), (7, 3), (1000, 4)])
@pytest.mark.parametrize(("first", "last", "one_loop"), [(0, NODES, False), (11, 53, True)])
def test_bits_are_those_of_a_loop(dtype, reduction, batch_rows, num_threads, first, last, one_loop):
    indptr, indices = graph(1, dtype)
    rows = np.random.default_rng(2).standard_normal((NODES, 19)).astype(np.float32)
    interval = (first, last, reduction, one_loop)
    found = reduced(indptr, indices, rows, *interval, batch_rows, num_threads)
    expected = reference(indptr.numpy(), indices.numpy(), rows, *interval)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("reduction", ["sum", "max"])
def test_a_value_that_is_not_a_number_stays_one(reduction):
    indptr, indices = graph(3, np.int64)
    rows = np.zeros((NODES, 2), dtype=np.float32)
    rows[5, 1] = np.nan
    found = reduced(indptr, indices, rows, 0, NODES, reduction, False, 9, 2)
    reached = [5 in indices[indptr[v] : indptr[v + 1]] for v in range(NODES)]
    assert np.isnan(found[:, 1]).tolist() == reached
    assert not np.isnan(found[:, 0]).any()


def test_bad_arguments_are_named():
    indptr, indices = graph(4, np.int64)
    pool = native.ThreadPool(1)
    bad = indices.clone()
    bad[17] = NODES
    with pytest.raises(ValueError, match=f"edge 17: source {NODES} is not a node"):
        native.IntervalEdges(pool, indptr, bad, 0, NODES, NODES, 8, False)
    with pytest.raises(ValueError, match="interval: expected 0 <= first <= last"):
        native.IntervalEdges(pool, indptr, indices, 3, NODES + 1, NODES, 8, False)
    edges = native.IntervalEdges(pool, indptr, indices, 0, NODES, NODES, 8, False)
    assert edges.num_edges == EDGES
    out = torch.zeros(NODES, 4)
    with pytest.raises(ValueError, match="rows: expected 8 rows of 4"):
        edges.reduce(pool, 0, torch.zeros(7, 4), native.Reduction.sum, out)
    with pytest.raises(ValueError, match="batch: expected below 9"):
        edges.reduce(pool, 9, torch.zeros(8, 4), native.Reduction.sum, out)
