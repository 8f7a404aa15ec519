"""Reductions of rows that stream by, against a loop over edges in the order of sources."""

import numpy as np
import pytest
import torch

from lsm import native
from lsm.inference.reductions import Attention, StreamedBatch

NODES, EDGES = 70, 600
HEADS, CHANNELS, SLOPE = 3, 11, 0.2


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


def scores_of(rows, own, weights, heads, slope):
    """Scores [len(rows), heads] of edges into one destination."""
    if len(weights) == 0:
        found = rows[:, -heads:] + own[:heads]
        return np.where(found > 0, found, found * slope)
    found = rows + own[: rows.shape[1]]
    found = np.where(found > 0, found, found * slope) * weights
    return found.reshape(len(rows), heads, -1).sum(2)


def attended(indptr, indices, rows, own, weights, interval, batch_rows, num_threads):
    """Weighted means of the rows of sources, [last - first, HEADS, CHANNELS]."""
    first, last, one_loop = interval
    pool = native.ThreadPool(num_threads)
    edges = native.IntervalEdges(pool, indptr, indices, first, last, NODES, batch_rows, one_loop)
    reduction = Attention(HEADS, SLOPE, torch.from_numpy(weights))
    reduced = reduction.start(last - first, rows.shape[1])
    mine = torch.from_numpy(own[first:last])
    for batch in range(edges.num_batches):
        part = torch.from_numpy(rows[batch * batch_rows : (batch + 1) * batch_rows])
        reduction.add(StreamedBatch(edges, pool, batch, part), mine, reduced)
    return reduction.means(reduced).numpy()


@pytest.mark.parametrize("has_weights", [False, True])
@pytest.mark.parametrize("one_loop", [False, True])
def test_attention_is_a_softmax_whatever_the_batches_are(has_weights, one_loop):
    indptr, indices = graph(5, np.int32)
    rng, values = np.random.default_rng(6), HEADS * CHANNELS
    rows = rng.standard_normal((NODES, values + (0 if has_weights else HEADS))).astype(np.float32)
    rows *= np.geomspace(0.1, 40, NODES, dtype=np.float32)[:, None]  # the highest score rises
    own = rng.standard_normal((NODES, values + 2)).astype(np.float32)
    weights = rng.standard_normal(values if has_weights else 0).astype(np.float32)
    of_graph = indptr, indices, rows, own, weights
    found = attended(*of_graph, (0, NODES, one_loop), NODES, 1)
    for v in range(NODES):
        sources = indices[indptr[v] : indptr[v + 1]].tolist()
        if one_loop:
            sources = [u for u in sources if u != v] + [v]
        theirs, mine = rows[sources].astype(np.float64), own[v].astype(np.float64)
        scores = scores_of(theirs, mine, weights, HEADS, SLOPE)
        shares = np.exp(scores - scores.max(0)) if len(sources) else scores
        shares = shares / shares.sum(0)
        per_head = theirs[:, :values].reshape(-1, HEADS, CHANNELS)
        expected = (shares[:, :, None] * per_head).sum(0)
        assert np.abs(found[v] - expected).max() <= 2e-5 * np.abs(rows).max()
    for interval in ((0, NODES), (11, 53)):
        for batch_rows, num_threads in ((NODES, 3), (7, 1), (9, 4)):
            again = attended(*of_graph, (*interval, one_loop), batch_rows, num_threads)
            assert again.tobytes() == found[slice(*interval)].tobytes()


def test_bad_rows_of_attention_are_named():
    indptr, indices = graph(4, np.int64)
    pool, empty = native.ThreadPool(1), torch.empty(0)
    edges = native.IntervalEdges(pool, indptr, indices, 0, NODES, NODES, NODES, False)
    rows, own, reduced = torch.zeros(NODES, 5), torch.zeros(NODES, 1), torch.zeros(NODES, 6)
    edges.attend(pool, 0, rows, own, 1, 0.2, empty, reduced)
    with pytest.raises(ValueError, match="own: expected 70 rows of at least 4"):
        edges.attend(pool, 0, rows[:, :4].contiguous(), own, 1, 0.2, torch.ones(4), reduced)
    with pytest.raises(ValueError, match="weights: expected none or 5"):
        edges.attend(pool, 0, rows, own, 1, 0.2, torch.ones(4), reduced)
    with pytest.raises(ValueError, match="reduced: expected 70 rows of 6"):
        edges.attend(pool, 0, rows, own, 1, 0.2, empty, reduced[:, :5].contiguous())
    with pytest.raises(ValueError, match="as many values for each head"):
        edges.attend(pool, 0, rows, own, 2, 0.2, empty, reduced)


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


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("bad", [-(10**12), -1, 10**12])
@pytest.mark.parametrize("interval", [(0, NODES), (30, 60)])
def test_no_edge_beyond_the_interval_is_read(interval, bad, num_threads):
    indptr, indices = graph(5, np.int64)
    indptr[40] = bad
    message = (
        r"indptr: expected it to rise from \d+ to \d+, got .*: check it with `lsm data verify`"
    )
    with pytest.raises(ValueError, match=message):
        native.IntervalEdges(
            native.ThreadPool(num_threads), indptr, indices, *interval, NODES, 8, False
        )
