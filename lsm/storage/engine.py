"""Storage engines: rows of a store's feature files, read by id (DESIGN section 6)."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

import torch

from lsm import native
from lsm.core.device import gpu_problem
from lsm.core.option_types import settled
from lsm.core.threads import starting
from lsm.core.units import format_bytes
from lsm.distributed.host_memory import available_bytes_per_rank
from lsm.storage.options import StorageOptions

logger = logging.getLogger(__name__)

ENGINES = ("memory", "mmap", "posix", "io_uring", "nvme")
"""Engines that read into host memory; beside them there is gds (lsm.storage.gds)."""

# Threads an engine uses unless told otherwise: io_uring and nvme need one per ring or queue, pread
# one per read in flight, and copies from memory one per core.
_DEFAULT_THREADS = {"memory": os.cpu_count() or 1, "mmap": os.cpu_count() or 1}
_DEFAULT_THREADS |= {"posix": 16, "io_uring": 1, "nvme": 1}


def select_engine(engine: str = "auto") -> tuple[str, str]:
    """The engine that ``engine`` stands for on this machine, and why: ``(name, reason)``.

    "auto" takes io_uring where it was built and the kernel allows it, else posix. A named engine is
    returned as it is; opening it fails if it cannot run.
    """
    if engine != "auto":
        if engine not in (*ENGINES, "gds"):
            names = ", ".join((*ENGINES, "gds"))
            raise ValueError(f"storage.engine: expected auto, {names}, got {engine!r}")
        return engine, "asked for by name"
    problem = native.io_uring_problem()
    if problem:
        return "posix", problem
    return "io_uring", "built with liburing, and the kernel allows it"


class PendingReads(Protocol):
    """The reads of a ticket, by whoever does them: the native engine, or cuFile."""

    @property
    def done(self) -> bool:
        """True once every read has ended, well or badly."""

    def wait(self, timeout_secs: float) -> None:
        """Blocks until all rows are there. Raises OSError, TimeoutError."""


class Ticket:
    """Rows that are being read into ``out``, or that a ReadScheduler still collects; keeps ``out``
    alive until they are there.

    hand_on: called by the first wait() if the reads have not been submitted by then.
    """

    def __init__(
        self, out: torch.Tensor, timeout_secs: float, hand_on: Callable[[], None] | None = None
    ) -> None:
        self._reads: PendingReads | None = None
        self._out = out
        self._timeout_secs = timeout_secs
        self._hand_on = hand_on
        self.error: BaseException | None = None
        """Set if the reads could not be submitted."""

    def submitted(self, reads: PendingReads) -> Ticket:
        """Says which reads fetch the rows; returns this ticket."""
        self._reads = reads
        return self

    @property
    def is_submitted(self) -> bool:
        """True once an engine has the reads."""
        return self._reads is not None

    @property
    def done(self) -> bool:
        """True once every read has ended, well or badly; False while the rows wait for company."""
        return self.error is not None or (self._reads is not None and self._reads.done)

    def wait(self, timeout_secs: float | None = None) -> torch.Tensor:
        """Blocks until the rows are in ``out`` and returns it. Rows that still wait for company are
        submitted first, so that a longer read makes nothing late.

        Raises OSError (file, offset, errno) if a read failed, TimeoutError (what was awaited) after
        ``timeout_secs`` (default: the engine's). After an error nothing writes to ``out`` any more.
        """
        if self._reads is None and self.error is None and self._hand_on is not None:
            self._hand_on()
        if self.error is not None:
            raise self.error
        assert self._reads is not None, "hand_on submits the reads or sets an error"
        self._reads.wait(self._timeout_secs if timeout_secs is None else timeout_secs)
        return self._out


class Storage:
    """Reads rows of feature files. Thread-safe; any number of requests may be in flight."""

    def __init__(
        self,
        paths: Sequence[Path | str],
        *,
        num_rows: int,
        row_bytes: int,
        stripe_bytes: int = 4096,
        engine: str = "auto",
        options: StorageOptions | None = None,
    ) -> None:
        """Opens ``paths``, over which ``num_rows`` rows of ``row_bytes`` bytes are striped in pages
        of ``stripe_bytes``. ``engine`` is that of ``options`` where it is auto. Raises OSError for
        a missing or truncated file, ValueError for options that do not fit the files or the
        machine, RuntimeError if the engine cannot run here."""
        options = (options or StorageOptions()).resolved()
        engine = options.engine if engine == "auto" else engine
        self.engine, reason = select_engine(engine)
        if engine == "auto" and self.engine != "io_uring":
            logger.warning("storage.engine=auto uses %s: %s", self.engine, reason)
        self.row_bytes = row_bytes
        self.num_rows = num_rows
        self.timeout_secs = options.timeout_secs
        merged = options.merge_iterations
        self.merge_iterations: int | Literal["half"] = 1 if merged == "auto" else merged
        nvme = nvme_options(options)
        if self.engine == "nvme" and options.submit_from == "gpu":
            nvme.submission.device = _submitting_gpu()
            nvme.submission.num_blocks = options.submit_blocks or 0

        def open_as(engine: str) -> native.Storage:
            num_threads = options.num_threads or _DEFAULT_THREADS[engine]
            _check_buffers(engine, options, num_threads)
            with starting("storage.num_threads", num_threads):
                return native.open_storage(
                    engine=engine,
                    paths=[os.fspath(path) for path in paths],
                    num_rows=num_rows,
                    row_bytes=row_bytes,
                    stripe_bytes=stripe_bytes,
                    queue_depth=options.queue_depth,
                    num_threads=num_threads,
                    max_read_bytes=settled(options.max_read_bytes),
                    max_gap_bytes=settled(options.max_gap_bytes),
                    direct=getattr(native.DirectMode, options.direct),
                    nvme=nvme,
                )

        try:
            self._native: native.Storage | None = open_as(self.engine)
        except OSError as error:
            if (engine, self.engine, error.errno) != ("auto", "io_uring", errno.ENOMEM):
                raise
            self.engine = "posix"  # other processes of this user have locked what may be locked
            logger.warning("storage.engine=auto uses posix: io_uring: %s", error)
            self._native = open_as(self.engine)
        for note in self._native.notes():
            logger.warning("%s", note)

    def submit(
        self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor | None = None
    ) -> Ticket:
        """Starts reading rows ``ids`` into ``out`` and returns at once (memory, mmap: when done).

        ids: [N] int64 on the host, any order, repeats allowed. out: N * row_bytes bytes of any
        dtype, contiguous, on the host. With ``positions`` ([N] int64), row ids[i] goes to row
        positions[i] of ``out``, which may hold more rows; the others are left alone. Raises
        ValueError for an id or position out of range or a wrong size.
        """
        return self.submit_together([(ids, out, positions)])[0]

    def submit_together(
        self, reads: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]
    ) -> list[Ticket]:
        """submit() of several (ids, out, positions), planned together: blocks that more than one of
        them needs are read once, and reads go in the order of the file over all of them. A ticket
        for each; every one of them may be waited for as soon as its own rows are there."""
        started = self.start(reads)
        return [
            Ticket(out, self.timeout_secs).submitted(each)
            for each, (_, out, _) in zip(started, reads, strict=True)
        ]

    def start(
        self, reads: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]
    ) -> list[PendingReads]:
        """submit_together() for a caller that has tickets of its own and keeps each ``out`` alive
        until its reads have ended."""
        return self.handle().submit(list(reads))

    def wait(self, ticket: Ticket, timeout_secs: float | None = None) -> torch.Tensor:
        """``ticket.wait(timeout_secs)``."""
        return ticket.wait(timeout_secs)

    def stats(self) -> dict[str, int | float]:
        """Counters since opening or reset_stats(): requests, rows, bytes_requested (rows x
        row_bytes), reads and bytes_read (by the device; for memory and mmap: copied), short_reads,
        errors, read_amplification (bytes_read / bytes_requested), p50_us and p99_us of one read."""
        stats = self.handle().stats()
        requested = stats["bytes_requested"]
        stats["read_amplification"] = stats["bytes_read"] / requested if requested else 0.0
        return stats

    def reset_stats(self) -> None:
        """Sets all counters to zero."""
        self.handle().reset_stats()

    def inject_fault(self, fault: native.Fault, nth: int = 0, value: int = 0) -> None:
        """Makes the ``nth`` read from now fail: with errno ``value`` (Fault.error), with ``value``
        bytes (Fault.short), or never (Fault.stall). For tests of what a failing device causes."""
        self.handle().inject_fault(fault, nth, value)

    @property
    def outstanding_reads(self) -> int:
        """Reads, merged as they are, that the device still has to do or is doing; memory and mmap
        have none."""
        return self.handle().outstanding_reads

    @property
    def direct(self) -> bool:
        """True if reads bypass the page cache."""
        return self.handle().direct

    @property
    def block_bytes(self) -> int:
        """The unit of a read's offset and length."""
        return self.handle().block_bytes

    def close(self) -> None:
        """Ends the engine's threads and closes the files. Requests in flight fail."""
        self._native = None

    def __enter__(self) -> Storage:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def handle(self) -> native.Storage:
        """The native engine. Raises RuntimeError once closed."""
        if self._native is None:
            raise RuntimeError("the storage engine is closed")
        return self._native


def _check_buffers(engine: str, options: StorageOptions, num_threads: int) -> None:
    """ValueError with the sum if the buffers of reads in flight take more than half of what is
    free: they are page-locked where that is allowed."""
    if engine in ("memory", "mmap"):
        return
    in_flight = num_threads * (1 if engine == "posix" else options.queue_depth)
    read_bytes, free = settled(options.max_read_bytes), available_bytes_per_rank()
    needed = in_flight * read_bytes
    if needed > free // 2:
        raise ValueError(
            f"storage.max_read_bytes: {in_flight} reads in flight (storage.num_threads, "
            f"storage.queue_depth) of {format_bytes(read_bytes)} take "
            f"{format_bytes(needed)}, more than half of the {format_bytes(free)} that are free; "
            "lower one of the three"
        )


def _submitting_gpu() -> int:
    """The current GPU, which is the one that trains. Raises RuntimeError if there is none."""
    index = torch.cuda.current_device() if torch.cuda.is_available() else 0
    problem = gpu_problem(index)
    if problem is not None:
        raise RuntimeError(
            f"storage.submit_from=gpu: {problem}; or set storage.submit_from=host (see "
            "`lsm doctor`)"
        )
    return index


def nvme_options(options: StorageOptions) -> native.NvmeOptions:
    """What native NVMe engines take. Raises ValueError for an emulation field that is not."""
    nvme = native.NvmeOptions()
    nvme.transport = options.transport
    nvme.command_timeout_secs = options.command_timeout_secs
    controller, emulated = nvme.emulated.controller, nvme.emulated
    for name, value in options.emulation.items():
        owner = next(
            (o for o in (emulated, controller, controller.faults) if hasattr(o, name)), None
        )
        if owner is None:
            raise ValueError(f"emulation: an emulated controller has no {name!r}")
        setattr(owner, name, value)
    return nvme
