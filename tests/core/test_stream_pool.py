"""The native pool of GPU memory gives back what is idle where torch runs out of memory."""

from types import SimpleNamespace

import pytest
import torch

from lsm import native
from lsm.core import stream_pool
from lsm.core.device import memory_errors
from support.gpus import ON_A_GPU


class Pool:
    """A pool of GPU 1: bytes in use, and bytes that are idle."""

    def __init__(self, used: int, idle: int) -> None:
        self.used, self.idle = used, idle

    def bytes(self, number: int) -> SimpleNamespace:
        if number != 1:
            return SimpleNamespace(reserved=0, used=0)
        return SimpleNamespace(reserved=self.used + self.idle, used=self.used)

    def trim(self, number: int) -> None:
        if number == 1:
            self.idle = 0


@pytest.fixture
def pool(monkeypatch):
    pool = Pool(used=3 << 20, idle=5 << 20)
    monkeypatch.setattr(native, "stream_pool_bytes", pool.bytes)
    monkeypatch.setattr(native, "trim_memory", pool.trim)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    return pool


@pytest.fixture
def unattached():
    stream_pool.trim_when_memory_ends.cache_clear()
    yield
    stream_pool.trim_when_memory_ends.cache_clear()


def out_of_memory():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


def test_an_error_trims_and_names_bytes(pool):
    expected = r"2 GiB; the native pool held 8 MiB, used 3 MiB of it, and gave 5 MiB back\); make"
    with pytest.raises(RuntimeError, match=expected), memory_errors("at epoch 1"):
        out_of_memory()
    assert pool.bytes(1).reserved == 3 << 20


def test_an_allocation_is_tried_again(pool):
    """It succeeds once the pool holds nothing idle, as torch's does."""

    def make():
        return "rows" if pool.idle == 0 else out_of_memory()

    assert stream_pool.allocated(make) == "rows"
    calls = []
    with pytest.raises(torch.OutOfMemoryError):
        stream_pool.allocated(lambda: calls.append(pool.idle) or out_of_memory())
    assert calls == [0, 0]


def test_torch_has_it_trimmed(pool, unattached, monkeypatch, caplog):
    attached = []
    monkeypatch.setattr(
        torch._C, "_cuda_attach_out_of_memory_observer", attached.append, raising=False
    )
    assert stream_pool.trim_when_memory_ends()
    assert stream_pool.trim_when_memory_ends()
    (observe,) = attached
    with caplog.at_level("INFO"):
        observe(0, 2 << 30, 0, 0)
        assert pool.idle
        assert not caplog.messages
        observe(1, 2 << 30, 0, 0)
    assert not pool.idle
    assert caplog.messages[0].startswith("torch found no 2 GiB on GPU 1: the native pool held")


def test_torch_without_an_observer(unattached, monkeypatch):
    monkeypatch.delattr(torch._C, "_cuda_attach_out_of_memory_observer", raising=False)
    assert not stream_pool.trim_when_memory_ends()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_there_is_no_pool():
    assert stream_pool.pool_facts(torch.device("cuda", 0)) == {
        "pool_device_bytes": 0,
        "pool_used_device_bytes": 0,
    }
    assert stream_pool.trim_current() == ""


class TestOnAGpu:
    pytestmark = ON_A_GPU

    def test_torch_gets_what_is_idle(self):
        """An allocation that no GPU has room for: the pool holds no more behind it than before."""
        torch.cuda.init()
        assert stream_pool.trim_when_memory_ends()
        before = stream_pool.pool_facts(torch.device("cuda", 0))["pool_device_bytes"]
        free = torch.cuda.mem_get_info(0)[0]
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(2 * free, dtype=torch.uint8, device="cuda:0")
        after = stream_pool.pool_facts(torch.device("cuda", 0))
        assert after["pool_used_device_bytes"] <= after["pool_device_bytes"] <= before
