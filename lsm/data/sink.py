"""A file that is written once, in sequence, past the page cache, with its checksum."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import mmap
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lsm.core.units import format_bytes

# Bytes per write. A large file is written with O_DIRECT, so that a conversion of any size neither
# fills memory with dirty pages nor evicts the cached pages of others.
BUFFER_BYTES = 4 << 20
# If O_DIRECT does not work, pages are flushed and dropped this often.
FLUSH_BYTES = 128 << 20
# The errors that mean "no more room": disk full, quota, file size limit.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OTHER_PATH = "free some space or choose another path"


class FileSink:
    """A file, written in sequence, its sha256 computed on the way."""

    def __init__(
        self,
        path: Path,
        opened: tuple[int, bool] | None = None,
        *,
        remedy: str = _OTHER_PATH,
        final: Path | None = None,
    ) -> None:
        """Creates ``path``; or writes from the start of ``opened``: (descriptor, which the sink
        then owns; True if it bypasses the page cache). ``remedy``: advice for a full disk.
        ``final``: the name that the file will have, for errors; None: ``path``."""
        self.path = path
        self._final = final
        self._remedy = remedy
        self.num_bytes = 0
        self._hash = hashlib.sha256()
        self._written = 0
        self._flushed = 0
        self._buffer = mmap.mmap(-1, BUFFER_BYTES)  # aligned for O_DIRECT
        self._buffered = 0
        self._fd, self._is_direct = opened or _create(path)

    def __enter__(self) -> FileSink:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, data: bytes | np.ndarray) -> None:
        """Appends the bytes of ``data`` (a NumPy array must be C-contiguous)."""
        if isinstance(data, np.ndarray):
            view = data.reshape(-1).view(np.uint8).data
        else:
            view = memoryview(data)
        self._hash.update(view)
        self.num_bytes += len(view)
        done = 0
        while done < len(view):
            size = min(len(view) - done, BUFFER_BYTES - self._buffered)
            self._buffer[self._buffered : self._buffered + size] = view[done : done + size]
            self._buffered += size
            done += size
            if self._buffered == BUFFER_BYTES:
                self._write_buffer()

    def write_header(self, dtype: np.dtype, length: int, *row: int) -> None:
        """Starts a .npy file of ``length`` elements, or rows of shape ``row``, of ``dtype``."""
        self.write(npy_header(dtype, length, *row))

    def write_array(self, array: np.ndarray) -> None:
        """Writes ``array`` as a .npy file."""
        self.write_header(array.dtype, *array.shape)
        self.write(np.ascontiguousarray(array))

    def replace_header(self, dtype: np.dtype, length: int, *row: int) -> None:
        """Rewrites the header now that the length is known, and with it the checksum."""
        self._write_tail()
        os.pwrite(self._fd, npy_header(dtype, length, *row), 0)
        self._hash = hashlib.sha256()
        offset = 0
        while chunk := os.pread(self._fd, BUFFER_BYTES, offset):
            self._hash.update(chunk)
            offset += len(chunk)

    def close(self) -> None:
        """Makes the file durable and closes it."""
        if self._fd < 0:
            return
        try:
            self._write_tail()
            self._flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes the file without its rest."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._buffer.close()

    def _write_buffer(self) -> None:
        room = explaining_no_room(self.path, self._buffered, self._remedy, self._final)
        with room, memoryview(self._buffer) as view:
            done = 0
            while done < self._buffered:
                done += os.write(self._fd, view[done : self._buffered])
        self._written += self._buffered
        self._buffered = 0
        if not self._is_direct and self._written - self._flushed >= FLUSH_BYTES:
            self._flush()

    def _write_tail(self) -> None:
        # The tail is no whole number of blocks, so it goes through the page cache.
        if self._is_direct:
            flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
            fcntl.fcntl(self._fd, fcntl.F_SETFL, flags & ~os.O_DIRECT)
            self._is_direct = False
        self._write_buffer()

    def _flush(self) -> None:
        with explaining_no_room(self.path, 0, self._remedy, self._final):
            os.fsync(self._fd)
        os.posix_fadvise(self._fd, 0, self._written, os.POSIX_FADV_DONTNEED)
        self._flushed = self._written


def _create(path: Path) -> tuple[int, bool]:
    """(descriptor, True if it bypasses the page cache) of the new file ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_DIRECT, 0o644), True
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return os.open(path, flags, 0o644), False


def npy_header(dtype: np.dtype, length: int, *row: int) -> bytes:
    """The .npy header of an array [length, *row]; 128 bytes whatever the length."""
    buffer = io.BytesIO()
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False}
    np.lib.format.write_array_header_1_0(buffer, {**header, "shape": (length, *row)})
    return buffer.getvalue()


def no_room(code: int, path: Path, needed: int, free: int, remedy: str = _OTHER_PATH) -> OSError:
    """The error if ``path`` needs ``needed`` more bytes and only ``free`` are free."""
    missing = f"{format_bytes(needed)} ({needed} bytes) more needed"
    if code == errno.EFBIG:
        text = f"the file size limit (ulimit -f) is reached: {missing}; raise it"
    else:
        text = f"disk full: {missing}, {format_bytes(free)} ({free} bytes) free; {remedy}"
    return OSError(code, text, str(path))


@contextlib.contextmanager
def explaining_no_room(
    path: Path, num_bytes: int, remedy: str = _OTHER_PATH, final: Path | None = None
) -> Iterator[None]:
    """A context that adds ``num_bytes`` and the free bytes to errors of a full disk. ``final``: the
    name of the file in them; None: ``path``."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        # A device node lies on another file system than the full one.
        free = 0 if path.is_block_device() else shutil.disk_usage(path.parent).free
        raise no_room(error.errno, final or path, num_bytes, free, remedy) from None
