"""Long transfers between memory and one file or drive that is read and written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, model_validator

from lsm import native
from lsm.core.limits import DEEPEST_QUEUE
from lsm.core.option_types import Bytes, Seconds
from lsm.core.section import Section
from lsm.core.units import format_bytes

BLOCK_BYTES = 4096
_LONGEST_CHUNK = 1 << 30


class TransferOptions(Section):
    """Options of transfers: the section ``storage`` of an embedding run."""

    section: ClassVar[str] = "storage"

    engine: Literal["auto", "io_uring", "posix", "nvme"] = "auto"
    """Engine that reads and writes partitions. nvme: NVMe queue pairs of our own. auto: io_uring
    where it works, else posix."""
    transport: Literal["emulated", "sysfs", "libnvm"] = "emulated"
    """nvme: access to the controller. emulated: a thread emulates one over a file."""
    devices: list[str] = Field([], max_length=1)
    """nvme: the namespace that holds the partitions, such as 0000:01:00.0 (sysfs) or /dev/libnvm0;
    append @2 for namespace 2. emulated: a file in its place. None: a file in run.dir (emulated)."""
    erase: str | None = None
    """nvme: the namespace of storage.devices, if all that it holds may be lost. null: a drive is
    taken if nothing was found on it, or an earlier table of this run."""
    chunk_bytes: Bytes = 2 << 20
    """Longest single transfer, a multiple of 4KiB."""
    queue_depth: Annotated[int, Field(ge=1, le=DEEPEST_QUEUE)] = 8
    """Transfers in flight; threads of posix."""
    direct: Literal["auto", "on", "off"] = "auto"
    """Bypass the page cache (O_DIRECT). auto: where the file system allows it."""
    prefetch: bool = True
    """Move partitions while others are trained. false: in between, to measure the difference."""
    timeout_secs: Seconds = 600.0
    """Longest wait for a partition to be written and another to be read, in seconds."""

    @model_validator(mode="after")
    def _names_a_drive(self) -> TransferOptions:
        if self.engine != "nvme" and (self.devices or self.transport != "emulated"):
            raise ValueError(
                f"storage.engine: expected nvme for storage.devices and storage.transport, got "
                f"{self.engine}"
            )
        if self.transport != "emulated" and not self.devices:
            example = {"sysfs": "0000:01:00.0", "libnvm": "/dev/libnvm0"}[self.transport]
            raise ValueError(
                f"storage.devices: expected a namespace for storage.transport={self.transport}, "
                f"such as [{example}], got none"
            )
        if self.erase is not None and [self.erase] != self.devices:
            raise ValueError(
                f"storage.erase: expected the namespace of storage.devices, got {self.erase}; "
                "nothing was written"
            )
        return self

    @property
    def device(self) -> str | None:
        """The namespace that is read and written; None for a file."""
        return self.devices[0] if self.devices else None


class Transfers:
    """Moves blocks of memory to and from a file, which exists, or a drive. Calls block; one at a
    time."""

    def __init__(
        self,
        path: Path,
        options: TransferOptions,
        nvme: native.NvmeOptions | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        """``path``: the file, where ``options.devices`` name no drive. ``nvme``: properties of an
        emulated controller. ``read_only``: a file need not be writable, and writes fail. Raises
        OSError for the file, ValueError for options, RuntimeError where the engine cannot run."""
        self._check(options)
        nvme = nvme or native.NvmeOptions()
        nvme.transport = options.transport
        problem = native.io_uring_problem() if options.engine == "auto" else ""
        self.engine = ("posix" if problem else "io_uring") if options.engine == "auto" else ""
        self.engine = self.engine or options.engine
        self.path = Path(options.device) if options.device else path
        self._timeout_secs = options.timeout_secs
        self._memory: torch.Tensor | None = None
        self._native: native.Transfers | None = native.open_transfers(
            self.engine,
            os.fspath(self.path),
            queue_depth=options.queue_depth,
            chunk_bytes=options.chunk_bytes,
            direct=getattr(native.DirectMode, options.direct),
            nvme=nvme,
            read_only=read_only,
        )

    @staticmethod
    def _check(options: TransferOptions) -> None:
        size = options.chunk_bytes
        if size % BLOCK_BYTES or not 0 < size <= _LONGEST_CHUNK:
            raise ValueError(
                f"storage.chunk_bytes: expected a multiple of 4KiB, at most 1GiB, got "
                f"{format_bytes(size)}"
            )

    def swap(
        self,
        memory: torch.Tensor,
        *,
        write_to: int | None = None,
        read_from: int | None = None,
        first_page: int = 0,
    ) -> tuple[int, int]:
        """Writes ``memory`` at the offset ``write_to``, then fills it from ``read_from``; each if
        given. Chunks are read as soon as they are written. Returns the checksums of both, 0 for
        one that is not given. Those of the parts of a block add up, modulo 2**64, to that of the
        block, if ``first_page`` is the page in the block with which a part begins.

        memory: contiguous, on the host; address, bytes and offsets are multiples of BLOCK_BYTES.
        Raises OSError, TimeoutError after ``storage.timeout_secs``; then nothing more is moved.
        """
        self._memory = memory  # kept for transfers that a time-out leaves in flight
        return self._engine().swap(memory, write_to, read_from, self._timeout_secs, first_page)

    @property
    def timeout_secs(self) -> float:
        """Longest time that a swap takes, well or badly."""
        return self._timeout_secs

    def sync(self) -> None:
        """Returns when everything written is on the disk."""
        self._engine().sync()

    def stats(self) -> dict[str, int]:
        """Counters since opening: bytes_read, bytes_written, short_transfers; of nvme, commands and
        doorbells."""
        return self._engine().stats()

    def inject_fault(self, fault: native.Fault, nth: int = 0, value: int = 0) -> None:
        """Makes the ``nth`` transfer from now fail, as ``Storage.inject_fault`` does reads."""
        self._engine().inject_fault(fault, nth, value)

    @property
    def num_bytes(self) -> int:
        """Size of the file or namespace."""
        return self._engine().num_bytes

    @property
    def direct(self) -> bool:
        """True if transfers bypass the page cache."""
        return self._engine().direct

    def close(self) -> None:
        """Closes the file. Waits for transfers that a time-out left in flight."""
        self._native = None
        self._memory = None

    def __enter__(self) -> Transfers:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _engine(self) -> native.Transfers:
        if self._native is None:
            raise RuntimeError(f"{self.path} is closed")
        return self._native
