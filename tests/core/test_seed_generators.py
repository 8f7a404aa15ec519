"""Seeds of torch's default generators, against torch.manual_seed."""

import pytest
import torch

from lsm.core.device import seed_generators
from support.gpus import ON_A_GPU


@pytest.mark.parametrize(
    "device",
    [torch.device("cpu"), pytest.param(torch.device("cuda", 0), marks=ON_A_GPU)],
    ids=str,
)
@pytest.mark.parametrize("seed", [0, 3, 2**63, 2**64 - 1])
def test_draws_are_those_of_manual_seed(device, seed):
    draws = []
    for seeds in (torch.manual_seed, lambda number: seed_generators(number, device)):
        seeds(seed)
        draws.append((torch.rand(5), torch.randperm(20), torch.rand(5, device=device)))
        torch.rand(3)  # so that a generator that is not seeded goes on elsewhere
        torch.rand(3, device=device)
    for one, other in zip(*draws, strict=True):
        assert torch.equal(one, other)
