"""Writes the features of a store to NVMe namespaces, where the ``nvme`` engine reads them.

It writes through the kernel's driver, as to any block device: queues that read features take no
write command.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from lsm.core.progress import ByteProgress
from lsm.core.units import format_bytes
from lsm.data.format import feature_file_bytes
from lsm.data.graph_store import GraphStore
from lsm.data.sink import FileSink
from lsm.data.stripes import StripedReader, StripedWriter
from lsm.storage.nvme.contents import PARTITION_TABLE, START_BYTES, describe_contents
from lsm.storage.nvme.label import LABEL_BYTES, label_offset, make_label
from lsm.storage.nvme.machine import Machine, Namespace, find_namespace, use_of

_CHUNK_BYTES = 16 << 20
_OTHER_DEVICE = "the device holds less than its size says (thin provisioning?); choose another"


def load_namespaces(
    store: GraphStore,
    devices: Sequence[str | Path],
    confirm: Callable[[Namespace, str], bool],
    *,
    machine: Machine | None = None,
    progress: bool | None = None,
) -> list[Namespace]:
    """Writes the features of ``store`` to ``devices``, striped over them in the store's stripes,
    and returns the namespaces.

    Row 0 begins at block 0. The last 4096 bytes hold a label (``nvme.label``), which is removed
    first and written last, so that no half-written drive looks complete. ``confirm`` gets each
    namespace and its present contents; unless it returns True for all of them, nothing is written.
    Every drive is checked before any is written to, and stays open exclusively.

    Raises FileNotFoundError (no such device), ValueError (no whole NVMe namespace, in use, too
    small, not confirmed), PermissionError, OSError.
    """
    machine = machine or Machine()
    found = [find_namespace(device, machine) for device in devices]
    paths = [namespace.path.resolve() for namespace in found]
    if not found or len(set(paths)) != len(paths):
        raise ValueError(f"devices: expected different ones, got {', '.join(map(str, devices))}")
    _check_sizes(store, found)
    for namespace in found:
        use = use_of(namespace, machine)
        if use is not None:
            raise ValueError(f"{namespace.path}: in use: {use}; it was left as it is")
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(_Device(namespace)) for namespace in found]
        for device in opened:
            content = device.content()
            if not confirm(device.namespace, content):
                raise ValueError(f"{device.namespace.path}: not confirmed; nothing was written")
        _write(store, opened, progress)
    return found


def _check_sizes(store: GraphStore, found: list[Namespace]) -> None:
    total = store.num_nodes * store.row_bytes
    for namespace, needed in zip(
        found, feature_file_bytes(total, len(found), store.stripe_bytes), strict=True
    ):
        needed += LABEL_BYTES
        if namespace.num_bytes < needed:
            raise ValueError(
                f"{namespace.path}: too small: expected at least {format_bytes(needed)} ({needed} "
                f"bytes) for its share of {store.path}, got {format_bytes(namespace.num_bytes)} "
                f"({namespace.num_bytes} bytes); stripe over more namespaces"
            )


def _write(store: GraphStore, opened: list[_Device], progress: bool | None) -> None:
    for device in opened:
        device.write_label(bytes(LABEL_BYTES))
    sinks = [
        FileSink(device.namespace.path, device.duplicate(), remedy=_OTHER_DEVICE)
        for device in opened
    ]
    total = store.num_nodes * store.row_bytes
    with contextlib.ExitStack() as stack, ByteProgress(progress) as bars:
        for sink in sinks:
            stack.enter_context(sink)
        reader = stack.enter_context(StripedReader(store.feature_paths, store.stripe_bytes))
        writer = StripedWriter(sinks, store.stripe_bytes)
        advance = bars.task("features", total)
        for offset in range(0, total, _CHUNK_BYTES):
            data = reader.read(offset, min(_CHUNK_BYTES, total - offset))
            writer.write(data)
            reader.drop_cache()
            advance(len(data))
        writer.close()
    for index, device in enumerate(opened):
        device.write_label(make_label(store.feature_files, index, len(opened)))


class _Device:
    """A namespace's block device, opened exclusively: nobody else can mount or claim it."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        path = namespace.path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.EBUSY:
                text = "in use: the kernel grants no exclusive access; it was left as it is"
                raise ValueError(f"{path}: {text}") from None
            if error.errno in (errno.EACCES, errno.EPERM):
                text = "no permission to write to it: run as root"
                raise PermissionError(error.errno, text, str(path)) from None
            if error.errno == errno.EROFS:
                text = "write-protected: `blockdev --setrw` allows writes, if the drive does"
                raise OSError(error.errno, text, str(path)) from None
            raise

    def __enter__(self) -> _Device:
        return self

    def __exit__(self, *_exception: object) -> None:
        os.close(self._fd)

    def duplicate(self) -> tuple[int, bool]:
        """(descriptor, True if it bypasses the page cache) for a FileSink. The file is opened
        again, because flags such as O_DIRECT belong to an opening. The exclusive claim does not
        extend to the second opening."""
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            return os.open(self.namespace.path, flags | os.O_DIRECT), True
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        return os.open(self.namespace.path, flags), False

    def content(self) -> str:
        """The present contents, in words, for the user who confirms. Raises ValueError for a
        partition table, even if the kernel does not know its partitions."""
        start = os.pread(self._fd, START_BYTES, 0)
        found = describe_contents(start, os.pread(self._fd, LABEL_BYTES, self._label_offset))
        if found == PARTITION_TABLE:
            raise ValueError(
                f"{self.namespace.path}: holds a partition table; it was left as it is. If nothing "
                f"on it is needed: wipefs --all {self.namespace.path}"
            )
        return found or "nothing at its start"

    def write_label(self, label: bytes) -> None:
        """Replaces the last block. Blocks until it is durable."""
        os.pwrite(self._fd, label, self._label_offset)
        os.fsync(self._fd)

    @property
    def _label_offset(self) -> int:
        return label_offset(self.namespace.num_bytes)
