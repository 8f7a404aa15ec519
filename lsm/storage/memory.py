"""Host memory of a storage engine: rows, or buffers of reads."""

from __future__ import annotations

from lsm import native
from lsm.core.memory import Shape, Terms
from lsm.core.option_types import settled
from lsm.core.units import format_bytes
from lsm.distributed.machine_share import check_free
from lsm.storage.longest_read import MOST_READ_BYTES
from lsm.storage.options import StorageOptions


def terms(engine: str, shape: Shape, buffers: int = 0) -> Terms:
    """All rows, for the engine that reads them into memory; ``buffers`` bytes for reads in flight
    of the others."""
    in_memory = engine == "memory"
    rows = shape.features_bytes if in_memory else 0
    return Terms({"features": rows, "reads in flight": 0 if in_memory else buffers})


def buffer_bytes(engine: str, options: StorageOptions, num_threads: int) -> int:
    """Most memory of the buffers of reads in flight, which are page-locked where that is
    allowed."""
    longest = MOST_READ_BYTES if options.max_read_bytes == "auto" else options.max_read_bytes
    return _num_buffers(engine, options, num_threads) * longest


def check_buffers(engine: str, options: StorageOptions, num_threads: int) -> None:
    """Raises ValueError if memory has no room for the buffers of reads in flight."""
    buffers = _num_buffers(engine, options, num_threads)
    if not buffers:
        return
    read_bytes = settled(options.max_read_bytes)
    check_free(
        "storage.max_read_bytes",
        {f"{buffers} buffers of reads of {format_bytes(read_bytes)}": buffers * read_bytes},
        "lower it, storage.num_threads or storage.queue_depth",
    )


def _num_buffers(engine: str, options: StorageOptions, num_threads: int) -> int:
    if engine in ("memory", "mmap", "gds"):  # gds reads into GPU memory
        return 0
    if engine == "posix":
        return num_threads
    queues = max(1, len(options.devices)) if engine == "nvme" else 1
    return num_threads * queues * native.num_read_slots(options.queue_depth)
