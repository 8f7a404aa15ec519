"""Storage engines: rows of a store's feature files, read by id."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, get_args

import torch

from lsm import native
from lsm.core.device import gpu_problem
from lsm.core.option_types import settled
from lsm.core.threads import starting
from lsm.storage.memory import buffer_bytes, check_buffers
from lsm.storage.options import EngineName, StorageOptions
from lsm.storage.row_map import RowMap

logger = logging.getLogger(__name__)

ENGINES: tuple[str, ...] = tuple(
    name for name in get_args(EngineName) if name not in ("auto", "gds")
)
"""Engines that read into host memory. The engine gds is lsm.storage.gds."""

# Default threads of an engine, where one is too few: pread needs one per read in flight, copies
# from memory one per core. io_uring and nvme need one per ring or queue.
_DEFAULT_THREADS = {"memory": os.cpu_count() or 1, "mmap": os.cpu_count() or 1, "posix": 16}


def select_engine(engine: str = "auto") -> tuple[str, str]:
    """``(name, reason)`` of the engine that ``engine`` stands for on this machine.

    "auto" takes io_uring where it was built and the kernel allows it, else posix. A named engine is
    returned as it is; opening it fails if it cannot run. Raises ValueError for an unknown name.
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


def buffers_of(options: StorageOptions) -> int:
    """Most memory of the reads in flight of the engine that ``options`` choose."""
    engine, _ = select_engine(options.engine)
    return buffer_bytes(engine, options, _threads_of(engine, options))


def _threads_of(engine: str, options: StorageOptions) -> int:
    return options.num_threads or _DEFAULT_THREADS.get(engine, 1)


class PendingReads(Protocol):
    """The reads of a ticket, done by the native engine, its scheduler or cuFile."""

    @property
    def done(self) -> bool:
        """True once every read has ended, with or without an error."""

    def wait(self, timeout_secs: float) -> None:
        """Raises OSError, TimeoutError. Blocks until all rows have arrived."""


class Ticket:
    """Rows on their way into ``out``, by ``reads``: in flight, or collected by a ReadScheduler.
    Keeps ``out`` alive until they arrive."""

    def __init__(self, reads: PendingReads, out: torch.Tensor, timeout_secs: float) -> None:
        self._reads = reads
        self._out = out
        self._timeout_secs = timeout_secs

    @property
    def done(self) -> bool:
        """True once every read has ended, with or without an error; False while the rows are
        collected."""
        return self._reads.done

    def wait(self, timeout_secs: float | None = None) -> torch.Tensor:
        """Returns ``out`` with its rows. Submits collected rows first.

        Raises OSError (file, offset, errno) if a read failed, TimeoutError with the rows awaited
        after ``timeout_secs`` (default: the engine's). After an error nothing writes to ``out`` any
        more. Blocks until the rows have arrived.
        """
        self._reads.wait(self._timeout_secs if timeout_secs is None else timeout_secs)
        return self._out


class Storage:
    """Reads rows of feature files. Thread-safe; any number of requests may be in flight."""

    plans_together = True
    """True if requests that are submitted together share reads."""

    def __init__(
        self,
        paths: Sequence[Path | str],
        *,
        num_rows: int,
        row_bytes: int,
        stripe_bytes: int = 4096,
        file_sets: Sequence[tuple[int, int]] = (),
        engine: str = "auto",
        options: StorageOptions | None = None,
        row_map: RowMap | None = None,
    ) -> None:
        """Opens ``paths``, over which ``num_rows`` rows of ``row_bytes`` bytes are striped in pages
        of ``stripe_bytes``. ``file_sets``: rows and files of each of several sets that are numbered
        through; empty: one set. ``engine`` auto means that of ``options``. ``row_map``: the rows of
        nodes; None: ids are rows. Raises OSError for a missing
        or truncated file, ValueError for options that do not fit the files or the machine,
        RuntimeError if the engine cannot run here."""
        options = (options or StorageOptions()).resolved()
        engine = options.engine if engine == "auto" else engine
        self.engine, reason = select_engine(engine)
        if engine == "auto" and self.engine != "io_uring":
            logger.warning("storage.engine=auto uses %s: %s", self.engine, reason)
        self.row_bytes = row_bytes
        self.num_rows = num_rows
        self.row_map = row_map or RowMap(num_rows)
        self.timeout_secs = options.timeout_secs
        merged = options.merge_iterations
        self.merge_iterations: int | Literal["half"] = 1 if merged == "auto" else merged
        nvme = nvme_options(options)
        if self.engine == "nvme" and options.submit_from == "gpu":
            nvme.submission.device = _gpu_for("submit_from")
            nvme.submission.num_blocks = options.submit_blocks or 0
        self.reads_to_gpu = self.engine == "nvme" and options.read_to == "gpu"
        """True if rows can be read into GPU memory."""
        if self.reads_to_gpu:
            nvme.gpu = _gpu_for("read_to")

        def open_as(engine: str) -> native.Storage:
            num_threads = _threads_of(engine, options)
            check_buffers(engine, options, num_threads)
            with starting("storage.num_threads", num_threads):
                return native.open_storage(
                    engine=engine,
                    paths=[os.fspath(path) for path in paths],
                    file_sets=list(file_sets) or [(num_rows, len(paths))],
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
            self.engine = "posix"  # other processes of this user hold the limit of locked memory
            logger.warning("storage.engine=auto uses posix: io_uring: %s", error)
            self._native = open_as(self.engine)
        for note in self._native.notes():
            logger.warning("%s", note)

    def submit(
        self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor | None = None
    ) -> Ticket:
        """Returns a ticket for the rows of nodes ``ids``, which are read into ``out``.

        ids: [N] int64 on the host, any order, repeats allowed. out: N * row_bytes bytes of any
        dtype, contiguous, on the host. positions: [N] int64; the row of ids[i] goes to row
        positions[i] of ``out``, whose other rows stay as they are.

        Raises ValueError for an id or position out of range or a wrong size. Does not block, except
        for the engines memory and mmap, which copy the rows first.
        """
        return self.submit_together([(ids, out, positions)])[0]

    def submit_together(
        self, reads: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]
    ) -> list[Ticket]:
        """Tickets for several requests (ids, out, positions) that are planned together.

        Reads are sorted by offset over all requests, and a block that several of them need is read
        once. A ticket's wait() ends as soon as its own rows have arrived. Otherwise as submit()."""
        started = self.start(reads)
        return [
            Ticket(each, out, self.timeout_secs)
            for each, (_, out, _) in zip(started, reads, strict=True)
        ]

    def start(
        self, reads: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]
    ) -> list[PendingReads]:
        """submit_together() for a caller with tickets of its own. Precondition: the caller keeps
        each ``out`` alive until its reads have ended."""
        located = [(self.row_map.rows(ids), out, positions) for ids, out, positions in reads]
        return self.handle().submit(located)

    def wait(self, ticket: Ticket, timeout_secs: float | None = None) -> torch.Tensor:
        """``ticket.wait(timeout_secs)``."""
        return ticket.wait(timeout_secs)

    def stats(self) -> dict[str, int | float]:
        """Counters since opening or reset_stats(): requests, rows, bytes_requested (rows x
        row_bytes), reads and bytes_read (from the drive; memory and mmap: copied), short_reads,
        errors, read_amplification (bytes_read / bytes_requested), p50_us and p99_us of one read."""
        stats = self.handle().stats()
        requested = stats["bytes_requested"]
        stats["read_amplification"] = stats["bytes_read"] / requested if requested else 0.0
        return stats

    def reset_stats(self) -> None:
        """Sets all counters to zero."""
        self.handle().reset_stats()

    def inject_fault(self, fault: native.Fault, nth: int = 0, value: int = 0) -> None:
        """Injects a fault into the ``nth`` read from now, for tests: errno ``value`` (Fault.error),
        only ``value`` bytes (Fault.short), or no end (Fault.stall)."""
        self.handle().inject_fault(fault, nth, value)

    @property
    def outstanding_reads(self) -> int:
        """Reads, after coalescing, that are queued or in flight. 0 for memory and mmap."""
        return self.handle().outstanding_reads

    @property
    def direct(self) -> bool:
        """True if reads bypass the page cache."""
        return self.handle().direct

    @property
    def block_bytes(self) -> int:
        """Unit of the offset and the length of a read."""
        return self.handle().block_bytes

    def close(self) -> None:
        """Stops the engine's threads and closes the files. Requests in flight fail."""
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


def _gpu_for(key: str) -> int:
    """Index of the current GPU, which is the one that trains. Raises RuntimeError without a GPU."""
    index = torch.cuda.current_device() if torch.cuda.is_available() else 0
    problem = gpu_problem(index)
    if problem is not None:
        raise RuntimeError(
            f"storage.{key}=gpu: {problem}; or set storage.{key}=host (see `lsm doctor`)"
        )
    return index


def nvme_options(options: StorageOptions) -> native.NvmeOptions:
    """Options of the native NVMe engine. Raises ValueError for an unknown field of
    ``emulation``."""
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
