"""cuFile batches: many reads from files into GPU memory, submitted in one call.

``cuda.bindings.cufile`` binds cuFile; CUDA builds of torch install it. kvikio's Python package has
no batches: its ``pread`` takes one Python call per read.
"""

from __future__ import annotations

import ctypes
import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from lsm.core.device import current

# CUfileIOParams_t, CUfileIOEvents_t and CUfileDescr_t of cufile.h, which are part of its ABI.
_PARAMS = np.dtype(
    {
        "names": ["mode", "base", "file_offset", "base_offset", "size", "file", "opcode", "cookie"],
        "formats": ["i4", "u8", "i8", "i8", "u8", "u8", "i4", "u8"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56],
        "itemsize": 64,
    }
)
_EVENTS = np.dtype(
    {
        "names": ["cookie", "status", "num_bytes"],
        "formats": ["u8", "i4", "i8"],
        "offsets": [0, 8, 16],
        "itemsize": 24,
    }
)
_FILE = np.dtype(
    {
        "names": ["type", "fd", "fs_ops"],
        "formats": ["i4", "i4", "u8"],
        "offsets": [0, 8, 16],
        "itemsize": 24,
    }
)
_BATCH_MODE, _READ, _FILE_DESCRIPTOR = 1, 0, 1
_STATUS = {1: "waiting", 2: "pending", 4: "invalid", 8: "cancelled", 16: "complete"}
_STATUS |= {32: "timed out", 64: "failed"}
_COMPLETE = 16

# Words of CUfileDrvProps_t: the version of nvidia-fs (0 in cuFile's compatibility mode) and the
# longest batch.
_PROPERTY_WORDS = 64
_MAJOR_VERSION, _MINOR_VERSION, _MAX_BATCH = 0, 1, 12

_POLL_SECS = 1.0


class _Timespec(ctypes.Structure):
    _fields_ = (("secs", ctypes.c_long), ("nanosecs", ctypes.c_long))


@dataclass(frozen=True)
class Reads:
    """Reads from files into one buffer: four arrays with one element per read."""

    file: np.ndarray
    """[n] int64: index of the file."""
    offset: np.ndarray
    """[n] int64: bytes into the file."""
    length: np.ndarray
    """[n] int64: bytes."""
    begin: np.ndarray
    """[n] int64: bytes into the buffer."""

    def __len__(self) -> int:
        return len(self.offset)

    def slices(self, size: int) -> list[Reads]:
        """The same reads in parts of at most ``size``."""
        starts = range(0, len(self), size)
        return [Reads(*(a[i : i + size] for a in self._arrays())) for i in starts]

    def _arrays(self) -> tuple[np.ndarray, ...]:
        return self.file, self.offset, self.length, self.begin


def import_cufile() -> ModuleType:
    """The module cuda.bindings.cufile, with cuFile's driver open.

    Raises RuntimeError, with a remedy, if the module or libcufile is missing or the driver does not
    open.
    """
    try:
        from cuda.bindings import cufile

        if not cufile.use_count():
            cufile.driver_open()
    except Exception as error:  # cuFileError and errors of loading libcufile share no base
        raise RuntimeError(
            f"storage.engine=gds: cuFile cannot be used ({error}); install it with "
            "pip install cuda-bindings, or set storage.engine=io_uring"
        ) from error
    return cufile


def _properties(cufile: ModuleType) -> ctypes.Array[ctypes.c_uint32]:
    words = (ctypes.c_uint32 * _PROPERTY_WORDS)()
    try:
        cufile.driver_get_properties(ctypes.addressof(words))
    except cufile.cuFileError as error:
        raise RuntimeError(
            f"storage.engine=gds: cuFile does not describe itself: {error}"
        ) from error
    return words


class CuFile:
    """Feature files, opened for batches of reads by cuFile.

    paths: the files. direct: "on", "off" or "auto", as in StorageOptions. Raises OSError if a file
    cannot be opened, RuntimeError if cuFile cannot be used or does not take a file.
    """

    def __init__(self, paths: list[str], direct: str) -> None:
        self._cufile = import_cufile()
        self._paths = paths
        self._fds: list[int] = []
        self._handles: list[int] = []
        words = _properties(self._cufile)
        self.is_compatible = not (words[_MAJOR_VERSION] or words[_MINOR_VERSION])
        """True in cuFile's compatibility mode, in which reads go through host memory."""
        self.max_batch = words[_MAX_BATCH]
        """Most reads in one batch."""
        try:
            for path in paths:
                self._fds.append(_open(path, direct))
                self._handles.append(self._register(path, self._fds[-1]))
        except Exception:
            self.close()
            raise

    def read(self, reads: Reads, out: torch.Tensor, timeout_secs: float) -> None:
        """Reads ``reads`` (at most max_batch) into ``out``, which is contiguous and on one GPU.

        Raises OSError (file, offset, reason) if a read failed or was short, TimeoutError after
        ``timeout_secs``. After any error but an UnendedReadsError nothing writes to ``out`` any
        more. Blocks until the reads have ended.
        """
        with current(out.device):
            batch = self._submit(reads, out)
            try:
                events = self._finish(batch, len(reads), timeout_secs)
            except self._cufile.cuFileError as error:
                raise UnendedReadsError(f"cuFile lost a batch of reads: {error}") from error
            self._cufile.batch_io_destroy(batch)
        if len(events) < len(reads):
            missing = len(reads) - len(events)
            raise TimeoutError(
                f"{missing} of {len(reads)} reads of a batch did not end in {timeout_secs} s"
            )
        self._check(reads, events)

    def close(self) -> None:
        """Closes the files. Precondition: no batch is in flight."""
        for handle in self._handles:
            self._cufile.handle_deregister(handle)
        for fd in self._fds:
            os.close(fd)
        self._handles, self._fds = [], []

    def _register(self, path: str, fd: int) -> int:
        description = np.zeros(1, _FILE)
        description["type"], description["fd"] = _FILE_DESCRIPTOR, fd
        try:
            return self._cufile.handle_register(description.ctypes.data)
        except Exception as error:
            raise RuntimeError(
                f"{path}: cuFile does not take the file ({error}); see its log, cufile.log (a "
                "container without the host's /run/udev has no description of the disk), or set "
                "storage.engine=io_uring"
            ) from error

    def _submit(self, reads: Reads, out: torch.Tensor) -> int:
        """Returns cuFile's batch of ``reads``, submitted in one call. Raises OSError."""
        params = np.zeros(len(reads), _PARAMS)
        params["mode"], params["opcode"] = _BATCH_MODE, _READ
        # cuda.bindings takes addresses for signed numbers.
        params["file"] = np.array(self._handles, dtype=np.int64).view(np.uint64)[reads.file]
        params["file_offset"], params["size"] = reads.offset, reads.length
        params["base"], params["base_offset"] = out.data_ptr(), reads.begin
        params["cookie"] = np.arange(len(reads))
        try:
            batch = self._cufile.batch_io_set_up(len(reads))
            try:
                self._cufile.batch_io_submit(batch, len(reads), params.ctypes.data, 0)
            except self._cufile.cuFileError:
                self._cufile.batch_io_destroy(batch)
                raise
        except self._cufile.cuFileError as error:
            raise OSError(
                f"{self._paths[0]}: cuFile does not take a batch of {len(reads)} reads: {error}"
            ) from error
        return batch

    def _finish(self, batch: int, count: int, timeout_secs: float) -> np.ndarray:
        """Events of the reads of ``batch`` that ended in time. Cancels the others and raises
        UnendedReadsError if one of these does not end within ``timeout_secs`` either."""
        events = self._wait(batch, count, timeout_secs)
        missing = count - len(events)
        if missing:
            self._cufile.batch_io_cancel(batch)
            if len(self._wait(batch, missing, timeout_secs)) < missing:
                raise UnendedReadsError(
                    f"{missing} of {count} reads of a batch did not end in {timeout_secs} s, nor "
                    "when they were cancelled"
                )
        return events

    def _wait(self, batch: int, count: int, timeout_secs: float) -> np.ndarray:
        """Events of the reads that ended within ``timeout_secs``, at most ``count``."""
        ended: list[np.ndarray] = []
        deadline = time.monotonic() + timeout_secs
        while count > 0:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            wait_secs = min(remaining, _POLL_SECS)
            limit = _Timespec(int(wait_secs), int(wait_secs % 1 * 1e9))
            events = np.zeros(count, _EVENTS)
            number = ctypes.c_uint(count)
            self._cufile.batch_io_get_status(
                batch,
                count,
                ctypes.addressof(number),
                events.ctypes.data,
                ctypes.addressof(limit),
            )
            ended.append(events[: number.value])
            count -= number.value
        return np.concatenate(ended) if ended else np.zeros(0, _EVENTS)

    def _check(self, reads: Reads, events: np.ndarray) -> None:
        """Raises OSError for the first read that failed or was short."""
        expected = reads.length[events["cookie"].astype(np.int64)]
        is_bad = (events["status"] != _COMPLETE) | (events["num_bytes"] != expected)
        if not is_bad.any():
            return
        event = events[is_bad][0]
        read = int(event["cookie"])
        path, offset = self._paths[int(reads.file[read])], int(reads.offset[read])
        length, num_bytes = int(reads.length[read]), int(event["num_bytes"])
        if event["status"] != _COMPLETE:
            status = _STATUS.get(int(event["status"]), str(event["status"]))
            raise OSError(
                f"{path}: reading {length} bytes at {offset}: {status}, cuFile's code {num_bytes}"
            )
        raise OSError(
            f"{path}: expected {length} bytes at {offset}, got {num_bytes}; the file is truncated: "
            "check the store with `lsm data verify`"
        )


class UnendedReadsError(TimeoutError):
    """Reads may still write to their buffer, which must outlive them."""


def _open(path: str | Path, direct: str) -> int:
    """A descriptor for reading: with O_DIRECT for ``direct`` "on", and for "auto" where the file
    system supports it."""
    if direct == "off":
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        if direct == "on":
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
