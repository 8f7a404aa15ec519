"""Host memory of a storage engine."""

from __future__ import annotations

from lsm.core.memory import Shape, Terms
from lsm.core.option_types import settled
from lsm.core.units import format_bytes
from lsm.distributed.machine_share import check_free
from lsm.storage.options import StorageOptions


def terms(engine: str, shape: Shape) -> Terms:
    """All rows, for the engine that reads them into memory."""
    return Terms({"features": shape.num_nodes * shape.row_bytes if engine == "memory" else 0})


def check_buffers(engine: str, options: StorageOptions, num_threads: int) -> None:
    """Raises ValueError if memory has no room for the buffers of reads in flight. They are
    page-locked where that is allowed."""
    if engine in ("memory", "mmap"):
        return
    in_flight = num_threads * (1 if engine == "posix" else options.queue_depth)
    read_bytes = settled(options.max_read_bytes)
    check_free(
        "storage.max_read_bytes",
        {f"{in_flight} reads in flight of {format_bytes(read_bytes)}": in_flight * read_bytes},
        "lower it, storage.num_threads or storage.queue_depth",
    )
