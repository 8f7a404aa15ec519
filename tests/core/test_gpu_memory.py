"""Errors where memory ends."""

import pytest
import torch

from lsm.core.device import empty_rows, memory_errors


def test_running_out_of_memory_says_what_to_do():
    expected = pytest.raises(RuntimeError, match=r"at epoch 1, .* make cache\.bytes, .* smaller")
    with expected, memory_errors("at epoch 1, iteration 2"):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


def test_memory_that_cannot_be_locked(monkeypatch):
    """As torch says that cudaHostAlloc failed."""

    def refuse(*_arguments, **_options):
        raise RuntimeError("CUDA error: out of memory\nmore words")

    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.raises(RuntimeError, match=r"page-lock 4 KiB .*loader\.staging_bytes smaller"):
        empty_rows(1024, 4, torch.uint8)
