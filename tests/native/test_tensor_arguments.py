"""Tensors as arguments of native functions, which write to them and follow no gradients."""

import numpy as np
import pytest
import torch

from lsm import native
from lsm.sampler.name import BatchName

BOUNDS = torch.tensor([0, 1, 2, 4])


def in_degree(scores):
    native.in_degree(BOUNDS, scores, native.ThreadPool(1))
    return scores


def test_tensors_and_arrays_are_written_in_place():
    for scores in (
        torch.zeros(3),
        np.zeros(3, np.float32),
        torch.zeros(3, requires_grad=True).data,
    ):
        assert in_degree(scores).tolist() == [1, 1, 2]


@pytest.mark.parametrize("make", [lambda leaf: leaf, lambda leaf: 2 * leaf, lambda leaf: leaf[:]])
def test_a_tensor_that_requires_grad_is_refused(make):
    """Autograd would not see that it is written."""
    leaf = torch.zeros(3, requires_grad=True)
    with pytest.raises(BufferError, match="gradient"):
        in_degree(make(leaf))
    assert leaf.tolist() == [0, 0, 0]
    assert in_degree(leaf.detach()).tolist() == [1, 1, 2]


@pytest.mark.parametrize(
    "name", [(1, 2, 3, 4), [1, 2, 3, 4, 5], (1, 2, 3, 4, -1), (1, 2, 3, 4, "5")]
)
def test_a_name_of_a_batch_has_five_numbers(name):
    sampling = native.LaborSampling(layer_dependency=False, batch_dependency=1)
    assert native.labor_draws(sampling, BatchName(1, 2, 3, 4, 5), 0, [7])
    with pytest.raises(TypeError, match="incompatible function arguments"):
        native.labor_draws(sampling, name, 0, [7])
