"""Writes a store so that it is whole or absent: a temporary sibling directory, then a rename."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from lsm.core.arguments import option
from lsm.core.atomic_file import sync_directory
from lsm.data import format as layout
from lsm.data.format import FileMeta, StoreMeta
from lsm.data.links.format import LinksMeta
from lsm.data.sink import FileSink, explaining_no_room, no_room
from lsm.data.triples.format import TripleMeta
from lsm.data.typed.format import TypedMeta

log = logging.getLogger(__name__)

# Names in a store's directory, complete or not. A run keeps its profile of the disk there.
_WRITTEN = re.compile(
    r"topology|split|scores|(labels|times)\.npy|features(\.\d+)?\.bin|\.?meta\.json.*"
    r"|\.?profile\.json.*|nodes|edges|message|(entities|names|relations)\.tsv|scratch"
)


class StoreWriter:
    """Context manager that builds the store ``out``.

    Files are made in a temporary sibling directory. ``commit(meta)`` writes ``meta.json`` last and
    renames the directory. An exception, SIGINT or SIGTERM before ``commit`` removes everything.
    After SIGKILL the temporary directory stays until the next writer of ``out`` removes it;
    ``GraphStore.open`` refuses it. A writer that is killed between its two renames leaves the
    replaced store under another name; the next writer restores the name. A writer at work holds a
    lock on its directory.
    """

    def __init__(self, out: str | Path, *, force: bool = False, kind: str = "graph") -> None:
        """Raises FileExistsError if ``out`` exists, unless it is a store of that ``kind``, and
        ``force`` is set. A graph with types may replace one without."""
        self.out = Path(os.path.abspath(out))
        self._force, self._content = force, _content_of(kind)
        self._check_out()
        self._directory = layout.temporary_path(self.out)
        self._sinks: dict[str, FileSink] = {}
        self._lock = -1
        self._signals = _RaisingSignals()

    def __enter__(self) -> StoreWriter:
        self.out.parent.mkdir(parents=True, exist_ok=True)
        for left in layout.replaced_paths(self.out):
            _restore_or_remove(left, self.out)
        self._check_out()
        for left in self.out.parent.glob(f".{self.out.name}.tmp-*"):
            _remove_if_left(left)
        self._signals.open()
        try:
            self._directory.mkdir()
            self._lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            self._signals.close()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        try:
            with _signals_wait():
                for sink in self._sinks.values():
                    sink.abandon()
                if self._directory.exists():
                    shutil.rmtree(self._directory)
                os.close(self._lock)
        finally:  # a signal that waited raises
            self._signals.close()

    def file(self, name: str) -> FileSink:
        """A new file ``name`` of the store. Its user or ``commit`` closes it."""
        if name in self._sinks:
            raise ValueError(f"{name}: written twice")
        self._sinks[name] = FileSink(self._directory / name, final=self.out / name)
        return self._sinks[name]

    def scratch(self) -> Path:
        """A directory for intermediate files, which the store will not have."""
        path = self._directory / "scratch"
        path.mkdir(exist_ok=True)
        return path

    def path_of(self, name: str) -> Path:
        """Path of the file ``name`` until the store has its name."""
        return self._directory / name

    def write_array(self, name: str, array: np.ndarray) -> None:
        """Writes ``array`` as the .npy file ``name``."""
        with self.file(name) as sink:
            sink.write_array(array)

    def require_bytes(self, num_bytes: int) -> None:
        """Raises OSError (ENOSPC) unless the file system has ``num_bytes`` free."""
        free = shutil.disk_usage(self._directory).free
        if free < num_bytes:
            raise no_room(errno.ENOSPC, self.out, num_bytes, free)

    def commit(self, meta: StoreMeta | TypedMeta | TripleMeta | LinksMeta) -> None:
        """Completes ``meta.files``, makes everything durable and renames the store to ``out``."""
        if (self._directory / "scratch").exists():
            shutil.rmtree(self._directory / "scratch")
        for name, sink in self._sinks.items():
            sink.close()
            meta.files[name] = FileMeta(bytes=sink.num_bytes, sha256=sink.sha256)
        for directory in {path.parent for path in self._directory.rglob("*")}:
            sync_directory(directory)
        with explaining_no_room(self.out, 0):
            layout.write_meta(self._directory / layout.META, meta)
        with _signals_wait():
            self._signals.raise_received()
            self._check_out()
            self._rename()

    def _rename(self) -> None:
        old = layout.replaced_path(self.out)
        if self.out.exists():
            os.rename(self.out, old)
        try:
            os.rename(self._directory, self.out)
        except BaseException:
            if old.exists():
                os.rename(old, self.out)
            raise
        sync_directory(self.out.parent)
        shutil.rmtree(old, ignore_errors=True)

    def _check_out(self) -> None:
        nearest = next(path for path in self.out.parents if os.path.lexists(path))
        if not nearest.is_dir():
            raise NotADirectoryError(
                f"{self.out}: {nearest} is a file, and no directory; choose another path"
            )
        if not os.path.lexists(self.out):
            return
        if not self._force:
            raise FileExistsError(
                f"{self.out}: exists; choose another path or pass {option('force')}"
            )
        is_empty = self.out.is_dir() and not any(self.out.iterdir())
        if self.out.is_symlink() or not (is_empty or _is_store(self.out)):
            raise FileExistsError(
                f"{self.out}: exists and is not a store, so it is not replaced; choose another path"
            )
        found = self._content if is_empty else _content_of(layout.store_kind(self.out))
        if found != self._content:
            raise FileExistsError(
                f"{self.out}: exists and holds {found}, so it is not replaced by {self._content}; "
                "choose another path"
            )


def _content_of(kind: str) -> str:
    """The content of a store, in words."""
    return {"triples": "triples", "links": "splits of edges"}.get(kind, "a graph")


def _is_store(directory: Path) -> bool:
    """True if a writer made ``directory``, and no other file lies there."""
    is_meta = layout.unchecked_meta(directory).keys() >= {"schema_version", "files"}
    return is_meta and all(_WRITTEN.fullmatch(each.name) for each in directory.iterdir())


def _restore_or_remove(old: Path, out: Path) -> None:
    """Handles ``old``, a store that a writer of ``out`` was replacing when it was killed: renames
    it to ``out``, or removes it if the new store has that name."""
    pid = old.name.rpartition("-")[2]
    if os.path.lexists(out) or not (old / layout.META).is_file():
        _remove_if_left(old)
    elif layout.is_temporary(old, "old") and (
        int(pid) == os.getpid() or not Path("/proc", pid).exists()
    ):
        log.info("%s: a conversion was killed as it replaced the store; restoring it", out)
        os.rename(old, out)


def _remove_if_left(directory: Path) -> None:
    """Removes ``directory``, left by a killed writer. Keeps it, with a warning, if a process may be
    at work in it, or if it holds files that no writer makes."""
    pid = directory.name.rpartition("-")[2]
    is_named = any(layout.is_temporary(directory, kind) for kind in ("tmp", "old"))
    is_ours = is_named and directory.is_dir() and not directory.is_symlink()
    if not is_ours or any(_WRITTEN.fullmatch(file.name) is None for file in directory.iterdir()):
        log.warning("%s: holds files that no conversion made; it stays", directory)
        return
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A writer creates its directory before it locks it.
        at_work = int(pid) != os.getpid() and Path("/proc", pid).exists()
    except OSError:
        at_work = True
    try:
        if at_work:
            log.warning("%s: another conversion is at work there", directory)
            return
        log.info("%s: left by a conversion that was killed; removing it", directory)
        shutil.rmtree(directory)
    finally:
        os.close(lock)


class _RaisingSignals:
    """Between ``open`` and ``close``, SIGTERM and SIGHUP raise SystemExit(128 + n), so that
    clean-up runs as for ^C. Native code that a signal meets may drop this exception or raise
    another one instead, so ``close`` and ``raise_received`` raise it again."""

    def __init__(self) -> None:
        self._received: list[int] = []
        self._previous: dict[int, Any] = {}

    def open(self) -> None:
        """Handles the signals that have no handler yet. Other threads may set none."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                self._previous[number] = signal.signal(number, self._receive)

    def close(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self.raise_received()

    def raise_received(self) -> None:
        """Raises SystemExit if one of the signals came."""
        if self._received:
            raise SystemExit(128 + self._received[0])

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)
        self.raise_received()


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """A context that delays SIGINT, SIGTERM and SIGHUP to this thread until its end."""
    numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
