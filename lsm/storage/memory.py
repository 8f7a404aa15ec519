"""Host memory of a storage engine: rows, or buffers of reads."""

from __future__ import annotations

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
    return _reads_in_flight(engine, options, num_threads) * longest


def check_buffers(engine: str, options: StorageOptions, num_threads: int) -> None:
    """Raises ValueError if memory has no room for the buffers of reads in flight."""
    in_flight = _reads_in_flight(engine, options, num_threads)
    if not in_flight:
        return
    read_bytes = settled(options.max_read_bytes)
    check_free(
        "storage.max_read_bytes",
        {f"{in_flight} reads in flight of {format_bytes(read_bytes)}": in_flight * read_bytes},
        "lower it, storage.num_threads or storage.queue_depth",
    )


def _reads_in_flight(engine: str, options: StorageOptions, num_threads: int) -> int:
    if engine in ("memory", "mmap", "gds"):  # gds reads into GPU memory
        return 0
    return num_threads * (1 if engine == "posix" else options.queue_depth)
