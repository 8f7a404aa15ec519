"""The native pool of GPU memory: its bytes, and its trimming where torch runs out of memory.

Native code frees GPU memory into a pool of its own, where torch cannot take it from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch

from lsm import native
from lsm.core.units import format_bytes

logger = logging.getLogger(__name__)

T = TypeVar("T")


def pool_facts(device: torch.device) -> dict[str, int]:
    """Bytes of the pool of the GPU ``device``, for summaries: reserved, and of these used."""
    pool = native.stream_pool_bytes(device.index or 0)
    return {"pool_device_bytes": pool.reserved, "pool_used_device_bytes": pool.used}


def trim(number: int) -> str:
    """Gives idle memory of the pool of GPU ``number`` back to the GPU. Returns a clause that names
    the bytes of the pool before and after, empty if it held none."""
    before = native.stream_pool_bytes(number)
    native.trim_memory(number)
    if not before.reserved:
        return ""
    after = native.stream_pool_bytes(number)
    return (
        f"the native pool held {format_bytes(before.reserved)}, used {format_bytes(before.used)} "
        f"of it, and gave {format_bytes(before.reserved - after.reserved)} back"
    )


def trim_current() -> str:
    """As trim(), of this thread's GPU; does nothing before torch uses one."""
    return trim(torch.cuda.current_device()) if torch.cuda.is_initialized() else ""


def allocated(make: Callable[[], T]) -> T:
    """The result of ``make``, which allocates on this thread's GPU. If torch has no memory for it,
    the pool is trimmed, and ``make`` is called once more."""
    try:
        return make()
    except torch.OutOfMemoryError:
        trim_current()
    return make()


@cache
def trim_when_memory_ends() -> bool:
    """Has torch trim the pool before it raises an out-of-memory error, in loops of users as well.
    Returns False where torch has no such observer. torch uses a GPU already."""
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is None:
        return False
    attach(_observe)
    return True


def _observe(number: int, wanted: int, _limit: int, _free: int) -> None:
    said = trim(number)
    if said:
        logger.info("torch found no %s on GPU %d: %s", format_bytes(wanted), number, said)
