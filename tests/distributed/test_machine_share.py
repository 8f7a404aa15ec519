"""The one check of free memory, of the host and of a GPU."""

import pytest
import torch

from lsm.distributed import machine_share
from lsm.distributed.machine_share import check_free

GPU = torch.device("cuda", 0)
NEEDS = {"the cache": 6 << 30, "the model": 1 << 30, "nothing": 0}


@pytest.fixture
def free(monkeypatch):
    """Sets the free memory of the host and of the GPU."""

    def describe(host=0, gpu=0):
        monkeypatch.setattr(machine_share, "available_bytes", lambda: host)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (gpu, 80 << 30))

    return describe


def test_needs_fit_in_free_memory(free):
    free(host=7 << 30)
    check_free("key", NEEDS, "remedy")
    check_free("key", NEEDS, "remedy", torch.device("cpu"))
    free(gpu=7 << 30)
    check_free("key", NEEDS, "remedy", GPU)


@pytest.mark.parametrize(
    ("device", "rest"),
    [(None, "7 GiB of host memory are free"), (GPU, "7 GiB of cuda:0 are free")],
)
def test_needs_that_do_not_fit_are_refused_with_their_sum(free, device, rest):
    free(host=(7 << 30) - 1, gpu=(7 << 30) - 1)
    with pytest.raises(ValueError, match="key") as caught:
        check_free("key", NEEDS, "remedy", device)
    assert str(caught.value) == (
        f"key: the cache 6 GiB + the model 1 GiB = 7 GiB, and {rest}; remedy"
    )


@pytest.mark.parametrize("device", [None, GPU])
def test_ranks_have_equal_shares(free, device):
    free(host=15 << 30, gpu=15 << 30)
    check_free("key", NEEDS, "remedy", device, num_sharing=2)
    with pytest.raises(ValueError, match=r"and 5 GiB of .* are free for each of 3 ranks; remedy"):
        check_free("key", NEEDS, "remedy", device, num_sharing=3)


def test_the_ranks_of_a_machine_share_the_host(free, monkeypatch):
    free(host=15 << 30, gpu=7 << 30)
    monkeypatch.setattr(machine_share, "local_size_in", lambda: 3)
    with pytest.raises(ValueError, match="for each of 3 ranks"):
        check_free("key", NEEDS, "remedy")
    check_free("key", NEEDS, "remedy", GPU)  # of which each rank has its own
