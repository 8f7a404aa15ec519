"""Options of reading feature rows: the section ``storage`` of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lsm.core.limits import DEEPEST_QUEUE
from lsm.core.option_types import (
    Described,
    GapBytes,
    Positive,
    ReadBytes,
    Seconds,
    Threads,
    auto_or_positive,
)
from lsm.core.section import Section

READ_BYTES = 32 << 10
"""storage.max_read_bytes=auto without a disk profile."""


EngineName = Literal["auto", "memory", "mmap", "posix", "io_uring", "nvme", "gds"]
"""The engines, and auto."""


class StorageOptions(Section):
    """Reads of feature rows from storage.

    ``lsm train`` derives the values that are ``auto`` from a disk profile. Elsewhere they have
    their values without a profile (``resolved``).
    """

    section: ClassVar[str] = "storage"

    engine: EngineName = "auto"
    """Storage engine. gds: cuFile, where installed, reads into GPU memory. auto: memory where the
    features fit in memory.bytes and cache.policy is auto or none; else io_uring where it works,
    else posix (see `lsm doctor`). Outside `lsm train` auto never means memory."""
    transport: Literal["emulated", "sysfs", "libnvm"] = "emulated"
    """nvme: access to controllers. emulated: a thread emulates a controller over the store's
    files."""
    devices: list[str] = Field([])
    """sysfs, libnvm: the namespaces that `lsm data load-nvme` wrote, in the same order, such as
    0000:01:00.0 or /dev/libnvm0. Append @2 for namespace 2. Each rank of a machine needs its own
    drives."""
    command_timeout_secs: Seconds = 10.0
    """nvme: longest wait for one command, in seconds. A longer one is an error."""
    submit_from: Literal["host", "gpu"] = "host"
    """nvme: processor that submits commands and takes completions. gpu: kernels of the GPU that
    trains."""
    read_to: Literal["host", "gpu"] = "host"
    """nvme: memory that drives write rows to. gpu: memory of the GPU that trains, under libnvm with
    GPU support or emulated; needs a cache, whose batches take rows from there."""
    submit_blocks: Positive | None = None
    """submit_from=gpu: most thread blocks of such a kernel. null: 30% of the GPU's SMs."""
    queue_depth: Annotated[int, Field(ge=1, le=DEEPEST_QUEUE)] = 128
    """Reads in flight per ring (io_uring), queue pair (nvme) or batch (gds)."""
    num_threads: Threads | None = None
    """Threads that read: rings of io_uring, queue pairs per controller of nvme, reads in flight of
    posix, copying threads of memory and mmap. null: 16 for posix, 1 for io_uring and nvme, one per
    core for memory and mmap."""
    profile: str = "auto"
    """Disk profile (`lsm bench storage STORE --profile`), which sets the keys below that are auto.
    auto: the store's profile.json; if it has none of this disk, the run measures the disk in about
    a second and saves the profile there. Or a path, or none."""
    target_share: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Share of the disk's peak IOPS to reach. It sets the number of reads in flight."""
    max_read_bytes: ReadBytes = "auto"
    """Longest single read. Reads of adjacent rows are coalesced up to this size. auto: 32 to
    128 KiB, by the disk's cost of starting a read against its cost per byte; without a profile
    32 KiB."""
    max_gap_bytes: GapBytes = "auto"
    """Most unneeded bytes between two rows that are read along with them, so that one read fetches
    both rows. auto: as many as take less time to read than a second read takes to start; 0 without
    a profile, or with a cache."""
    merge_iterations: Annotated[
        int | Literal["auto", "half"],
        auto_or_positive("half", most=65_535),
        Described("auto, half, or integer from 1 to 65535"),
    ] = "auto"
    """Iterations whose reads are planned together. Values above half of loader.prefetch have no
    further effect. half: half of the iterations in flight; auto: half where long reads cost less
    than many reads, else 1; without a profile, or over a cache, 1."""
    direct: Literal["auto", "on", "off"] = "auto"
    """O_DIRECT, which bypasses the page cache. auto: where the file system supports it; on: an
    error where it does not."""
    staging: Literal["auto", "gather", "copy"] = "auto"
    """Path of rows from page-locked memory to a cache on the GPU. gather: a kernel reads them over
    PCIe; copy: a copy engine moves them, and a kernel brings them to their places; auto: the first
    batches, and again every 1000, try both, and the faster one continues. Rows are the same."""
    timeout_secs: Seconds = 60.0
    """Longest wait for the rows of one batch, in seconds. A longer one is an error."""
    emulation: Annotated[Mapping[str, Any], Field(exclude=True)] = Field({})
    """Properties and faults of emulated controllers, for tests: fields of
    native.NvmeOptions().emulated, of its device, and of the device's faults."""

    def resolved(self) -> StorageOptions:
        """These options with a number for each setting of reads that is ``auto``."""
        without_profile = {"max_read_bytes": READ_BYTES, "max_gap_bytes": 0, "merge_iterations": 1}
        return self.model_copy(
            update={
                key: value for key, value in without_profile.items() if getattr(self, key) == "auto"
            }
        )
