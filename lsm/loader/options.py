"""Options of loaders: the section ``loader`` of a configuration."""

from __future__ import annotations

from typing import ClassVar

from lsm.core.option_types import AutoBytes, AutoPositive, Positive, Threads
from lsm.core.section import Section


class LoaderOptions(Section):
    """Preparation of batches ahead of training."""

    section: ClassVar[str] = "loader"

    num_threads: Threads = 1
    """Threads that sample, each a batch of its own."""
    prefetch: AutoPositive = "auto"
    """Batches sampled and read ahead of training. auto: 4, and more while training waits for the
    disk and the disk has too few reads in flight, or would coalesce more of them; without a disk
    profile, 4."""
    max_prefetch: Positive = 64
    """Upper limit of prefetch=auto."""
    staging_bytes: AutoBytes = "auto"
    """Memory for the feature rows of batches read ahead. It bounds prefetch. auto: the larger of
    two sizes: 4 batches, but at most an eighth of memory.bytes; and 256MiB, but at most a sixteenth
    of memory.bytes. With a GPU, 256MiB. Rows that a cache in host memory holds need no staging
    memory until their batch is due. A shared cache needs about as much again for rows on their way
    to other ranks. A cache in GPU memory allocates the whole amount there at once."""
