"""Sets when the C library returns memory to the system, for a process that trains."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

# Parameters of glibc's mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_LARGEST_HEAP_BLOCK_BYTES = 128 << 20
_LARGEST_IDLE_HEAP_BYTES = 512 << 20
_LARGEST_BLOCK_OF_A_STREAM = 256 << 10
_LARGEST_BLOCK_OF_A_CHUNK = 1 << 20
_IDLE_BYTES_OF_A_THREAD = 4 << 20

_keeps_freed = False


def keep_freed_memory() -> bool:
    """Makes malloc keep freed blocks for the next iteration. Returns True if it could.

    By default glibc unmaps large blocks when they are freed, and every iteration's activations
    fault their pages in again: 1,500 to 2,700 faults per step of GraphSAGE 256-128 on batches of
    1,024, a tenth of the step's processor time. At most ``_LARGEST_IDLE_HEAP_BYTES`` stay idle.
    Does nothing without glibc.
    """
    global _keeps_freed
    if platform.libc_ver()[0] != "glibc":
        return False
    _keeps_freed = True
    mallopt = ctypes.CDLL(None).mallopt
    return bool(
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_HEAP_BLOCK_BYTES)
        and mallopt(_M_TRIM_THRESHOLD, _LARGEST_IDLE_HEAP_BYTES)
    )


def release_freed_memory() -> None:
    """Returns the pages of freed blocks to the system. Does nothing without glibc."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def returning_freed_memory(idle_bytes: int) -> Iterator[None]:
    """A context in which freed blocks of 256 KiB and more go back to the system at once; those of
    1 MiB and more if each thread may keep ``idle_bytes`` of 4 MiB.

    By default glibc keeps blocks of up to 32 MiB once the first of such a size has been freed:
    buffers of a stream and blocks of all threads then lie between each other, and the process takes
    up to four times the memory in use. Ends with keep_freed_memory() if that was called before.
    Does nothing without glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    keeps = idle_bytes >= _IDLE_BYTES_OF_A_THREAD
    largest = _LARGEST_BLOCK_OF_A_CHUNK if keeps else _LARGEST_BLOCK_OF_A_STREAM
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_M_MMAP_THRESHOLD, largest)
    mallopt(_M_TRIM_THRESHOLD, _IDLE_BYTES_OF_A_THREAD if keeps else largest)
    try:
        yield
    finally:
        if _keeps_freed:
            keep_freed_memory()
        release_freed_memory()
