"""Row gather and unique/relabel against their references."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from lsm import native


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "dim"),
    [(np.float32, 1), (np.float32, 767), (np.float64, 3), (np.uint8, 13), (np.float16, 4096)],
)
def test_gather_matches_indexing(dtype, dim, num_threads):
    rng = np.random.default_rng(0)
    source = (rng.random((97, dim)) * 100).astype(dtype)
    ids = rng.integers(0, 97, 1000)
    out = np.empty((1000, dim), dtype)
    native.gather_rows(source, ids, out, native.ThreadPool(num_threads))
    np.testing.assert_array_equal(out, source[ids])


def test_gather_nothing():
    out = torch.empty(0, 5)
    native.gather_rows(
        torch.empty(3, 5), torch.empty(0, dtype=torch.int64), out, native.ThreadPool(1)
    )
    assert out.shape == (0, 5)


@pytest.mark.parametrize("bad", [-1, 4, 2**40])
def test_gather_rejects_ids_out_of_range(bad):
    ids = torch.tensor([0, bad, 1])
    with pytest.raises(
        ValueError, match=rf"ids: expected ids in \[0, 4\), got {bad} at position 1"
    ):
        native.gather_rows(torch.zeros(4, 2), ids, torch.zeros(3, 2), native.ThreadPool(1))


@pytest.mark.parametrize(
    ("source", "out", "message"),
    [
        (torch.zeros(4, 2), torch.zeros(2, 2), "expected 3 rows"),
        (torch.zeros(4, 2), torch.zeros(3, 3), "rows of 2"),
        (torch.zeros(4, 2), torch.zeros(3, 2, dtype=torch.float64), "float32"),
        (torch.zeros(2, 4).T, torch.zeros(3, 2), "contiguous"),
        (torch.zeros(4), torch.zeros(3), "expected source"),
    ],
)
def test_gather_rejects_bad_shapes(source, out, message):
    with pytest.raises(ValueError, match=message):
        native.gather_rows(source, torch.zeros(3, dtype=torch.int64), out, native.ThreadPool(1))


def check_unique(ids):
    unique, inverse = native.unique_relabel(torch.from_numpy(ids))
    expected_unique, expected_inverse = reference.unique_relabel(ids)
    np.testing.assert_array_equal(unique.numpy(), expected_unique)
    np.testing.assert_array_equal(inverse.numpy(), expected_inverse)


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5), max_size=600))
def test_unique_relabel_any_ids(ids):
    check_unique(np.array(ids, dtype=np.int64))


@pytest.mark.parametrize("stride", [1, 64, 2**20, 2**32])
def test_unique_relabel_strided_ids(stride):
    ids = np.random.default_rng(stride).integers(0, 3000, 10_000) * stride
    check_unique(ids)
