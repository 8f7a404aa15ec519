"""Sums of GPU memory, and errors where memory ends."""

import pytest
import torch

from lsm.core.device import check_room, empty_rows, memory_errors, model_bytes
from support.described_gpus import torch_cuda


def test_needs_must_fit_in_free_memory():
    gpu = torch.device("cuda", 0)
    needs = {"the cache (cache.bytes)": 6 << 30, "the model": 1 << 30, "nothing": 0}
    check_room(gpu, needs, torch_cuda(free=7 << 30, total=8 << 30))
    check_room(torch.device("cpu"), needs, None)
    with pytest.raises(
        ValueError, match=r"cache\.bytes\) 6 GiB \+ the model 1 GiB = 7 GiB, and of"
    ):
        check_room(gpu, needs, torch_cuda(free=(7 << 30) - 1, total=8 << 30))


def test_running_out_of_memory_says_what_to_do():
    expected = pytest.raises(RuntimeError, match=r"at epoch 1, .* make cache\.bytes, .* smaller")
    with expected, memory_errors("at epoch 1, iteration 2"):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


def test_memory_that_cannot_be_locked(monkeypatch):
    """As torch says that cudaHostAlloc failed."""

    def refuse(*_arguments, **_options):
        raise RuntimeError("CUDA error: out of memory\nmore words")

    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.raises(RuntimeError, match=r"page-lock 4 KiB .*sampler\.staging_bytes smaller"):
        empty_rows(1024, 4, torch.uint8)


def test_memory_of_a_model():
    assert model_bytes(torch.nn.Linear(3, 5)) == 4 * 4 * (3 * 5 + 5)
